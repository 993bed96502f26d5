"""One page about one run: plain data → HTML that needs nothing else.

Markup is made by `tag`, and that of a text shaded by its bits by `surprisal.shaded`; both escape
whatever is not markup already, so a word can be any string. Curves are inline SVG. No script, no
outside request: the page's own policy forbids both.

No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spellonce.markup import Html, curve, folded, points, table, tag
from spellonce.surprisal import SHADES, Rows, key, shaded


@dataclass(frozen=True)
class Excerpt:
    """Some tokens in a row, in their text."""

    text: str
    rows: Rows
    """Those of `spellonce score`, one a token."""


@dataclass(frozen=True)
class Surprise:
    """A word that cost much, and where."""

    word: str
    bits: float
    place: Excerpt


@dataclass(frozen=True)
class NovelWord:
    """A word that is no lexeme."""

    word: str
    times: int
    bits: float
    """Mean over its occurrences."""
    bits_spelling: float | None
    """Of these, for spelling; None where a model has no such part."""

    @property
    def cost(self) -> float:
        """Bits of its spelling; all of them where these are not apart."""
        return self.bits if self.bits_spelling is None else self.bits_spelling

    @property
    def cost_each(self) -> float:
        """The same for each of its characters, its end included."""
        return self.cost / (len(self.word) + 1)


@dataclass(frozen=True)
class Words:
    """What the tokens of a split cost, or those that it begins with."""

    n_tokens: int
    is_all: bool
    """Whether these are all tokens of the split."""
    parts: list[tuple[float | None, float | None]] | None
    """bpc of p_LM and p_spell in each bin; None where a model has no such parts."""
    opening: Excerpt
    known: list[Surprise]
    novel: list[Surprise]
    cheapest: list[NovelWord]
    dearest: list[NovelWord]
    came: list[tuple[str, int]]
    """How many novel words came how often."""


@dataclass(frozen=True)
class Near:
    """The lexemes that are used most like a word."""

    word: str
    is_known: bool
    near: list[tuple[str, float]]
    """With their cosines."""


@dataclass(frozen=True)
class RunReport:
    """All that the page tells."""

    name: str
    recipe: str
    about: str
    split: str
    bpc: dict[str, float]
    """Of the splits that were evaluated."""
    facts: list[tuple[str, str]]
    figures: dict[str, Any]
    """Those of `eval` on the split."""
    adaptive: list[dict[str, Any]]
    """The same of models that learn while they read."""
    tried: list[dict[str, Any]]
    """What `tune` tried."""
    log: list[dict[str, Any]]
    words: Words
    spelled: list[tuple[str, list[str]]]
    """Lexemes, and words made up in their likeness."""
    is_conditioned: bool
    """Whether the speller sees a vector at all."""
    near: list[Near]
    ranks: list[list[int]]
    """Of each speller, of each gate."""
    full_rank: int
    settings: list[tuple[str, str]]
    changed: list[str]
    """Names of settings that are not the recipe's own."""
    versions: dict[str, str]
    checksums: dict[str, str]
    command: str | None


def page(report: RunReport) -> str:
    """The page. The same report gives the same bytes."""
    sections = [
        _head(report), _training(report), _figures(report), _adaptive(report), _text(report),
        _surprising(report), _novel(report), _spelled(report), _near(report), _ranks(report),
        _settings(report), _again(report),
    ]  # fmt: skip
    css = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    title = tag("title", f"{report.name}: {report.recipe}, {_bpc(report.figures['bpc'])} bpc")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{title}\n<style>{css}{SHADES}</style>\n</head>\n<body>\n"
        + "".join(f"{section}\n" for section in sections if section)
        + "</body>\n</html>\n"
    )


# --- sections -----------------------------------------------------------------------------------


def _section(title: str, *inside: str) -> Html:
    return tag("section", tag("h2", title), *inside)


def _note(text: str) -> Html:
    return tag("p", text, class_="note")


def _word(word: str) -> Html:
    """A word of a text, whichever way it is written."""
    return tag("bdi", word, lang="und", class_="word")


