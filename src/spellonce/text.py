"""Reading text: lines → tokens with their places, exactly as the file has them.

Lines end at `\\n` only. Under `reversible` tokenization (paper, appendix E) the tokens determine
the text; under `spaces` the text is tokenised already, and the white space that its tokens do not
determine has a price of its own, which only the strict bits pay (`LayoutCode`).

No torch here.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError
from spellonce.tokenizer import pieces, tokenize_line, tokenize_lines

Tokenization = Literal["reversible", "spaces"]
Articles = Literal["wikitext", "blank-line", "line"]

EOS = "\n"
"""How a line end stands among tokens; no word contains it."""
UNSPELLED = ""
"""A training token whose spelling was taken away (`<unk>`); no word is empty."""

MIN_ARTICLES = 20
LINES_PER_BLOCK = 50


@dataclass(frozen=True)
class TextFormat:
    """How the files of a data set are to be read (`dataset.toml`)."""

    tokenization: Tokenization = "reversible"
    """`reversible`: natural text, split by our tokenizer. `spaces`: split at spaces already."""
    articles: Articles = "blank-line"
    """Where an article begins: at a WikiText heading, after a blank line, or at every line."""
    unk: str = ""
    """The string that stands for words whose spelling was removed from the training text."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("tokenization", self.tokenization, get_args(Tokenization)),
            ("articles", self.articles, get_args(Articles)),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if any(char.isspace() for char in self.unk):
            raise ConfigError(f"unk must not contain white space, got {self.unk!r}")


def line_tokens(line: str, fmt: TextFormat) -> list[str]:
    """The tokens of one line (without its line break), as the model knows them.

    >>> line_tokens("So (they say) it ends.", TextFormat())
    ['So', '(⇹', 'they', 'say', '⇹)', 'it', 'ends', '⇹.']
    """
    if fmt.tokenization == "spaces":
        return [token for token in line.split(" ") if token]
    return tokenize_line(line).split(" ") if line else []


def training_tokens(lines: str, fmt: TextFormat) -> list[str]:
    """The tokens of some lines, EOS for each line break; `UNSPELLED` for what is declared as `unk`.

    >>> training_tokens("the <unk> sat\\nup\\n", TextFormat("spaces", unk="<unk>"))
    ['the', '', 'sat', '\\n', 'up', '\\n']
    >>> training_tokens("the (<unk>) sat", TextFormat(unk="<unk>"))
    ['the', '(⇹', '', '⇹)', 'sat']
    """
    natural = fmt.tokenization == "reversible"
    has_unk = bool(fmt.unk) and fmt.unk in lines
    letter = ""
    if natural and has_unk:
        # The tokenizer would take `<unk>` apart; a letter that is not in the text holds its place.
        letter = _absent_letter(lines)
        lines = lines.replace(fmt.unk, letter)
    if natural:
        lines = tokenize_lines(lines)
    tokens = list(filter(None, lines.replace(EOS, f" {EOS} ").split(" ")))
    if not has_unk:
        return tokens
    if natural:
        return [UNSPELLED if letter in token else token for token in tokens]
    return [UNSPELLED if token == fmt.unk else token for token in tokens]


GAP = "___"
"""Stands for a word in a context."""


def text_tokens(text: str, fmt: TextFormat) -> list[str]:
    """The tokens of a text, EOS for each line break.

    >>> text_tokens("one.\\n(two", TextFormat())
    ['one', '⇹.', '\\n', '(⇹', 'two']
    """
    tokens: list[str] = []
    for line in split_lines(text):
        tokens += line_tokens(line.removesuffix(EOS), fmt)
        tokens += [EOS] * line.endswith(EOS)
    return tokens


def gap_in(context: str) -> tuple[str, str, str]:
    """What is before a gap, the gap, which may be drawn longer, and what is behind it.

    >>> gap_in("The cat ____ sat."), gap_in("no gap")
    (('The cat ', '____', ' sat.'), ('no gap', '', ''))
    """
    found = re.search(f"{GAP}_*", context)
    if found is None:
        return context, "", ""
    return context[: found.start()], found.group(), context[found.end() :]


