"""One page about one run: it tells what the run's files say, and no word of any text is markup."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spellonce
from spellonce import configuration, recipes, run_report
from spellonce.markup import curve, tag, ticks
from spellonce.run_page import Excerpt, Near, NovelWord, RunReport, Surprise, Words, page
from spellonce.runs import RunFolder

from .conftest import TINY, call, make_text, snapshot

ACTIVE = {"script", "img", "iframe", "link", "object", "embed", "form", "a", "base", "use"}


class Reader(HTMLParser):
    """What a browser would make of a page: elements, properly nested, and text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.marks: list[tuple[str, list[str]]] = []
        self.words: list[str] = []
        self.heads: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ACTIVE
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.marks.append((tag, [name for name, _ in attrs]))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)
        if self._open and self._open[-1] == "h2":
            self.heads.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def read_page(path: Path) -> Reader:
    source = path.read_text("utf-8")
    for outside in ("http://", "https://", "url(", "@import", "<script", "<link", " src="):
        assert outside not in source
    return Reader(source)


# --- the page -----------------------------------------------------------------------------------


def report_of(word: str) -> RunReport:
    """A report in which every string is the same one."""
    row = {"start": 0, "end": len(word), "bits": 1.0, "bits_lexeme": 0.5, "bits_spelling": 0.5,
           "novel": True}  # fmt: skip
    excerpt = Excerpt(word, [row])
    figures: dict[str, Any] = {
        "bpc": 1.5, "bpc_lm": 1.0, "bpc_spell": 0.5, "bpc_strict": 1.6, "bpb": 1.4, "bits": 10.0,
        "n_tokens": 9, "n_novel": 1, "n_chars": 9, "n_articles": 1, "signature": word,
        "bins": [{"lo": 0, "hi": 1, "tokens": 1, "chars": 3, "bpc": None}],
    }  # fmt: skip
    novel = [NovelWord(word, 2, 9.0, 8.0)]
    words = Words(
        9, False, [(None, 0.5)], excerpt, [Surprise(word, 9.0, excerpt)],
        [Surprise(word, 9.0, excerpt)], novel, novel, [(word, 1)],
    )  # fmt: skip
    return RunReport(
        name=word, recipe=word, about=word, split=word, bpc={word: 1.5}, facts=[(word, word)],
        figures=figures, adaptive=[{**figures, "adaptive": {word: True}}],
        tried=[{"what": word, "bpc": 1.0}], log=[{"step": 1, "train_bpc": 2.0}], words=words,
        spelled=[(word, [word])], is_conditioned=True,
        near=[Near(word, True, [(word, 0.5)]), Near(word, False, [(word, 0.5)])],
        ranks=[[1, 2, 3, 4]], full_rank=5, settings=[(word, word)], changed=[word],
        versions={word: word}, checksums={word: word}, command=word,
    )  # fmt: skip


PLAIN = Reader(page(report_of("word")))
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style><b>", "&lt;", "",
    "--></title><svg/onload=alert(1)>", "' onclick='", "\x00\x1b\ud800\ufffe", "ש<i>ל",
]  # fmt: skip


@pytest.mark.parametrize("word", HOSTILE, ids=ascii)
def test_hostile_words_are_words(word: str) -> None:
    assert Reader(page(report_of(word))).marks == PLAIN.marks


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=30), st.text("<>&\"'/=;- scriptonlad\n", max_size=30)))
def test_no_word_changes_the_markup(word: str) -> None:
    made = page(report_of(word))
    made.encode("utf-8")
    found = Reader(made)
    assert found.marks == PLAIN.marks
    assert found.text.count(Reader(tag("p", word)).text) >= 30


@settings(max_examples=100)
@given(
    st.floats(-1e6, 1e6, allow_subnormal=False), st.floats(1e-3, 1e9), st.integers(2, 9)
)  # fmt: skip
def test_ticks_are_few_and_inside(low: float, spread: float, most: int) -> None:
    high = low + spread
    found = ticks(low, high, most)
    assert len(found) <= most + 1
    assert all(low - 1e-6 * spread <= t <= high + 1e-6 * spread for t in found)
    assert found == sorted(set(found))


