"""Pseudowords: drawn from the speller given the constraints, and never without saying why not."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

import spellonce
from spellonce import recipes
from spellonce.errors import ConfigError
from spellonce.generation import Generator
from spellonce.lexicon import Spellings
from spellonce.model import Model
from spellonce.network import Dice
from spellonce.speller import Speller
from spellonce.text import TextFormat
from spellonce.two_level import TwoLevel
from spellonce.wugs import Constraints, _ended

from .conftest import call
from .test_systems import make, shorten
from .toy import make_lexicon, strings


def make_model(name: str = "mixed") -> Model:
    network = make(name)
    shorten(network)
    network.requires_grad_(False)
    config = {"seed": 0, "data": {"name": "toy", "splits": {}}}
    return Model(network, make_lexicon(), recipes.full_small(), TextFormat("spaces"), config)


def p_spell(model: Model, words: list[str], like: str) -> np.ndarray[Any, Any]:
    network = model.network
    assert isinstance(network, TwoLevel) and isinstance(network.novel, Speller)
    vector = network.like(model.lexicon, [like]).hidden
    spelled = Spellings.of(model.lexicon.alphabet, words)
    found: np.ndarray[Any, Any] = network.novel.nats(vector.expand(len(words), -1), spelled).numpy()
    return np.exp(-found.astype(np.float64))


def test_a_prefix_is_read_before_drawing() -> None:
    """Draws given a prefix are draws from the speller given that prefix."""
    model = make_model()
    words = [w for w in strings(5) if w.startswith("b")]
    p = dict(zip(words, p_spell(model, words, "ab"), strict=True))
    total = sum(p.values())
    moment = model.network.like(model.lexicon, ["ab"])

    dice = Dice(1.0, torch.Generator().manual_seed(0))
    n = 4000
    drawn = Counter(model.network.spell(model.lexicon, moment, n, dice, 30, "b"))
    assert all(word.startswith("b") for word in drawn)
    for word in ("b", "ba", "bb", "bab"):
        expected = p[word] / total
        assert drawn[word] / n == pytest.approx(expected, abs=4 * math.sqrt(expected / n) + 0.01)


def test_what_is_drawn_with_a_suffix_is_p_spell_given_it() -> None:
    model = make_model()
    moment, wanted = model.network.like(model.lexicon, ["ab"]), Constraints(suffix="b")
    words = [word for word in strings(9) if word.endswith("b")]
    p = dict(zip(words, p_spell(model, words, "ab"), strict=True))
    total = sum(p.values())
    dice = Dice(1.0, torch.Generator().manual_seed(0))
    drawn = model.network.spell(model.lexicon, moment, 3000, dice, 30)
    n = 400
    speaks = Generator(model.network, model.lexicon, model.format)
    first = Counter(_ended(speaks, moment, drawn, dice, wanted)[0] for _ in range(n))
    assert all(word.endswith("b") for word in first)
    for word in ("b", "bb", "ab", "aab"):
        expected = p[word] / total
        assert first[word] / n == pytest.approx(expected, abs=4 * math.sqrt(expected / n) + 0.02)


@settings(deadline=None, max_examples=40)
@given(
    prefix=st.text("ab", max_size=2), suffix=st.text("ab", max_size=2),
    lengths=st.tuples(st.integers(1, 3), st.integers(3, 8)), novel=st.booleans(),
    distance=st.integers(0, 2), excluded=st.sets(st.sampled_from(strings(3)[1:]), max_size=4),
)  # fmt: skip
def test_constraints_are_kept(
    prefix: str, suffix: str, lengths: tuple[int, int], novel: bool, distance: int,
    excluded: set[str],
) -> None:  # fmt: skip
    model = make_model()
    found = model.wugs(
        "ab", n=8, prefix=prefix, suffix=suffix, min_length=lengths[0], max_length=lengths[1],
        novel_only=novel, min_distance=distance, exclude=frozenset(excluded), seed=1,
    )  # fmt: skip
    words = found.words
    assert len(set(words)) == len(words) <= 8
    known = model.lexicon.types[2:]
    for word in words:
        assert word.startswith(prefix) and word.endswith(suffix)
        assert lengths[0] <= len(word) <= lengths[1] and word not in excluded
        assert "◇" not in word and not (novel and word in known)
        assert all(Levenshtein.distance(word, other) >= distance for other in known)
    if len(words) < 8:
        assert "all others had come before" in found.why() or found.refused


def test_bits_are_those_of_the_speller() -> None:
    model = make_model()
    found = model.wugs("ab", n=20)
    expected = -np.log2(p_spell(model, found.words, "ab"))
    np.testing.assert_allclose([wug.bits for wug in found.wugs], expected, rtol=1e-4)
    middle = float(np.median(expected))
    some = model.wugs("ab", n=20, max_bits=middle)
    assert some.wugs and all(wug.bits is not None and wug.bits <= middle for wug in some.wugs)
    assert "were too likely or too unlikely" in some.refused
    assert all(
        wug.bits is not None and wug.bits >= middle
        for wug in model.wugs("ab", n=20, min_bits=middle).wugs
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_length": 0}, "leave no words"),
        ({"min_length": 4, "max_length": 3}, "leave no words"),
        ({"prefix": "abc", "max_length": 2}, "longer than"),
        ({"min_distance": -1}, "negative"),
        ({"min_bits": 3.0, "max_bits": 2.0}, "leave no words"),
        ({"prefix": "x", "letters": "ab"}, "'x'"),
    ],
)
def test_constraints_that_cannot_be_kept(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Constraints(**wrong)


def test_what_follows_a_gap_has_a_say() -> None:
    """Words after which the rest is likelier come more often."""
    model = make_model("full")
    vectors = model.vectors()
    words = [w for w in strings(3) if w and "◇" not in w]
    nats = vectors.following_nats("bb ___ ab a", words)
    ids = [model.lexicon.lexeme_id(word) for word in ("ab", "a")]
    network = model.network
    assert isinstance(network, TwoLevel)
    for word, found in zip(words, nats, strict=True):
        if word in vectors:  # a lexeme is read as it is
            lm, _ = network.score_tokens(model.lexicon, ["bb", word, "ab", "a"])
            assert found == pytest.approx(float(lm[2:].sum()), rel=1e-4), word
    assert len(ids) == 2 and len(set(np.round(nats, 4))) > 3, "words make a difference"
    assert (vectors.following_nats("bb ___ ab", words) < nats).all(), "less follows"
    drawn = Counter(
        model.spell(context="bb ___ ab a", n=1, seed=seed, max_length=3)[0] for seed in range(60)
    )
    alone = Counter(model.spell(context="bb", n=1, seed=s, max_length=3)[0] for s in range(60))
    assert drawn != alone


def test_words_on_the_command_line(tiny_run: Path, tmp_path: Path) -> None:
    lexicon = spellonce.load(tiny_run).lexicon
    like = lexicon.types[5]
    options = ["spell", "-m", tiny_run, "--like", like]
    words = call(*options, "--prefix", "ba", "--novel-only", "-n", 5).ok().split()
    assert len(words) == 5 and all(word.startswith("ba") for word in words)
    seen = {word.casefold() for word in lexicon.types}
    assert not any(word.casefold() in seen for word in words)
    (tmp_path / "bad").write_text("\n".join(words[:2]) + "\n")
    others = call(
        *options, "--prefix", "ba", "--novel-only", "-n", 3, "--exclude", tmp_path / "bad"
    )
    assert not set(others.ok().split()) & set(words[:2])
    rows = json.loads(call(*options, "--json", "-n", 3).ok())["words"]
    assert len(rows) == 3 and all(row["bits"] > 0 for row in rows)
    call(*options, "--letters", "q").refused("of those drawn", 1)
    call(*options, "--prefix", "☃").refused("no spelling that begins with", 2)
    call(*options, "--min-length", 9, "--max-length", 3).refused("leave no words", 2)
    gap = call("spell", "-m", tiny_run, "--context", "The ___ ba ke.", "-n", 3).ok().split()
    assert len(gap) == 3


@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_novel_only_is_kept_always(tiny_run: Path, seed: int) -> None:
    model = spellonce.load(tiny_run)
    seen = {word.casefold() for word in model.lexicon.types}
    words = model.spell(context="The", n=30, novel_only=True, seed=seed, temperature=0.7)
    assert words and not any(word.casefold() in seen for word in words)