def around_gap(context: str, fmt: TextFormat) -> tuple[list[str], list[str]]:
    """The tokens before and behind the gap in a context.

    >>> around_gap("I saw the (_____).", TextFormat())
    (['I', 'saw', 'the', '(⇹'], ['⇹)', '⇹.'])
    """
    before, _, after = gap_in(context)
    if GAP in after:
        raise ConfigError(f"there are several {GAP} in {context!r}: leave one")
    letter = _absent_letter(context)
    tokens = text_tokens(before + letter + after, fmt)
    if letter not in tokens:
        raise ConfigError(f"{GAP} is to stand for a whole word in {context!r}")
    place = tokens.index(letter)
    return tokens[:place], tokens[place + 1 :]


def _absent_letter(text: str) -> str:
    """A letter that holds a place in a text without being in it."""
    return next(c for c in map(chr, range(0xA000, 0xD7A4)) if c.isalpha() and c not in text)


def join_tokens(tokens: Sequence[str], fmt: TextFormat) -> list[tuple[str, str]]:
    """(white space before it, surface) of each token of a line: the inverse of `line_tokens`.

    >>> join_tokens(["So", "(⇹", "they", "say", "⇹)"], TextFormat())
    [('', 'So'), (' ', '('), ('', 'they'), (' ', 'say'), ('', ')')]
    """
    if fmt.tokenization == "spaces":
        return [(" " if i else "", token) for i, token in enumerate(tokens)]
    return list(pieces(tokens))


def _spans(line: str, fmt: TextFormat) -> Iterator[tuple[str, int, int]]:
    """(token, start, end) for the tokens of one line, with offsets into that line."""
    if fmt.tokenization == "spaces":
        for match in re.finditer("[^ ]+", line):
            yield match.group(), match.start(), match.end()
        return
    tokens = line_tokens(line, fmt)
    place = 0
    for token, (separator, surface) in zip(tokens, join_tokens(tokens, fmt), strict=True):
        place += len(separator)
        yield token, place, place + len(surface)
        place += len(surface)


class LayoutCode:
    """The price of white space that a space-split token sequence does not determine.

    An adaptive code over run lengths, one for each kind of place (before, between and after the
    words of a line): p(k) = (times seen + q(k)) / (all seen + 1), where q is the Elias gamma prior,
    2^-(2⌊log2(k+1)⌋+1). It sums to one over k ≥ 0 and is causal, so a coder can spend it.

    >>> code = LayoutCode()
    >>> round(code.nats("between", 0) / math.log(2), 3)
    1.0
    >>> round(code.nats("between", 0) / math.log(2), 3)
    0.415
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], int] = defaultdict(int)
        self._total: dict[str, int] = defaultdict(int)

    def nats(self, place: str, extra: int) -> float:
        """Nats of `extra` more spaces here than one would write; the code learns from it."""
        prior = 2.0 ** -(2 * ((extra + 1).bit_length() - 1) + 1)
        p = (self._seen[place, extra] + prior) / (self._total[place] + 1)
        self._seen[place, extra] += 1
        self._total[place] += 1
        return -math.log(p)

    def around(self, token: str, before: int | None, after: int, *, is_last: bool) -> float:
        """Nats of the spaces around a token: before it, if it is the first of its line, and after
        it, if it is a word, of which `is_last` ends its line."""
        nats = 0.0
        if before is not None:
            nats += self.nats("blank" if token == EOS else "before", before)
        if token != EOS:
            nats += self.nats("after", after) if is_last else self.nats("between", after - 1)
        return nats


@dataclass(frozen=True)
class Reading:
    """A text as the model reads it: one row per token, a line break being a token."""

    tokens: list[str]
    """The token as the model knows it (`EOS` for a line break)."""
    surfaces: list[str]
    """The token as it stands in the text."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    """Code-point offsets of the surface in the whole text."""
    n_chars: NDArray[np.int64]
    """Characters that the token answers for: itself and the white space that it owns."""
    line: NDArray[np.int64]
    article: NDArray[np.int64]
    layout_nats: NDArray[np.float64]
    """What a lossless coder pays for white space that the tokens leave open."""
    text_chars: int
    text_bytes: int
    article_rule: str
    """How articles were cut, which differs from the format's where there were too few."""

    def __len__(self) -> int:
        return len(self.tokens)

    def head(self, n: int) -> Reading:
        """The first n tokens; the counts of the text stay those of all of it."""
        return replace(
            self,
            tokens=self.tokens[:n],
            surfaces=self.surfaces[:n],
            start=self.start[:n],
            end=self.end[:n],
            n_chars=self.n_chars[:n],
            line=self.line[:n],
            article=self.article[:n],
            layout_nats=self.layout_nats[:n],
        )


