"""Scores by token, word, line, article: nothing is lost but what was to be left out."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spellonce
from spellonce.adaptive import Learning
from spellonce.errors import ConfigError
from spellonce.evaluation import TokenScores
from spellonce.surprisal import Items, View, page
from spellonce.text import EOS, split_lines

from .conftest import call
from .test_evaluation import make_model

TEXT = "The wug, naïve: (ba) zibbled!\n\n  A  cat's \tba\nlo ba"


def scores_of(text: str) -> TokenScores:
    return make_model("reversible").score(text)


texts = st.text("ab é.,(\n\t ☃", max_size=40)


@settings(deadline=None, max_examples=80)
@given(text=texts, by=st.sampled_from(["token", "word", "line", "article"]),
       line_ends=st.sampled_from(["row", "word"]))  # fmt: skip
def test_rows_add_up_to_the_text(text: str, by: str, line_ends: str) -> None:
    scores = scores_of(text)
    view = View(by, line_ends)  # type: ignore[arg-type]
    rows = view.rows(scores)
    assert sum(row["bits"] for row in rows) == pytest.approx(float(scores.bits.sum()))
    for row in rows:
        assert list(row) == view.columns
        assert row["bits"] == pytest.approx(row["bits_lexeme"] + row["bits_spelling"])
        assert 0 <= row["start"] < row["end"] <= len(text)
    starts = [row["start"] for row in rows]
    assert starts == sorted(starts)


@settings(deadline=None, max_examples=80)
@given(text=texts)
def test_words_are_what_stands_between_white_space(text: str) -> None:
    rows = View("word", "skip").rows(scores_of(text))
    expected = [match.span() for match in re.finditer(r"\S+", text)]
    found = [(row["start"], row["end"]) for row in rows]
    if not text.endswith("\n") and not text.rpartition("\n")[2].strip():
        expected += found[len(expected) :]  # white space that ends the text without a word
    assert found == expected


@settings(deadline=None, max_examples=80)
@given(text=texts, by=st.sampled_from(["token", "word"]), ends=st.sampled_from(["row", "word"]))
def test_what_is_skipped_changes_nothing_else(text: str, by: str, ends: str) -> None:
    """Indices and bits of the rows that stay are those of all rows; tokens and lines agree."""
    scores = scores_of(text)
    every = View(by, ends).rows(scores)  # type: ignore[arg-type]
    some = View(by, ends, "skip").rows(scores)  # type: ignore[arg-type]
    assert all(row in every for row in some)
    by_line = View("line", ends, "skip").rows(scores)  # type: ignore[arg-type]
    assert sum(r["bits"] for r in some) == pytest.approx(sum(r["bits"] for r in by_line))
    for line in {row["line"] for row in every}:
        indices = [row["index"] for row in every if row["line"] == line]
        assert indices == list(range(len(indices)))


def test_white_space_at_line_ends_counts_to_the_line_end() -> None:
    scores = scores_of("ab ba\r\na  b\n  a\n")
    rows = View("word").rows(scores)
    assert [row["token"] for row in rows] == ["ab", "ba", "\\n", "a", "b", "\\n", "a", "\\n"]
    plain = {row["start"]: row["bits"] for row in View().rows(scores)}
    assert rows[1]["bits"] == pytest.approx(plain[3])
    assert rows[2]["bits"] == pytest.approx(plain[5] + plain[6])
    assert (rows[6]["start"], rows[6]["end"]) == (14, 15)


def test_tokens_are_those_of_the_library() -> None:
    scores = scores_of(TEXT)
    for row, expected in zip(View().rows(scores), scores.rows(), strict=True):
        assert row == pytest.approx(expected)


def test_lines_and_articles_are_counted() -> None:
    scores = scores_of(TEXT)
    rows = View("line").rows(scores)
    assert [row["line"] for row in rows] == [0, 1, 2, 3]
    assert sum(row["chars"] for row in rows) == len(TEXT)
    assert rows[1]["tokens"] == 1 and rows[1]["bpc"] == rows[1]["bits"]
    assert rows[0]["novel"] == int(scores.is_novel[scores.line == 0].sum())
    whole = View("article").rows(scores)
    assert len(whole) == 1 and whole[0]["tokens"] == len(scores)


def test_what_is_left_out() -> None:
    scores = scores_of(TEXT)
    ends = [i for i, token in enumerate(scores.tokens) if token == EOS]
    rows = View(line_ends="skip").rows(scores)
    assert len(rows) == len(scores) - len(ends)
    words = View("word", first_word="skip").rows(scores)
    tokens = [row["token"] for row in words]
    assert "The" not in tokens and "lo" not in tokens and "wug," in tokens
    assert [row["line"] for row in words if row["token"] == "\\n"] == [0, 1, 2]
    joined = View("word", "word").rows(scores)
    last = next(row for row in joined if row["token"] == "zibbled!")
    plain = [row for row in View("word").rows(scores) if row["line"] == 0]
    assert last["bits"] == pytest.approx(plain[-1]["bits"] + plain[-2]["bits"])
    assert sum(row["token"] == "\\n" for row in joined) == 1, "an empty line has only its end"
    for wrong in ({"by": "letter"}, {"line_ends": "x"}, {"first_word": "x"}):
        with pytest.raises(ConfigError, match="must be"):
            View(**wrong)  # type: ignore[arg-type]


# --- lines apart, contexts ----------------------------------------------------------------------


def test_lines_apart_are_texts_of_their_own() -> None:
    model = make_model("reversible")
    text = "ab ba\na b, a\n\nbb"
    apart = model.score_texts([text], apart=True)[0]
    assert apart.tokens == model.score(text).tokens
    for name in ("start", "end", "line", "n_chars"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(model.score(text), name))
    expected = [
        bits for line in ("ab ba\n", "a b, a\n", "\n", "bb") for bits in model.score(line).bits
    ]
    np.testing.assert_allclose(apart.bits, expected, rtol=1e-4)
    assert apart.text_chars == len(text) and apart.text_bytes == len(text.encode())
    assert apart.article.tolist() == [0] * 3 + [1] * 5 + [2] + [3]


@pytest.mark.parametrize("text", ["ab ba\nb é", " ab ba\nb é"])
@pytest.mark.parametrize("context", ["a bb", "a bb ", "ab\n", "ab\na "])
def test_a_context_is_read_and_not_scored(context: str, text: str) -> None:
    if context.endswith(" ") and text.startswith(" "):
        return
    model = make_model("reversible")
    touching = not context[-1].isspace() and not text[0].isspace()
    whole = model.score(context + (" " if touching else "") + text)
    found = model.score_texts([text], context=context)[0]
    n = len(found)
    assert found.tokens == whole.tokens[-n:] and n >= 5
    np.testing.assert_allclose(found.bits, whole.bits[-n:], rtol=1e-4)
    assert [text[a:b] for a, b in zip(found.start, found.end, strict=True)] == found.tokens
    assert found.line.tolist() == [text[:a].count("\n") for a in found.start.tolist()]
    assert (found.text_chars, found.text_bytes) == (len(text), len(text.encode()))


def test_spellings_add_up_character_by_character() -> None:
    model = make_model("reversible")
    text = "ab bab\na é, bbbb"
    for context in ("", "ba a"):
        for apart in (False, True):
            scores = model.score_texts([text], apart=apart, context=context)[0]
            spelled = model.spelled_bits(text, Items(apart, context))
            assert sorted(spelled) == np.flatnonzero(scores.is_novel).tolist()
            for i, bits in spelled.items():
                expected = scores.nats_spelling[i] / math.log(2)
                assert sum(b for _, b in bits) == pytest.approx(expected, rel=1e-4)
                assert scores.tokens[i] in "".join(char for char, _ in bits)


# --- pages --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=40), name=st.text(max_size=10))
def test_any_text_is_a_page(text: str, name: str) -> None:
    made = page([(name, text, scores_of(text))])
    made.encode("utf-8")
    inside = made[made.index("<body>") :]
    assert inside.count("<span") == inside.count("</span>")
    assert "<script" not in made and "http" not in re.sub(r">[^<]*<", "><", made)
    allowed = {"body", "p", "span", "h1", "div", "html"}
    assert set(re.findall(r"</?([a-z0-9]+)", inside)) <= allowed


def test_a_page_says_what_a_word_costs() -> None:
    made = page([("a.txt", "ab <b>bab</b>\n", scores_of("ab <b>bab</b>\n"))])
    assert "&lt;" in made and "<b>" not in made and 'class="novel"' in made
    assert "to spell it" in made and "end of the line" in made


# --- the command line ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
@given(text=st.text("ab the.,\n é", min_size=1, max_size=40))
def test_rows_of_the_command_add_up_to_eval(tiny_run: Path, text: str) -> None:
    model = spellonce.load(tiny_run)
    out = call("score", "-m", tiny_run, "--by", "word", "--format", "jsonl", stdin=text.encode())
    rows = [json.loads(line) for line in out.ok().splitlines()]
    expected = model.evaluate(split_lines(text))["bits"]
    assert sum(row["bits"] for row in rows) == pytest.approx(expected, rel=1e-6)


def test_score_in_all_its_forms(tiny_run: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("The ba ke, lo.\nWug!\n")
    b.write_text("An item.\n")
    header, *rows = call("score", "-m", tiny_run, "--by", "line", a, b).ok().splitlines()
    assert header.split("\t")[:3] == ["line", "tokens", "chars"] and len(rows) == 3
    assert rows[2].endswith(str(b))
    made = call("score", "-m", tiny_run, "--format", "html", a, b).ok()
    assert made.startswith("<!doctype html>") and made.count("<h1>") == 2
    options = ["--apart", "--context", "The", "--line-ends", "skip", "--first-word", "skip"]
    found = call("score", "-m", tiny_run, *options, a).ok().splitlines()[1:]
    assert [row.split("\t")[2] for row in found] == ["ba", "ke", ",", "lo", "."]
    spelled = call("score", "-m", tiny_run, "--characters", a).ok().splitlines()
    assert spelled[0].endswith("\tcharacters")
    wug = next(row for row in spelled if "\tWug\t" in row)
    assert re.search(r"\tW:\d+\.\d{3} u:\d+\.\d{3} g:\d+\.\d{3} :\d+\.\d{3}$", wug), wug
    skipped = call("score", "-m", tiny_run, "--characters", "--line-ends", "skip", a).ok()
    assert (
        wug.split("\t")[-1]
        == next(r for r in skipped.splitlines() if "\tWug\t" in r).split("\t")[-1]
    )
    call("score", "-m", tiny_run, "--format", "html", "--by", "word", a).refused("every token", 2)
    call("score", "-m", tiny_run, "--characters", "--by", "line", a).refused("--characters", 2)
    call("score", "-m", tiny_run, "--by", "letter", a).refused("--by must be", 2)
    call("score", "-m", tiny_run, "--format", "xml", a).refused("--format must be", 2)
    assert call("score", "-m", tiny_run, stdin=b"").ok().startswith("line\tindex\ttoken")


def test_entropy_and_rank(tiny_run: Path) -> None:
    text = b"The ba ke.\nWug ba.\n"
    plain = call("score", "-m", tiny_run, stdin=text).ok().splitlines()
    for options in ([], ["--apart", "--context", "The"], ["--line-ends", "skip"]):
        header, *rows = (
            call("score", "-m", tiny_run, "--entropy", *options, stdin=text).ok().splitlines()
        )
        assert header.endswith("\tnovel\tentropy\trank")
        assert len(rows) == len(plain) - 1 - 2 * ("skip" in options)
        for row in rows:
            *_, entropy, rank = row.split("\t")
            assert 0 < float(entropy) < 7 and 1 <= int(rank) <= 70
    call("score", "-m", tiny_run, "--entropy", "--by", "word", stdin=text).refused("--entropy", 2)


def test_a_table_of_pandas(tiny_run: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = spellonce.load(tiny_run).score("The ba.\n").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == View().columns and len(table) == 4


def test_cached_scores_may_be_apart_too(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not been tuned"):
        spellonce.load(tiny_run).score_texts(["a\nb\n"], Learning(cache=True), apart=True)


def test_the_end_of_a_word_may_be_its_own(tiny_run: Path) -> None:
    """What moves is −log p that nothing is joined to the word; the sum of each line stays."""
    model = spellonce.load(tiny_run)
    text = "The wug, ba ke.\nba (lo) ke\n"
    (plain,) = model.surprisal([text], View("word"))
    (own,) = model.surprisal([text], View("word", word_ends="own"))
    (ends,) = [model.word_ends(text)]
    assert " ".join(model.tokens(text)) == "The wug ⇹, ba ke ⇹. \n ba (⇹ lo ⇹) ke \n"
    assert (ends > 0).tolist() == [c == "|" for c in "|.||.|.|..||."], "| where a word ends"
    for line in (0, 1):
        sums = [sum(r["bits"] for r in rows if r["line"] == line) for rows in (plain, own)]
        assert sums[0] == pytest.approx(sums[1])
    assert all(row["bits"] > 0 for row in own)
    stepper = model.stepper()
    stepper.take("The")
    every = stepper.outlook().every()
    joined = sum(p for w, p in zip(model.lexicon.types, every, strict=False) if w.startswith("⇹"))
    symbol = model.lexicon.alphabet.encode("⇹")[0]
    joined += every[0] * stepper.outlook().spell().probabilities()[symbol]
    assert ends[0] == pytest.approx(-math.log(1 - joined))
    expected = own[0]["bits"] - ends[0] / math.log(2)
    assert plain[0]["bits"] == pytest.approx(expected)
    with pytest.raises(ConfigError, match="--by word"):
        View(word_ends="own")


def test_each_line_may_have_its_own_context(tiny_run: Path) -> None:
    model = spellonce.load(tiny_run)
    text = "The ba\tke lo.\nThe wug,\tba\n\tran.\n"
    (found,) = model.score_texts([text], pairs=True)
    rows = list(found.rows())
    assert [text[row["start"] : row["end"]] for row in rows] == [
        "ke", "lo", ".", "\n", "ba", "\n", "ran", ".", "\n"
    ]  # fmt: skip
    assert [row["line"] for row in rows] == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    whole = model.score("The ba ke lo.\n")
    np.testing.assert_allclose(found.bits[:4], whole.bits[2:], rtol=1e-5)
    np.testing.assert_allclose(found.bits[6:], model.score("ran.\n").bits, rtol=1e-5)
    told = call("score", "-m", tiny_run, "--pairs", "--by", "line", stdin=text.encode()).ok()
    assert len(told.splitlines()) == 4
    call("score", "-m", tiny_run, "--pairs", stdin=b"no tab\n").refused("line 1 has no tab", 2)
    call("score", "-m", tiny_run, "--pairs", "--context", "x", stdin=b"a\tb\n").refused("own", 2)