def _bpc(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _seen(row: dict[str, Any]) -> str:
    """Training counts in words.

    >>> [_seen({"lo": lo, "hi": hi}) for lo, hi in ((0, 1), (1, 100), (100, None))]
    ['never', '1–99 times', '100+ times']
    """
    if row["hi"] is None:
        return f"{row['lo']}+ times"
    return "never" if row["hi"] == 1 else f"{row['lo']}–{row['hi'] - 1} times"


def _head(report: RunReport) -> Html:
    figures = [
        tag("div", tag("strong", _bpc(bpc)), tag("span", f"bits per character on {split}"))
        for split, bpc in report.bpc.items()
    ]
    facts = [part for name, value in report.facts for part in (tag("dt", name), tag("dd", value))]
    return tag(
        "header", tag("h1", report.name),
        tag("p", tag("b", report.recipe), f": {report.about}", class_="about"),
        tag("div", *figures, class_="figures"), tag("dl", *facts),
        tag("p", tag("code", report.figures["signature"]), class_="signature"),
    )  # fmt: skip


def _training(report: RunReport) -> Html | None:
    drawn = curve(report.log)
    if drawn is None:
        return None
    rates = [y for _, y in points(report.log, "learning_rate")]
    valid = points(report.log, "valid_bpc")
    legend = [tag("span", "training", class_="train")]
    if valid:
        legend.append(tag("span", f"validation ({_bpc(valid[-1][1])} at the end)", class_="valid"))
    if rates:
        legend.append(tag("span", f"learning rate (up to {max(rates):.3g})", class_="rate"))
    return _section(
        "Training", tag("figure", drawn, tag("figcaption", *legend)),
        _note("Bits per character; less is better. Those of training are with dropout, on text "
              "that is being learned: they are no estimate of the others."),
    )  # fmt: skip


def _figures(report: RunReport) -> Html:
    figures, words = report.figures, report.words
    rows = [("bpc", "bits per character of the text as it is; a rare character counts as ◇")]
    if figures["bpc_lm"] is not None:
        rows += [
            ("bpc_lm", "of these for summoning lexemes, and for UNK"),
            ("bpc_spell", "of these for spelling novel words"),
        ]
    rows += [
        ("bpc_strict", "bits per character of a lossless coder: which ◇, all white space"),
        ("bpb", "bits per byte of UTF-8, ◇ as in bpc"),
    ]
    shown = [(tag("code", name), about, f"{figures[name]:.4f}") for name, about in rows]
    head = ["seen in training", "tokens", "characters", "bpc", "share of all bits"]
    told = [
        f"{report.split}: {figures['n_tokens']:,} tokens ({figures['n_novel']:,} novel), "
        f"{figures['n_chars']:,} characters, {figures['n_articles']:,} articles."
    ]
    if words.parts is not None:
        head += ["p_LM", "p_spell"]
        whence = "" if words.is_all else f" in the first {words.n_tokens:,} tokens"
        told.append(f"p_LM and p_spell: the two parts of the bpc of a bin{whence}.")
    bins = []
    for i, row in enumerate(figures["bins"]):
        share = (row["bpc"] or 0.0) * row["chars"] / max(figures["bits"], 1e-9)
        bins.append([_seen(row), f"{row['tokens']:,}", f"{row['chars']:,}", _bpc(row["bpc"]),
                     _bar(share)])  # fmt: skip
        bins[-1] += [] if words.parts is None else [_bpc(part) for part in words.parts[i]]
    return _section(
        "Where the bits go", table(("", "", ""), shown, left=2), table(head, bins),
        _note(" ".join(told)),
    )  # fmt: skip


def _bar(share: float) -> Html:
    told = f"{share:.0%}"
    bar = tag("i", style=f"width:{100 * min(max(share, 0.0), 1.0):.1f}%")
    return tag("span", tag("span", bar, class_="bar"), f" {told}", class_="share")


def _adaptive(report: RunReport) -> Html | None:
    if not report.adaptive and not report.tried:
        return None
    inside: list[Html] = []
    if report.adaptive:
        bins = report.figures["bins"]
        rows = [
            [mode, _bpc(figures["bpc"]), *(_bpc(row["bpc"]) for row in figures["bins"])]
            for mode, figures in [("static", report.figures), *map(_mode, report.adaptive)]
        ]
        inside.append(table(["", "bpc", *map(_seen, bins)], rows))
        for figures in report.adaptive:
            inside.append(tag("p", tag("code", figures["signature"]), class_="signature"))
    if report.tried:
        rows = [[str(row["what"]), f"{row['bpc']:.4f}"] for row in report.tried]
        inside.append(folded("what tune tried, on valid", table(["", "bpc"], rows)))
    return _section("Learning while it reads", *inside)


def _mode(figures: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a model learned while it read, in words."""
    return " and ".join(name for name, is_on in figures["adaptive"].items() if is_on), figures


def _text(report: RunReport) -> Html:
    return _section(
        f"How {report.split} begins",
        tag("p", Html(key()), class_="note"),
        _shaded(report.words.opening),
    )


def _shaded(excerpt: Excerpt) -> Html:
    return tag(
        "div", Html(shaded(excerpt.text, excerpt.rows)), class_="text", lang="und", dir="auto"
    )


def _surprising(report: RunReport) -> Html | None:
    words = report.words
    groups = [("Known words", words.known), ("Novel words", words.novel)]
    lists = [
        part
        for title, found in groups
        if found
        for part in (tag("h3", title), tag("div", *map(_surprise, found), class_="surprises"))
    ]
    if not lists:
        return None
    return _section("The most surprising words", _note(f"Of {_whence(report)}."), *lists)


def _surprise(found: Surprise) -> Html:
    told = tag("p", _word(found.word), tag("span", f" {found.bits:.1f} bits", class_="dim"))
    return tag("div", told, _shaded(found.place))


def _whence(report: RunReport) -> str:
    words = report.words
    if words.is_all:
        return f"all {words.n_tokens:,} tokens of {report.split}"
    total = report.figures["n_tokens"]
    return f"the first {words.n_tokens:,} of the {total:,} tokens of {report.split}"


def _novel(report: RunReport) -> Html | None:
    words = report.words
    if not words.cheapest:
        return None
    what = "bits" if words.cheapest[0].bits_spelling is None else "bits to spell it"
    lists = [("Cheapest", words.cheapest), ("Dearest", words.dearest)]
    columns = [
        tag("div", tag("h3", f"{name}, by character"), table(
            ["", "times", what, "a character"],
            [[_word(one.word), f"{one.times:,}", f"{one.cost:.1f}", f"{one.cost_each:.1f}"]
             for one in found]))
        for name, found in lists if found
    ]  # fmt: skip
    came = ", ".join(f"{often} {n:,}" for often, n in words.came)
    told = (
        f"In {_whence(report)}. How many words came how often: {came}. Bits are means over the "
        "times that a word came; the end of a word counts as a character."
    )
    return _section("Novel words", _note(told), tag("div", *columns, class_="columns"))


def _spelled(report: RunReport) -> Html | None:
    if not report.spelled:
        return None
    told = "Words that no one has written in the training text, drawn from p_spell(· | e(w))."
    if not report.is_conditioned:
        told = "Words drawn from p_spell. This speller sees no vector, so w has no say in them."
    rows = [(word, [_word(one) for one in words]) for word, words in report.spelled]
    return _section("Made-up words", _note(told), _lists("w", rows))


def _near(report: RunReport) -> Html | None:
    if not report.near:
        return None
    inside = []
    for is_known, title in ((True, ""), (False, "Words that are no lexemes")):
        rows = [
            (one.word, [_cosine(word, cosine) for word, cosine in one.near])
            for one in report.near
            if one.is_known == is_known
        ]
        if rows:
            inside += [*([tag("h3", title)] if title else []), _lists("", rows)]
    told = "The lexemes that are used most like a word, with the cosines of their embeddings."
    if not all(one.is_known for one in report.near):
        told += " A word that is no lexeme has the embedding that fits best how it is spelled and "
        told += "where it stands first."
    return _section("Neighbours", _note(told), *inside)


def _cosine(word: str, cosine: float) -> Html:
    return tag("span", _word(word), tag("span", f" {cosine:.2f}", class_="dim"))


def _lists(head: str, rows: Sequence[tuple[str, list[Html]]]) -> Html:
    """A word and those that belong to it, a row each."""
    cells = [[_word(word), tag("ul", *(tag("li", one) for one in words))] for word, words in rows]
    return table([head, ""], cells, left=2)


def _ranks(report: RunReport) -> Html | None:
    if not report.ranks:
        return None
    rows = [
        ["speller" if len(report.ranks) == 1 else f"speller {n + 1}", *map(str, ranks)]
        for n, ranks in enumerate(report.ranks)
    ]
    told = (
        "Of the weights through which the four gates of a speller see the vector: singular values "
        f"above a hundredth of the largest, {report.full_rank} at most."
    )
    gates = ["", "input", "forget", "cell", "output"]
    return _section("Effective ranks", _note(told), table(gates, rows))


def _settings(report: RunReport) -> Html:
    rows = [
        [tag("code", name), tag("b", value) if name in report.changed else value]
        for name, value in report.settings
    ]
    told = f"Bold: not what the recipe {report.recipe} says by itself."
    inside = [_note(told)] if report.changed else []
    return _section(
        "Settings", *inside,
        folded(f"all {len(rows)} settings", table(["", ""], rows, left=2)),
        folded("versions", table(["", ""], list(report.versions.items()), left=2)),
        folded("checksums (SHA-256)", table(
            ["", ""], [[name, tag("code", sum_)] for name, sum_ in report.checksums.items()],
            left=2)),
    )  # fmt: skip


def _again(report: RunReport) -> Html | None:
    if report.command is None:
        return None
    told = "The same text, versions and kind of machine are needed for the same weights."
    if "--budget" in report.command:
        told += " A budget is a time: how many steps fit into it depends on the machine."
    return _section("To make it again", tag("pre", tag("code", report.command)), _note(told))
