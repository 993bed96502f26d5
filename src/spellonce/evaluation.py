"""Scores → figures: bits per character, frequency bins, strict bits (paper, table 1).

Sums until the end; no figure is a mean of means. No torch here, and no model: `TokenScores` is
where all systems meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

BINS = ((0, 1), (1, 100), (100, None))
"""Training counts [lo, hi) of the paper's table 1."""


@dataclass(frozen=True)
class TokenScores:
    """One row per token of a text, line breaks included."""

    tokens: list[str]
    """The token as it stands in the text."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    """Code-point offsets into the whole text."""
    line: NDArray[np.int64]
    article: NDArray[np.int64]
    n_chars: NDArray[np.int64]
    """Characters that the token answers for, its separator included."""
    nats_lexeme: NDArray[np.float64]
    """−log p_LM of the lexeme, or of UNK."""
    nats_spelling: NDArray[np.float64]
    """−log p_spell, zero for lexemes."""
    nats_strict: NDArray[np.float64]
    """What a lossless coder pays on top: which character a ◇ was, open white space."""
    train_count: NDArray[np.int64]
    is_novel: NDArray[np.bool_]
    text_chars: int
    text_bytes: int
    article_rule: str
    has_parts: bool = True
    """Whether lexeme and spelling are separate parts of this model's score."""
    nats_static: NDArray[np.float64] | None = None
    """What it would be, had the model learned nothing while it read."""
    nats_end: NDArray[np.float64] | None = None
    """−log p that the word ends behind the token; zero where it goes on, and behind a line end."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nats(self) -> NDArray[np.float64]:
        """−log p of each token."""
        return self.nats_lexeme + self.nats_spelling

    @property
    def bits(self) -> NDArray[np.float64]:
        """−log2 p of each token."""
        return self.nats / math.log(2)

    def after(self, beginning: str) -> TokenScores:
        """Without the tokens that begin in the beginning of the text, as if it were not there."""
        if not beginning:
            return self
        n_chars = len(beginning)
        n = int((self.start < n_chars).sum())
        arrays = {
            field.name: getattr(self, field.name)[n:]
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray)
        }
        for name in ("start", "end"):
            arrays[name] = arrays[name] - n_chars
        arrays["n_chars"] = arrays["n_chars"].copy()
        arrays["n_chars"][:1] += arrays["start"][:1]  # white space that was the beginning's last
        for name in ("line", "article"):
            arrays[name] = arrays[name] - arrays[name][:1].sum()
        return replace(
            self, tokens=self.tokens[n:], text_chars=self.text_chars - n_chars,
            text_bytes=self.text_bytes - len(beginning.encode("utf-8", "surrogatepass")),
            **arrays,
        )  # fmt: skip

    def moved(self, n_chars: int) -> TokenScores:
        """The same behind so many characters that are not scored."""
        if not n_chars:
            return self
        return replace(
            self, start=self.start + n_chars, end=self.end + n_chars,
            text_chars=self.text_chars + n_chars, text_bytes=self.text_bytes,
        )  # fmt: skip

    def to_pandas(self) -> pandas.DataFrame:
        """The columns of `spellonce score` as a table of pandas, which must be installed."""
        try:
            import pandas
        except ImportError:
            raise ConfigError("pandas is not installed: pip install pandas") from None
        return pandas.DataFrame(list(self.rows()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The columns of `spellonce score`, one row at a time."""
        line, index = -1, 0
        bits_lexeme = self.nats_lexeme / math.log(2)
        bits_spelling = self.nats_spelling / math.log(2)
        for i, token in enumerate(self.tokens):
            if self.line[i] != line:
                line, index = int(self.line[i]), 0
            yield {
                "line": line,
                "index": index,
                "token": escape_token(token),
                "start": int(self.start[i]),
                "end": int(self.end[i]),
                "bits": float(bits_lexeme[i] + bits_spelling[i]),
                "bits_lexeme": float(bits_lexeme[i]) if self.has_parts else None,
                "bits_spelling": float(bits_spelling[i]) if self.has_parts else None,
                "novel": bool(self.is_novel[i]),
            }
            index += 1

    def article_sums(self) -> list[dict[str, Any]]:
        """Bits, characters and tokens of each article: what a paired test needs."""
        n = int(self.article.max(initial=-1)) + 1
        bits = np.bincount(self.article, self.bits, n)
        chars = np.bincount(self.article, self.n_chars, n)
        tokens = np.bincount(self.article, minlength=n)
        return [
            {"bits": float(b), "chars": int(c), "tokens": int(t)}
            for b, c, t in zip(bits, chars, tokens, strict=True)
        ]


