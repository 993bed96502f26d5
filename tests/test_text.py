"""Reading text: tokens, offsets, characters, articles, and the price of white space."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spellonce.errors import ConfigError
from spellonce.text import (
    EOS,
    LayoutCode,
    TextFormat,
    articles,
    join_tokens,
    line_tokens,
    read,
    split_lines,
    training_tokens,
)

FORMATS = [TextFormat("reversible"), TextFormat("spaces")]
NASTY = st.text(st.sampled_from(list("ab(,. \n\t\r⇹\u2028\x85\xa0\x00◇é")), max_size=40)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.tokenization)
@given(text=st.one_of(NASTY, st.text(max_size=40)))
def test_offsets_and_characters_cover_any_text(fmt: TextFormat, text: str) -> None:
    reading = read(split_lines(text), fmt)
    assert reading.text_chars == len(text)
    assert reading.text_bytes == len(text.encode())
    assert reading.tokens.count(EOS) == text.count("\n")
    place = 0
    for i, surface in enumerate(reading.surfaces):
        start, end = reading.start[i], reading.end[i]
        assert text[start:end] == surface
        assert text[place:start].strip(" ") == "", "only spaces stand between tokens"
        place = end
    assert text[place:].strip(" ") == ""
    unowned = 0 if len(reading) else len(text)
    assert reading.n_chars.sum() + unowned == len(text)
    if fmt.tokenization == "reversible":
        assert (reading.layout_nats == 0).all()
        lines = "".join("\n" if t == EOS else f" {t}" for t in reading.tokens).split("\n")
        rebuilt = [
            "".join(a + b for a, b in join_tokens(line.split(" ")[1:], fmt)) for line in lines
        ]
        assert "\n".join(rebuilt) == text, "the tokens determine the text"


def test_a_word_owns_the_white_space_after_it() -> None:
    reading = read([" a  bc \n", " \n", "d"], TextFormat("spaces"))
    assert reading.tokens == ["a", "bc", EOS, EOS, "d"]
    assert reading.n_chars.tolist() == [4, 3, 1, 2, 1]
    assert reading.line.tolist() == [0, 0, 0, 1, 2]


def test_blanks_at_the_very_end_belong_to_the_last_token() -> None:
    reading = read(["a\n", "   "], TextFormat("spaces"))
    assert reading.n_chars.tolist() == [1, 4]
    assert reading.layout_nats[1] > 0


def test_lines_end_at_line_feeds_only() -> None:
    text = "a\u2028b\x85c\x0bd\re\x1cf"
    assert split_lines(text) == [text]
    assert line_tokens("a\u2028b c", TextFormat("spaces")) == ["a\u2028b", "c"]


def test_unk_is_special_only_where_it_is_declared() -> None:
    spaces = TextFormat("spaces", unk="<unk>")
    assert training_tokens("a <unk> x<unk>", spaces) == ["a", "", "x<unk>"]
    assert line_tokens("a <unk>", spaces) == ["a", "<unk>"]
    assert training_tokens("a <unk>", TextFormat("spaces")) == ["a", "<unk>"]
    natural = TextFormat(unk="<unk>")
    assert training_tokens("the <unk>-ed <unk>.", natural) == ["the", "", "⇹-⇹", "ed", "", "⇹."]


def plain_training_tokens(text: str, fmt: TextFormat) -> list[str]:
    """Line by line, as the definition says."""
    tokens: list[str] = []
    for line in split_lines(text):
        words = line_tokens(line.removesuffix("\n"), fmt)
        tokens += ["" if fmt.unk and word == fmt.unk else word for word in words]
        tokens += [EOS] * line.endswith("\n")
    return tokens


@pytest.mark.parametrize("fmt", [*FORMATS, TextFormat("spaces", unk="a")], ids=str)
@given(text=st.one_of(NASTY, st.text(max_size=40)))
def test_a_block_of_lines_has_the_tokens_of_its_lines(fmt: TextFormat, text: str) -> None:
    assert training_tokens(text, fmt) == plain_training_tokens(text, fmt)


def test_layout_code_is_a_distribution_that_learns() -> None:
    code = LayoutCode()
    for extra in (0, 0, 3, 0, 1):
        code.nats("between", extra)
    total = 0.0
    for extra in range(5000):
        fresh = LayoutCode()
        for seen in (0, 0, 3, 0, 1):
            fresh.nats("between", seen)
        total += math.exp(-fresh.nats("between", extra))
    assert 0.9995 < total < 1, "what is missing is the mass of runs of more than 5000 spaces"
    assert code.nats("between", 0) < code.nats("before", 0)


def test_wikitext_articles_begin_at_closed_level_one_headings() -> None:
    lines = [" ", " = One = ", " ", " = not between blanks = ", " x ", " ", " = = Two = = ", " ",
             " = Three = ", " "]  # fmt: skip
    found, rule = articles(lines, "wikitext")
    assert found.tolist() == [0] * 8 + [1] * 2 and rule == "wikitext"


def test_blank_line_articles_fall_back_to_runs_of_lines() -> None:
    many = ["x", ""] * 25
    found, rule = articles(many, "blank-line")
    assert rule == "blank-line" and found.tolist() == list(np.repeat(range(25), 2))
    found, rule = articles(["x"] * 120, "blank-line")
    assert rule == "runs of 50 lines" and np.bincount(found).tolist() == [50, 50, 20]
    assert articles(["x"] * 3, "line")[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "fields", [{"tokenization": "words"}, {"articles": "page"}, {"unk": "< >"}]
)
def test_nonsense_formats_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        TextFormat(**fields)  # type: ignore[arg-type]
