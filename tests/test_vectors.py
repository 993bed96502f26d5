"""Vectors: exported as gensim reads them, inferred as the objective says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import spellonce
from spellonce.errors import ConfigError
from spellonce.lexicon import EOS_ID, UNK_ID, Spellings
from spellonce.speller import Speller
from spellonce.text import TextFormat
from spellonce.two_level import TwoLevel
from spellonce.vectors import Vectors

from .conftest import call
from .test_systems import make
from .toy import LEXEMES, make_lexicon

CONTEXTS = ["ab ___ bb a", "bb a ___\nab"]


def make_vectors(name: str = "full") -> tuple[TwoLevel, Vectors]:
    network = make(name)
    assert isinstance(network, TwoLevel)
    network.requires_grad_(False)
    return network, Vectors(network, make_lexicon(), TextFormat("spaces"))


def test_lexemes_have_their_embeddings() -> None:
    network, vectors = make_vectors()
    table = network.lm.table.embeddings()
    assert vectors.words == LEXEMES[2:]
    for i, word in enumerate(LEXEMES):
        if i not in (UNK_ID, EOS_ID):
            assert word in vectors
            np.testing.assert_array_equal(vectors.of(word), table[i].numpy())
    assert "\n" not in vectors and "" not in vectors and "bab" not in vectors


def test_neighbours_are_the_nearest() -> None:
    _, vectors = make_vectors()
    mean = np.mean([vectors.of(word) for word in vectors.words], axis=0)
    rows = {word: vectors.of(word) - mean for word in vectors.words}
    own = rows["ab"]
    cosine = {
        word: float(row @ own / np.linalg.norm(row) / np.linalg.norm(own))
        for word, row in rows.items()
    }
    near = vectors.neighbours(own + mean, 2, but=["ab"])
    others = sorted((w for w in cosine if w != "ab"), key=lambda w: -cosine[w])
    assert [one.word for one in near] == others[:2]
    assert near[0].cosine == pytest.approx(cosine[near[0].word], rel=1e-5)
    assert vectors.neighbours(own + mean, 1)[0].word == "ab"
    assert len(vectors.neighbours(own, 99)) == 4
    with pytest.raises(ConfigError, match="at least 1"):
        vectors.neighbours(own, 0)


def test_states_of_a_text_are_those_that_predict() -> None:
    network, vectors = make_vectors("mixed")
    tokens, states = vectors.in_context("ab bab\nbb")
    assert tokens == ["ab", "bab", "\n", "bb"] and states.shape == (4, 5)
    moment = network.begin(make_lexicon(), ["ab", "bab"])
    np.testing.assert_allclose(states[2], moment.hidden[0].numpy(), rtol=1e-5)
    assert vectors.in_context("")[1].shape == (0, 5)
    _, after = vectors.in_context("ab bab\nbb", "after")
    np.testing.assert_allclose(after[:-1], states[1:], rtol=1e-5)
    moment = network.begin(make_lexicon(), ["ab", "bab", "\n", "bb"])
    np.testing.assert_allclose(after[-1], moment.hidden[0].numpy(), rtol=1e-5)
    with pytest.raises(ConfigError, match="--when"):
        vectors.in_context("ab", "never")


def objective(
    network: TwoLevel, vectors: Vectors, e: Tensor, word: str | None, contexts: list[str]
) -> float:
    """What is to be made small, written out."""
    lexicon = make_lexicon()
    rows = network.lm.table.embeddings()[2:]
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / len(rows)
    shrunk = 0.9 * covariance + 0.1 * covariance.diagonal().mean() * torch.eye(5)
    apart = (e - rows.mean(0)).double()
    nats = 0.5 * float(apart @ torch.linalg.inv(shrunk.double()) @ apart)
    if word:
        assert isinstance(network.novel, Speller)
        nats += float(network.novel.nats(e[None], Spellings.of(lexicon.alphabet, [word])))
    for context in contexts:
        before, after = (part.split(" ") for part in context.replace("\n", " \n ").split("___"))
        before, after = ([t for t in part if t] for part in (before, after))
        moment = network.begin(lexicon, before)
        table = network.lm.table
        logits = table.weights[0] @ moment.hidden[0] + table.biases[0]
        own = e @ moment.hidden[0] + table.biases[0].min()
        nats -= float(own - torch.logsumexp(torch.cat([logits, own[None]]), 0))
        inputs = [e, *network.inputs_of(lexicon, after[:-1])]
        hidden, _ = network.lm.run(torch.stack(inputs)[:, None], moment.state[:2])  # type: ignore[attr-defined]
        ids = torch.tensor([lexicon.lexeme_id(t) for t in after])
        log_probs = table.log_probs(hidden.states[:, 0])
        nats -= float(log_probs[torch.arange(len(ids)), ids].sum())
    return nats


@pytest.mark.parametrize(
    ("word", "contexts"), [("bab", []), (None, CONTEXTS), ("bab", CONTEXTS)], ids=str
)
@pytest.mark.parametrize("name", ["full", "mixed", "mixed-composed"])
def test_an_inferred_vector_is_the_most_probable(
    name: str, word: str | None, contexts: list[str]
) -> None:
    network, vectors = make_vectors(name)
    found = torch.from_numpy(vectors.infer(word, contexts))
    best = objective(network, vectors, found, word, contexts)
    generator = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.1, 1.0):
        for _ in range(20):
            other = found + scale * torch.randn(5, generator=generator)
            assert objective(network, vectors, other, word, contexts) > best - 1e-3


def test_the_word_itself_marks_its_place() -> None:
    _, vectors = make_vectors()
    np.testing.assert_allclose(
        vectors.infer("bab", ["ab bab bb a"]), vectors.infer("bab", ["ab ___ bb a"]), atol=1e-4
    )
    for arguments in ((None, []), ("", []), ("bab", ["ab bb"])):
        with pytest.raises(ConfigError, match="___"):
            vectors.infer(*arguments)


def test_punctuation_beside_a_gap_is_what_it_is_in_the_text(tiny_run: Path) -> None:
    vectors = spellonce.load(tiny_run).vectors()
    np.testing.assert_allclose(
        vectors.infer("wug", "The (wug), ba."), vectors.infer("wug", "The (___), ba."), atol=1e-3
    )
    for wrong in ("a ___ and ___", "pre___fix", "none"):
        with pytest.raises(ConfigError, match="___"):
            vectors.infer(None, wrong)


@pytest.mark.parametrize("form", ["word2vec", "word2vec-binary"])
def test_gensim_reads_what_is_exported(tiny_run: Path, tmp_path: Path, form: str) -> None:
    models = pytest.importorskip("gensim.models")
    out = tmp_path / "vectors"
    told = call("export", "-m", tiny_run, "--format", form, out).ok()
    vectors = spellonce.load(tiny_run).vectors()
    assert told == f"{len(vectors.words):,} vectors: {out}\n"
    read = models.KeyedVectors.load_word2vec_format(str(out), binary=form.endswith("binary"))
    assert read.index_to_key == list(vectors.words)
    for word in vectors.words[:20]:
        np.testing.assert_allclose(read[word], vectors.of(word), rtol=1e-5)
    centred = models.KeyedVectors(read.vector_size)
    centred.add_vectors(read.index_to_key, read.vectors - read.vectors.mean(0))
    near = centred.similar_by_vector(centred[vectors.words[3]], topn=3)
    ours = vectors.neighbours(vectors.of(vectors.words[3]), 3)
    assert [word for word, _ in near] == [one.word for one in ours]


def test_vectors_on_the_command_line(tiny_run: Path, tmp_path: Path) -> None:
    vectors = spellonce.load(tiny_run).vectors()
    known = vectors.words[5]
    line = call("embed", "-m", tiny_run, known).ok()
    assert line.split()[0] == known and len(line.split()) == 17
    found = json.loads(call("embed", "-m", tiny_run, known, "zibbled", "--json").ok())["words"]
    assert [row["known"] for row in found] == [True, False]
    text = tmp_path / "t.txt"
    text.write_text("The wug,\nba ke\n", encoding="utf-8")
    rows = [
        json.loads(row)
        for row in call("embed", "-m", tiny_run, "--text", text).ok().split("\n")[:-1]
    ]
    assert [row["token"] for row in rows] == ["The", "wug", ",", "\n", "ba", "ke", "\n"]
    assert [len(row["vector"]) for row in rows] == [16] * 7 and rows[4]["start"] == 9
    call("embed", "-m", tiny_run).refused("give words", 2)
    call("embed", "-m", tiny_run, "x", "--text", text).refused("one of the two", 2)
    near = call("neighbours", "-m", tiny_run, known, "-n", 3).ok().splitlines()
    assert len(near) == 3 and known not in [row.split("\t")[0] for row in near]
    unseen = call("neighbours", "-m", tiny_run, "zibbled", "--context", "The ___ ba.", "--json")
    assert json.loads(unseen.ok())["known"] is False
    told = call("neighbours", "-m", tiny_run, "zibbled")
    assert told.code == 0 and "no lexeme" in told.err and len(told.out.splitlines()) == 10
    out = tmp_path / "v"
    call("export", "-m", tiny_run, "--format", "csv", out).refused("--format must be", 2)
    out.touch()
    call("export", "-m", tiny_run, out).refused("there already", 1)
    call("export", "-m", tiny_run, tmp_path / "no" / "v").refused("cannot write", 1)