def escape_token(token: str) -> str:
    r"""A token as a field of a table.

    >>> escape_token("a\tb"), escape_token("\n"), escape_token("\r")
    ('a\\tb', '\\n', '\\r')
    """
    for char, name in (("\\", "\\"), ("\t", "t"), ("\n", "n"), ("\r", "r")):
        token = token.replace(char, f"\\{name}")
    return token


def figures(scores: TokenScores) -> dict[str, Any]:
    """All figures of `eval` that follow from the scores.

    `bpc` divides by the characters of the text as it is; a `◇` costs its own bits only. `strict`
    also charges for saying which character a ◇ was and for white space that the tokens leave open.
    """
    ln2 = math.log(2)
    bits_lm = float(scores.nats_lexeme.sum()) / ln2
    bits_spell = float(scores.nats_spelling.sum()) / ln2
    bits = bits_lm + bits_spell
    bits_strict = bits + float(scores.nats_strict.sum()) / ln2
    chars = max(scores.text_chars, 1)
    return {
        "n_tokens": len(scores),
        "n_novel": int(scores.is_novel.sum()),
        "n_chars": scores.text_chars,
        "n_bytes": scores.text_bytes,
        "n_articles": int(scores.article.max(initial=-1)) + 1,
        "article_rule": scores.article_rule,
        "bits": bits,
        "bits_strict": bits_strict,
        "bpc": bits / chars,
        "bpc_strict": bits_strict / chars,
        "bpb": bits / max(scores.text_bytes, 1),
        "bpc_lm": bits_lm / chars if scores.has_parts else None,
        "bpc_spell": bits_spell / chars if scores.has_parts else None,
        "bins": bins(scores),
    }


def bins(scores: TokenScores) -> list[dict[str, Any]]:
    """bpc by training count: bits of a bin's tokens over the characters of its tokens."""
    rows = []
    for lo, hi in BINS:
        inside = (scores.train_count >= lo) & (scores.train_count < (hi or np.inf))
        chars = int(scores.n_chars[inside].sum())
        bits = float(scores.bits[inside].sum())
        rows.append({
            "lo": lo, "hi": hi, "tokens": int(inside.sum()), "chars": chars,
            "bpc": bits / chars if chars else None,
        })  # fmt: skip
    return rows


def recurrence(scores: TokenScores, times: int = 6) -> dict[str, Any]:
    """Mean bits of novel words at their first, second … occurrence in the text.

    `types`: how many novel words occur at least so often; `bits` are means over these alone.
    """
    found: dict[str, list[int]] = {}
    for i in np.flatnonzero(scores.is_novel).tolist():
        found.setdefault(scores.tokens[i], []).append(i)
    places = np.array([at[:times] for at in found.values() if len(at) >= times], dtype=np.int64)
    if not len(places):
        return {"types": 0, "bits": []}
    return {"types": len(places), "bits": scores.bits[places].mean(0).tolist()}


def unigram_bits(train_counts: dict[str, int], text: str) -> float:
    """Bits of a text under a character unigram (add one, with one more for what is new)."""
    total = sum(train_counts.values()) + len(train_counts) + 1
    return sum(-math.log2((train_counts.get(char, 0) + 1) / total) for char in text)