def read(lines: Iterable[str], fmt: TextFormat) -> Reading:
    """Reads lines (each with its `\\n`, but perhaps the last) into a `Reading`.

    A word owns the white space after it, a line break only itself; spaces that begin a line belong
    to its first token. So the characters of all tokens add up to those of the text.

    >>> r = read(["one two\\n", "three"], TextFormat("spaces"))
    >>> r.tokens, r.n_chars.tolist(), r.text_chars
    (['one', 'two', '\\n', 'three'], [4, 3, 1, 5], 13)
    """
    rows: list[tuple[str, str, int, int, int, int, float]] = []
    layout = LayoutCode()
    blank: list[str] = []
    offset = n_bytes = 0
    for number, raw in enumerate(lines):
        ended = raw.endswith("\n")
        line = raw[:-1] if ended else raw
        blank.append(line)
        spans = list(_spans(line, fmt))
        if ended:
            spans.append((EOS, len(line), len(raw)))
        owned_from = 0
        for i, (token, start, end) in enumerate(spans):
            following = spans[i + 1][1] if i + 1 < len(spans) else len(raw)
            cost = 0.0
            if fmt.tokenization == "spaces":
                is_last = i + 1 == len(spans) or spans[i + 1][0] == EOS
                gap = start if i == 0 else None
                cost = layout.around(token, gap, following - end, is_last=is_last)
            rows.append((
                token, line[start:end] if token != EOS else EOS,
                offset + start, offset + end, following - owned_from, number, cost,
            ))  # fmt: skip
            owned_from = following
        if not spans and rows:  # blanks at the end of the text, after the last line break
            token, surface, start, end, n, at, cost = rows[-1]
            cost += layout.nats("blank", len(raw))
            rows[-1] = (token, surface, start, end, n + len(raw), at, cost)
        offset += len(raw)
        n_bytes += len(raw.encode("utf-8", "surrogatepass"))
    article_of_line, rule = articles(blank, fmt.articles)
    tokens, surfaces, starts, ends, chars, numbers, costs = (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(7)]
    )
    line_numbers = np.array(numbers, dtype=np.int64)
    return Reading(
        tokens=tokens,
        surfaces=surfaces,
        start=np.array(starts, dtype=np.int64),
        end=np.array(ends, dtype=np.int64),
        n_chars=np.array(chars, dtype=np.int64),
        line=line_numbers,
        article=article_of_line[line_numbers],
        layout_nats=np.array(costs, dtype=np.float64),
        text_chars=offset,
        text_bytes=n_bytes,
        article_rule=rule,
    )


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its `\\n` but perhaps the last.

    >>> split_lines("a\\r\\nb"), split_lines(""), split_lines("\\n")
    (['a\\r\\n', 'b'], [], ['\\n'])
    """
    return [line for line in re.split("(?<=\n)", text) if line]


def articles(lines: Sequence[str], rule: Articles) -> tuple[NDArray[np.int64], str]:
    """The article that each line belongs to, and the rule that was applied.

    Blank lines at the start belong to the first article; elsewhere to the one before.

    >>> articles([" = One = ", " ", " a ", " ", " = Two = ", " "], "wikitext")[0].tolist()
    [0, 0, 0, 0, 1, 1]
    """
    n = len(lines)
    is_blank = [not line.strip() for line in lines]
    if rule == "line":
        return np.arange(n, dtype=np.int64), rule
    if rule == "wikitext":
        begins = [
            i for i in range(n)
            if lines[i].startswith(" = ") and lines[i].endswith(" = ")
            and not lines[i].startswith(" = = ") and not lines[i].endswith(" = = ")
            and (i == 0 or is_blank[i - 1]) and (i + 1 == n or is_blank[i + 1])
        ]  # fmt: skip
    else:
        begins = [i for i in range(n) if not is_blank[i] and (i == 0 or is_blank[i - 1])]
        if len(begins) < MIN_ARTICLES:
            blocks = np.arange(n, dtype=np.int64) // LINES_PER_BLOCK
            return blocks, f"runs of {LINES_PER_BLOCK} lines"
    starts = np.zeros(n, dtype=np.int64)
    starts[begins] = 1
    return np.maximum(np.cumsum(starts) - 1, 0), rule
