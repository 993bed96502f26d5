"""Figures against a plain-Python recount; the API end to end on a tiny model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spellonce
from spellonce import recipes
from spellonce.evaluation import BINS, figures, recurrence, unigram_bits
from spellonce.model import Model
from spellonce.text import TextFormat

from .toy import make_lexicon, make_network

TEXT = "a ab zz\n bb  aab ba a\n\nb a◇ x"


def make_model(tokenization: str = "spaces") -> Model:
    config = {"seed": 0, "data": {"name": "toy", "splits": {}}}
    fmt = TextFormat(tokenization)  # type: ignore[arg-type]
    return Model(make_network(), make_lexicon(), recipes.full_small(), fmt, config)


def test_figures_equal_a_plain_recount() -> None:
    model = make_model()
    scores = model.score(TEXT)
    result = figures(scores)
    lexicon = model.lexicon
    count_of = dict(zip(lexicon.types, lexicon.counts.tolist(), strict=True))
    bits = [0.0] * 3
    chars = [0] * 3
    total_chars = 0
    for i, token in enumerate(scores.tokens):
        form = token if token == "\n" else "".join(c if c in "ab" else "◇" for c in token)
        seen = count_of.get(form, 0)
        where = next(k for k, (lo, hi) in enumerate(BINS) if lo <= seen < (hi or math.inf))
        bits[where] += (scores.nats_lexeme[i] + scores.nats_spelling[i]) / math.log(2)
        chars[where] += int(scores.n_chars[i])
        total_chars += int(scores.n_chars[i])
    assert total_chars == len(TEXT) == result["n_chars"]
    for row, b, c in zip(result["bins"], bits, chars, strict=True):
        assert row["chars"] == c
        assert row["bpc"] == (pytest.approx(b / c) if c else None)
    assert result["bits"] == pytest.approx(sum(bits))
    assert result["bpc"] == pytest.approx(sum(bits) / len(TEXT))
    assert result["bpb"] == pytest.approx(sum(bits) / len(TEXT.encode()))
    assert result["bpc_lm"] + result["bpc_spell"] == pytest.approx(result["bpc"])


def test_strict_bits_charge_replaced_characters_and_open_white_space() -> None:
    model = make_model()
    result = figures(model.score("zz a\n"))
    other = 2 * math.log2(1_112_064 - 2)
    layout = 1 + 1 + 1  # before, between, after: each seen for the first time
    assert result["bits_strict"] - result["bits"] == pytest.approx(other + layout)
    assert (
        figures(model.score("a  a\n"))["bits_strict"] > figures(model.score("a a\n"))["bits_strict"]
    )
    tight = make_model("reversible")
    plain = figures(tight.score("ab a\n"))
    assert plain["bits_strict"] == plain["bits"], "reversible tokens determine the text"


def test_recurrence_is_about_novel_words_that_come_again() -> None:
    text = "ba a ba b ab ba\n" * 2 + "bab"
    scores = make_model().score(text)
    bits = dict.fromkeys(("ba", "b"), ())
    for token, b in zip(scores.tokens, scores.bits.tolist(), strict=True):
        if token in bits:
            bits[token] = (*bits[token], b)
    found = recurrence(scores, times=2)
    assert found["types"] == 2
    assert found["bits"] == pytest.approx([(bits["ba"][i] + bits["b"][i]) / 2 for i in range(2)])
    assert recurrence(scores, times=6)["bits"] == pytest.approx(bits["ba"])
    assert recurrence(scores, times=7) == {"types": 0, "bits": []}


@settings(deadline=None, max_examples=40)
@given(text=st.text(max_size=30))
@pytest.mark.parametrize("tokenization", ["spaces", "reversible"])
def test_any_text_has_a_finite_score(tokenization: str, text: str) -> None:
    scores = make_model(tokenization).score(text)
    assert np.isfinite(scores.bits).all() and (scores.bits >= 0).all()
    rows = list(scores.rows())
    assert sum(row["bits"] for row in rows) == pytest.approx(figures(scores)["bits"])
    assert all(text[row["start"] : row["end"]] == scores.tokens[i] for i, row in enumerate(rows))
    assert sum(a["bits"] for a in scores.article_sums()) == pytest.approx(figures(scores)["bits"])


def test_the_first_token_follows_an_end_of_line() -> None:
    model = make_model()
    alone = model.score("ab\n")
    later = model.score("\nab\n")
    assert alone.nats_lexeme[0] != pytest.approx(later.nats_lexeme[1], abs=1e-6)
    fresh = model.network.score([np.array([3])], model.lexicon.spellings().take(np.array([], int)))
    assert alone.nats_lexeme[0] == pytest.approx(fresh[0][0][0])


def test_novel_words_are_those_without_a_lexeme() -> None:
    scores = make_model().score(TEXT)
    novel = {t for t, new in zip(scores.tokens, scores.is_novel, strict=True) if new}
    assert novel == {"zz", "ba", "b", "a◇", "x"}
    assert (scores.nats_spelling[~scores.is_novel] == 0).all()
    assert (scores.nats_spelling[scores.is_novel] > 0).all()


def test_unigram_bits_is_a_distribution() -> None:
    counts = {"a": 3, "b": 1}
    mass = sum(2 ** -unigram_bits(counts, c) for c in "abc")
    assert mass == pytest.approx(1)


def test_evaluate_has_every_key_of_the_interface() -> None:
    result = make_model().evaluate(["ab zz\n"])
    expected = [
        "recipe",
        "split",
        "n_tokens",
        "n_chars",
        "n_bytes",
        "bits",
        "bits_strict",
        "bpc",
        "bpc_strict",
        "bpb",
        "bpc_lm",
        "bpc_spell",
        "bins",
        "adaptive",
        "static",
        "seconds",
        "tokens_per_second",
        "peak_rss_mb",
        "signature",
    ]
    assert set(expected) <= set(result)
    assert result["adaptive"] is None and result["static"]["bits"] == result["bits"]
    assert {"lo", "hi", "tokens", "chars", "bpc"} == set(result["bins"][0])


def test_public_names() -> None:
    assert spellonce.__all__ == sorted(spellonce.__all__)
    for name in spellonce.__all__:
        assert getattr(spellonce, name).__doc__
    with pytest.raises(AttributeError):
        spellonce.nothing  # noqa: B018


# --- generation --------------------------------------------------------------------------------


def test_samples_are_seeded_and_marked() -> None:
    model = make_model()
    first = model.sample(80, temperature=1.0, seed=1)
    assert first.text == model.sample(80, temperature=1.0, seed=1).text
    assert first.text != model.sample(80, temperature=1.0, seed=2).text
    assert len(first.pieces) == 80 and first.novel
    for piece in first.pieces:
        if not piece.is_novel and piece.text != "\n":
            assert piece.text.strip() in model.lexicon.types[: model.lexicon.n_lexemes]


def test_a_prompt_is_continued_not_repeated() -> None:
    model = make_model("reversible")
    sample = model.sample(5, prompt="ab (bb", seed=0)
    assert len(sample.pieces) == 5
    assert model.sample(5, prompt="ab (bb ", seed=0) == sample, "a blank at the end is no token"
    # What was said so far decides what comes: the state after the prompt, not after an EOS.
    other = model.sample(60, temperature=1.0, seed=0, prompt="\n" * 9)
    assert model.sample(60, temperature=1.0, seed=0, prompt="ab bb").text != other.text


def test_sampled_lexemes_follow_the_softmax() -> None:
    model = make_model()
    n = 600
    drawn = [model.sample(1, temperature=1.0, seed=s).pieces[0] for s in range(n)]
    hidden = model.network.begin(model.lexicon, []).hidden
    p = model.network.lm.table.log_probs(hidden).exp()[0].tolist()
    share = sum(piece.is_novel for piece in drawn) / n
    assert abs(share - p[0]) < 4 * (p[0] * (1 - p[0]) / n) ** 0.5
    share = sum(piece.text == "\n" for piece in drawn) / n
    assert abs(share - p[1]) < 4 * (p[1] * (1 - p[1]) / n) ** 0.5


def test_spelling_like_and_in_context() -> None:
    model = make_model()
    for words in (
        model.spell("ab", n=20, seed=1),
        model.spell(["ab", "bb"], n=20),
        model.spell(context="ab ba", n=20),
        model.spell(context="ab ___ ba", n=20),
    ):
        assert len(words) == len(set(words)) == 20 and all(words)
    known = set(model.lexicon.types[2 : model.lexicon.n_lexemes])
    assert known & set(model.spell("ab", n=200))
    assert not known & set(model.spell("ab", n=200, novel_only=True))
    short = model.spell("ab", n=50, min_length=2, max_length=3)
    assert short and all(2 <= len(word) <= 3 for word in short)
    assert model.spell("ab", n=5, seed=1) == model.spell("ab", n=5, seed=1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"like": "\n"}, {"like": " "}, {}, {"like": "ab", "context": "a"},
        {"like": "ab", "n": 0}, {"like": "ab", "temperature": -1.0},
        {"like": "ab", "temperature": math.nan}, {"like": "ab", "min_length": 5, "max_length": 2},
    ],
)  # fmt: skip
def test_impossible_wishes_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(spellonce.ConfigError):
        make_model().spell(**arguments)  # type: ignore[arg-type]


def test_temperature_zero_is_deterministic() -> None:
    model = make_model()
    texts = {model.sample(30, temperature=0, seed=s).text for s in range(3)}
    assert len(texts) == 1
