"""Scores as people want to read them: by token, word, line or article; TSV, JSONL, HTML.

What stands here only adds up, leaves out or dresses what `TokenScores` has. No torch here.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError
from spellonce.evaluation import TokenScores, escape_token
from spellonce.text import EOS, split_lines

By = Literal["token", "word", "line", "article"]
LineEnds = Literal["row", "word", "skip"]
FirstWord = Literal["score", "skip"]
WordEnds = Literal["next", "own"]
Form = Literal["tsv", "jsonl", "html"]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class View:
    """What of the scores is to be seen."""

    by: By = "token"
    """What a row is. A `word` is what stands between white space: a token and its punctuation."""
    line_ends: LineEnds = "row"
    """A line end has a row of its own, or counts to the word before it, or is left out."""
    first_word: FirstWord = "score"
    """The first word of a line, which has no context in it, has rows, or is left out."""
    word_ends: WordEnds = "next"
    """That a word ends, and nothing is joined to it, is a part of the next word's bits, or of its
    own (Pimentel & Meister 2024). The sum over a line is the same."""

    def __post_init__(self) -> None:
        kinds = (
            ("by", By), ("line_ends", LineEnds), ("first_word", FirstWord), ("word_ends", WordEnds),
        )  # fmt: skip
        for name, kind in kinds:
            if getattr(self, name) not in get_args(kind):
                choices = " or ".join(get_args(kind))
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must be {choices}, not {getattr(self, name)!r}")
        if self.word_ends == "own" and self.by != "word":
            raise ConfigError("--word-ends own is about words: --by word")

    @property
    def columns(self) -> list[str]:
        """Of its rows."""
        head = ["line", "index", "token", "start", "end"]
        if self.by in ("line", "article"):
            head = [self.by, "tokens", "chars", "start", "end"]
        tail = ["bpc", "novel"] if self.by in ("line", "article") else ["novel"]
        return [*head, "bits", "bits_lexeme", "bits_spelling", *tail]

    def rows(self, scores: TokenScores) -> Rows:
        """The rows. Without anything left out, their bits add up to those of the text."""
        return list(self.each_row(scores))

    def each_row(self, scores: TokenScores) -> Iterator[dict[str, Any]]:
        """The same, one after another."""
        if self == View():
            return scores.rows()
        words, ends = _words(scores)
        if self.word_ends == "own":
            scores = _with_own_ends(scores, words)
        firsts = _first_words(scores, words, ends)
        if self.line_ends == "word":
            words = _joined(scores, words, ends)
        group = words
        if self.by == "token":
            ends = np.array([token == EOS for token in scores.tokens], dtype=bool)
            group = np.arange(len(scores))
            if self.line_ends == "word":
                group = _joined(scores, group, ends)
        index = _indices(scores, group)
        kept = np.ones(len(scores), dtype=bool)
        if self.first_word == "skip":
            kept &= words != firsts
        if self.line_ends == "skip":
            kept &= ~ends
        if self.by in ("line", "article"):
            group = scores.line if self.by == "line" else scores.article
        return _sums(scores, group, index, kept, self.by)


@dataclass(frozen=True)
class Part:
    """A part of a text that is scored on its own."""

    before: str
    """What is read before it, and has no rows."""
    text: str
    skipped: int = 0
    """Characters of the text in front of it that are no part of anything scored."""


@dataclass(frozen=True)
class Items:
    """What of a text is scored on its own."""

    apart: bool = False
    """Each line, as in a list of items; not: all of it."""
    context: str = ""
    """What comes before each; a space is put behind it if there is none."""
    pairs: bool = False
    """Each line is a context of its own, a tab, and what is scored after it."""

    def __post_init__(self) -> None:
        if self.pairs and self.context:
            raise ConfigError("--pairs have contexts of their own: leave --context out")

    def parts(self, text: str) -> list[Part]:
        """The parts of a text.

        >>> found = Items(apart=True, context="so").parts("one\\n two")
        >>> [part.before + part.text for part in found]
        ['so one\\n', 'so two']
        >>> Items(pairs=True).parts("The cat\\tsat.\\n")
        [Part(before='The cat ', text='sat.\\n', skipped=8)]
        """
        if not self.pairs:
            lines = split_lines(text) if self.apart and text else [text]
            return [Part(_beside(self.context, line), line) for line in lines]
        found = []
        for number, line in enumerate(split_lines(text), 1):
            context, tab, rest = line.partition("\t")
            if not tab:
                raise ConfigError(
                    f"line {number} has no tab: with --pairs each is a context, a tab, and what is "
                    "scored after it"
                )
            found.append(Part(_beside(context, rest), rest, len(context) + 1))
        return found


def _beside(context: str, text: str) -> str:
    touching = context and not context[-1].isspace() and not text[:1].isspace()
    return f"{context} " if touching else context


WHOLE = Items()


def check_form(form: str) -> Form:
    """Refuses what is no format."""
    for known in get_args(Form):
        if form == known:
            return cast(Form, known)
    raise ConfigError(f"--format must be {' or '.join(get_args(Form))}, not {form!r}")


def _words(scores: TokenScores) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(the word that each token is in, whether that is a line end).

    White space goes with the word before it, at the beginning of a line with the one behind it, and
    at its end with the line end.
    """
    group = np.zeros(len(scores), dtype=np.int64)
    ends = np.zeros(len(scores), dtype=bool)
    number = -1
    for at in np.split(np.arange(len(scores)), np.flatnonzero(np.diff(scores.line)) + 1):
        tokens = [scores.tokens[i] for i in at]
        solid = [not token.isspace() for token in tokens]
        first = solid.index(True) if any(solid) else len(solid)
        tail = len(solid) - solid[::-1].index(True) if any(solid) else 0  # white space from there
        for k, i in enumerate(at.tolist()):
            is_new = k == 0 or (solid[k] and (not solid[k - 1] or _apart(scores, i)))
            if k == first:
                is_new = k == 0  # with the white space before it
            if k == tail and tokens[-1] == EOS:
                is_new = True
            number += is_new
            group[i] = number
            ends[i] = k >= tail and tokens[-1] == EOS
    return group, ends