def test_a_curve_has_every_point() -> None:
    log: list[dict[str, Any]] = [
        {"step": n, "train_bpc": 5 / n, "learning_rate": 0.1 / n} for n in range(1, 31)
    ]
    log += [{"step": 30, "valid_bpc": 1.0, "final": True}, {"step": 31, "train_bpc": float("nan")}]
    drawn = curve(log)
    assert drawn is not None and "nan" not in drawn
    assert drawn.count("<circle") == 1 and drawn.count("<polyline") == 2
    line = drawn.partition('class="train"')[0].rpartition('points="')[2]
    assert len(line.rstrip('" ').split()) == 30
    assert curve([]) is None and curve([{"step": 3, "valid_bpc": 1.0}]) is None
    assert curve([{"step": 1, "train_bpc": 2.0}]) is not None, "one point is a curve"
    long = curve([{"step": n, "train_bpc": 2.0} for n in range(1, 10_001)])
    assert long is not None and len(long) < 12_000


# --- runs ---------------------------------------------------------------------------------------


def test_the_page_tells_what_the_files_say(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    said = call("report", tiny_run, "--out", out).ok()
    assert said == f"{out.stat().st_size:,} bytes: {out}\n"
    found = read_page(out)
    assert found.heads == [
        "Training", "Where the bits go", "How valid begins", "The most surprising words",
        "Novel words", "Made-up words", "Neighbours", "Effective ranks", "Settings",
        "To make it again",
    ]  # fmt: skip
    result = json.loads((tiny_run / "result.json").read_text())
    figures = spellonce.evaluate(tiny_run)
    for told in (
        f"{result['valid_bpc']:.3f}bits per character on valid", f"{figures['bpc_strict']:.4f}",
        f"{figures['bpc_lm']:.4f}", f"{figures['bpb']:.4f}", figures["signature"],
        f"all {figures['n_tokens']:,} tokens of valid", f"({figures['n_novel']:,} novel)",
        f"{result['tokens']:,} tokens", "data.vocab_size60", "full-small",
    ):  # fmt: skip
        assert told in found.text
    assert str(tiny_run.parent) not in out.read_text("utf-8"), "no paths of somebody's disk"


def test_the_same_run_gives_the_same_bytes(tiny_run: Path, tmp_path: Path) -> None:
    call("report", tiny_run, "--out", tmp_path / "a.html").ok()
    path = spellonce.report(tiny_run, tmp_path / "b.html")
    assert path == tmp_path / "b.html"
    assert path.read_bytes() == (tmp_path / "a.html").read_bytes()


def test_the_test_split_is_told_when_it_was_evaluated(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    shutil.rmtree(run / "evaluations")
    told = "bits per character on test"
    made = [spellonce.report(run, tmp_path / f"{n}.html", split=split)
            for n, split in enumerate(("valid", "test", "valid"))]  # fmt: skip
    assert [told in read_page(path).text for path in made] == [False, True, True]
    assert "How test begins" in read_page(made[1]).heads


def test_static_beside_adaptive(tuned_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tuned_run, run)
    cached = spellonce.evaluate(run, cache=True)
    found = read_page(spellonce.report(run, tmp_path / "a.html"))
    assert "Learning while it reads" in found.heads
    assert f"cache{cached['bpc']:.3f}" in found.text and "cache and growth" in found.text
    assert f"static{cached['static']['bpc']:.3f}" in found.text
    assert cached["signature"] in found.text


def test_a_large_split_costs_no_more(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "N_TOKENS", 20)
    found = read_page(spellonce.report(tiny_run, tmp_path / "a.html"))
    n_tokens = spellonce.evaluate(tiny_run)["n_tokens"]
    assert f"the first 20 of the {n_tokens} tokens of valid" in found.text
    assert "in the first 20 tokens" in found.text


def tiny_settings(recipe: str) -> list[str]:
    """Those of `TINY` that a recipe has."""
    fields = recipes.get(recipe).fields()
    return [
        setting
        for setting in TINY
        for name in [setting.partition("=")[0].rpartition(".")]
        if any(field == name[2] and name[0] in ("", part) for part, field in fields)
    ]


LEXEMES = {"Made-up words", "Neighbours"}


@pytest.mark.parametrize(
    ("recipe", "more", "absent"),
    [
        ("pure-char-small", [], {*LEXEMES, "Effective ranks"}),
        ("pure-bpe-small", ["merges=30"], {*LEXEMES, "Effective ranks"}),
        ("hclm-cache-small", [], {*LEXEMES, "Effective ranks"}),
        ("1gram-small", [], {"Effective ranks"}),
        ("uncond-small", [], {"Effective ranks"}),
        ("sep-reg-small", [], set()),
        ("only-reg-small", [], set()),
        ("mixed-composed-small", [], set()),
        ("full-transformer-small", ["transformer.n_embed=16", "n_heads=2", "n_feed=16"], set()),
    ],
)
def test_every_system_has_a_page(
    recipe: str, more: list[str], absent: set[str], tiny_text: Path, tmp_path: Path
) -> None:
    spellonce.train(
        tiny_text,
        tmp_path / "run",
        recipe=recipe,
        steps=2,
        settings=[*tiny_settings(recipe), *more],
    )
    found = read_page(spellonce.report(tmp_path / "run", tmp_path / "a.html"))
    assert not absent & set(found.heads)
    assert {"Where the bits go", "Novel words", "Settings"} <= set(found.heads)
    assert ("p_LM" in found.text) == ("Made-up words" in found.heads)
    assert ("sees no vector" in found.text) == (recipe in ("1gram-small", "uncond-small"))


def test_a_hostile_lexicon(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    text = make_text(60).replace("the", "<script>alert(1)</script>").replace("ing", "\"'&lt;<b>")
    for name in ("train", "valid", "test"):
        (data / f"{name}.txt").write_text(text, "utf-8")
    (data / "dataset.toml").write_text('tokenization = "spaces"\n')
    spellonce.train(data, tmp_path / "<b>run", recipe="small", steps=2, settings=TINY)
    found = read_page(spellonce.report(tmp_path / "<b>run", tmp_path / "a.html"))
    assert "<script>alert(1)</script>" in found.text and "--dataset data" in found.text


def test_the_command_makes_the_recipe_again(tiny_run: Path) -> None:
    found = run_report.gather(RunFolder(tiny_run))
    assert found.command is not None
    program, what, text, *words = shlex.split(found.command)
    options = list(zip(words[::2], words[1::2], strict=True))
    assert (program, what, text) == ("spellonce", "train", "tiny.txt")
    assert ("--steps", "30") in options and ("--out", "tiny") in options
    changes = [value for option, value in options if option == "--set"]
    assert len(changes) == len(TINY) == len(found.changed)
    made = configuration.override(recipes.get(dict(options)["--recipe"]), changes)
    assert made == configuration.from_json(RunFolder(tiny_run).read_config()["recipe"])
    unnamed = replace(made, name="mine")
    assert run_report._changes(RunFolder(tiny_run), unnamed) is None


# --- refusals -----------------------------------------------------------------------------------


def test_what_is_no_finished_run_is_refused(
    stopped_run: Path, tiny_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.html"
    call("report", stopped_run, "--out", out).refused("is not finished", 1)
    call("report", tmp_path / "nothing", "--out", out).refused("there is no run", 1)
    call("report", tmp_path, "--out", out).refused("is not a run", 1)
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "result.json").write_text("{}")
    call("report", run, "--out", out).refused("is damaged", 1)
    (run / "result.json").unlink()
    call("report", run, "--out", out).refused("is not finished", 1)
    call("report", tiny_run, "--out", out, "--split", "train").refused("valid or test", 2)
    call("report", tiny_run, "--out", tmp_path / "no" / "a.html").refused("cannot write", 1)
    call("report", tiny_run, "--out", tmp_path).refused("cannot write", 1)
    assert not out.exists()


def test_a_file_is_replaced_only_by_force(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.html").write_text("mine")
    before = snapshot(tmp_path)
    call("report", tiny_run).refused("add --force", 1)
    assert snapshot(tmp_path) == before
    said = json.loads(call("report", tiny_run, "--force", "--json").ok())
    assert said == {"run": str(tiny_run), "split": "valid", "out": "tiny.html"}
    assert "Where the bits go" in read_page(Path("tiny.html")).heads