def _with_own_ends(scores: TokenScores, words: NDArray[np.int64]) -> TokenScores:
    """The scores with the end of each word in its own bits, and not in those of the next."""
    if scores.nats_end is None:
        raise ConfigError("these scores do not have what --word-ends own needs")
    nats = scores.nats_lexeme.copy()
    last = np.flatnonzero(np.diff(words, append=-1))  # of each word
    nats[last] += scores.nats_end[last]
    nats[last[:-1] + 1] -= scores.nats_end[last[:-1]]
    return replace(scores, nats_lexeme=nats)


def _apart(scores: TokenScores, i: int) -> bool:
    """Whether there is a space between a token and the one before it."""
    return bool(scores.start[i] > scores.end[i - 1])


def _first_words(
    scores: TokenScores, words: NDArray[np.int64], ends: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """For each token, the word that its line begins with; −1 where there is none."""
    first: dict[int, int] = {}
    for line, word, end in zip(scores.line.tolist(), words.tolist(), ends.tolist(), strict=True):
        first.setdefault(line, -1 if end else word)
    return np.array([first[line] for line in scores.line.tolist()], dtype=np.int64)


def _joined(
    scores: TokenScores, group: NDArray[np.int64], ends: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The groups with each line end in that of the word before it, if its line has one."""
    found = group.copy()
    for i in np.flatnonzero(ends).tolist():
        if i and scores.line[i - 1] == scores.line[i]:
            found[i] = found[i - 1]
    return found


def _indices(scores: TokenScores, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each token's group in its line."""
    found = np.zeros(len(scores), dtype=np.int64)
    for i in range(1, len(scores)):
        if scores.line[i] == scores.line[i - 1]:
            found[i] = found[i - 1] + (group[i] != group[i - 1])
    return found


def _sums(
    scores: TokenScores,
    group: NDArray[np.int64],
    index: NDArray[np.int64],
    kept: NDArray[np.bool_],
    by: By,
) -> Iterator[dict[str, Any]]:
    """One row for each run of tokens of the same group."""
    places = np.flatnonzero(kept)
    cuts = np.flatnonzero(np.diff(group[places])) + 1
    lexeme, spelling = scores.nats_lexeme / math.log(2), scores.nats_spelling / math.log(2)
    for at in np.split(places, cuts) if len(places) else []:
        parts = float(lexeme[at].sum()), float(spelling[at].sum())
        bits = {
            "bits": sum(parts),
            "bits_lexeme": parts[0] if scores.has_parts else None,
            "bits_spelling": parts[1] if scores.has_parts else None,
        }
        if by in ("line", "article"):
            chars = int(scores.n_chars[at].sum())
            where = scores.line if by == "line" else scores.article
            yield {
                by: int(where[at[0]]), "tokens": len(at), "chars": chars,
                "start": int(scores.start[at[0]]), "end": int(scores.end[at[-1]]), **bits,
                "bpc": sum(parts) / chars if chars else None,
                "novel": int(scores.is_novel[at].sum()),
            }  # fmt: skip
            continue
        shown = [i for i in at.tolist() if not scores.tokens[i].isspace()] or at.tolist()[-1:]
        yield {
            "line": int(scores.line[at[0]]), "index": int(index[at[0]]),
            "token": escape_token("".join(scores.tokens[i] for i in shown)),
            "start": int(scores.start[shown[0]]), "end": int(scores.end[shown[-1]]), **bits,
            "novel": bool(scores.is_novel[shown].any()),
        }  # fmt: skip


# --- TSV and JSONL ------------------------------------------------------------------------------


def lines(
    rows: Iterable[dict[str, Any]], form: Form, columns: Sequence[str], *, header: bool
) -> Iterator[str]:
    """Rows as lines of TSV, with a head if wanted, or of JSON."""
    if header and form == "tsv":
        yield "\t".join(columns) + "\n"
    for row in rows:
        if form == "jsonl":
            yield json.dumps(row, ensure_ascii=False) + "\n"
        else:
            yield "\t".join(_field(row[name]) for name in columns) + "\n"


def _field(value: Any) -> str:
    """
    >>> [_field(value) for value in (True, 0.5, 3, None, [["a", 1.25]])]
    ['1', '0.500000000', '3', '', 'a:1.250']
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.9f}"
    if isinstance(value, list):  # characters and their bits
        return " ".join(f"{escape_token(char)}:{bits:.3f}" for char, bits in value)
    return "" if value is None else str(value)


# --- HTML ---------------------------------------------------------------------------------------

SHADES = """
:root { --hue: 213, 94, 0; }
@media (prefers-color-scheme: dark) { :root { --hue: 240, 130, 60; } }
div.text { white-space: pre-wrap; overflow-wrap: anywhere; }
span[data-bits] { border-radius: .2em; padding: .12em .06em; unicode-bidi: isolate;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
span.novel { border-bottom: 2px dotted rgb(var(--hue)); }
span.key { padding: .1em .6em; border-radius: .2em; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
"""
"""CSS of what `shaded` and `key` make."""
_CSS = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --dim: #666; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --dim: #a0a0a0; }
}
body { margin: 2rem auto; max-width: 50rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 1.05rem/1.9 Georgia, serif; }
h1 { font: 600 1rem/1.4 system-ui, sans-serif; margin: 2rem 0 .3rem; overflow-wrap: anywhere; }
p.sum, p.key { font: .85rem/1.5 system-ui, sans-serif; color: var(--dim); margin: 0 0 1rem; }
"""
_FULL = 20.0
"""Bits at which the shade is full."""


def page(texts: Sequence[tuple[str, str, TokenScores]]) -> str:
    """A page that needs nothing else: (name, text, its scores) of each text, shaded by bits."""
    parts = [_text(*one) for one in texts]
    return (
        '<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Bits of every word</title>\n<style>{_CSS}{SHADES}</style>\n</head>\n<body>\n"
        f'<p class="key">{key()}</p>\n{"".join(parts)}</body>\n</html>\n'
    )


def key() -> str:
    """What the shades mean."""
    shades = " ".join(
        f'<span class="key" style="{_shade(bits)}">{bits}</span>' for bits in (0, 5, 10, 15, 20)
    )
    return (
        f"Bits of each word: {shades} and more. "
        "Dotted: a word that the model does not know. Point at a word for its figures."
    )


def _text(name: str, text: str, scores: TokenScores) -> str:
    bits = float(scores.bits.sum())
    chars = max(scores.text_chars, 1)
    rows = View().rows(scores)
    first, last = (rows[0]["start"], rows[-1]["end"]) if rows else (0, 0)
    return (
        f"<h1>{escape(name)}</h1>\n"
        f'<p class="sum">{len(scores):,} tokens, {scores.text_chars:,} characters, '
        f"{bits:,.1f} bits: {bits / chars:.3f} bits per character; "
        f"{int(scores.is_novel.sum()):,} novel words.</p>\n"
        f'<div class="text">{escape(text[:first])}{shaded(text, rows)}{escape(text[last:])}</div>\n'
    )


def shaded(text: str, rows: Rows) -> str:
    """The part of a text from the first to the last of some rows, one a token, shaded by bits."""
    out, place = [], rows[0]["start"] if rows else 0
    for row in rows:
        out.append(escape(text[place : row["start"]]))
        surface = text[row["start"] : row["end"]]
        told = f"{row['bits']:.2f} bits"
        if row["bits_spelling"]:
            told += (
                f": {row['bits_lexeme']:.2f} to announce it, {row['bits_spelling']:.2f} to spell it"
            )
        if surface == EOS:
            told = f"end of the line, {told}"
        shown = "⏎\n" if surface == EOS else escape(surface)
        novel = ' class="novel"' if row["novel"] else ""
        out.append(
            f'<span{novel} data-bits="{row["bits"]:.3f}" title="{told}" '
            f'style="{_shade(row["bits"])}">{shown}</span>'
        )
        place = row["end"]
    return "".join(out)


def _shade(bits: float) -> str:
    return f"background:rgba(var(--hue),{min(max(bits, 0.0) / _FULL, 1.0) * 0.85:.2f})"


def escape(text: str) -> str:
    """Text that a page shows as it is; what cannot stand in one is shown by a sign for it.

    >>> escape("<b>&\\0")
    '&lt;b&gt;&amp;␀'
    """
    shown = "".join(
        chr(0x2400 + ord(c)) if c < " " and c not in "\t\n" else "\ufffd" if _cannot_be(c) else c
        for c in text
    )
    return html.escape(shown)


def _cannot_be(char: str) -> bool:
    code = ord(char)
    return 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE
