"""Character n-grams by frequency: among the tokens of a text, and among its types (footnote).

What is frequent in running text says little about what words look like: `th` owes its first place
to a handful of words. A speller that learns each type once is not misled by them.

As in the paper, trigrams see the edges of a word, written ␣ (`␣th`, `he␣`), and bigrams do not:
with edges, `e␣` would come before `th`. No torch here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError, DataError
from spellonce.text import UNSPELLED, TextFormat, join_tokens, training_tokens

EDGE = "␣"
"""The beginning or the end of a word."""


@dataclass(frozen=True)
class NgramRanks:
    """The n-grams of one text, the most frequent among tokens first (ties by their characters)."""

    text: str
    """Which text it was."""
    n: int
    n_tokens: int
    """Words of the text."""
    n_types: int
    """Different words of it."""
    ngrams: tuple[str, ...]
    among_tokens: NDArray[np.int64]
    """How often each occurs when every token counts."""
    among_types: NDArray[np.int64]
    """How often each occurs when every type counts once."""

    @property
    def token_ranks(self) -> NDArray[np.int64]:
        """1 for the most frequent; equals share the best rank."""
        return ranks(self.among_tokens)

    @property
    def type_ranks(self) -> NDArray[np.int64]:
        """The same among types."""
        return ranks(self.among_types)

    @property
    def spearman(self) -> float | None:
        """Rank correlation of both frequencies; none where there is nothing to correlate."""
        return spearman(self.among_tokens, self.among_types)

    def top(self, k: int, *, by_types: bool = False) -> list[int]:
        """Places in `ngrams` of the k most frequent."""
        counts = self.among_types if by_types else self.among_tokens
        order = sorted(range(len(self.ngrams)), key=lambda i: (-counts[i], self.ngrams[i]))
        return order[:k]


def count_words(lines: Iterable[str], fmt: TextFormat) -> Counter[str]:
    """How often each word stands in a text, as it is written; removed words (`<unk>`) do not count.

    >>> count_words(["the cat, the dog"], TextFormat()).most_common(1)
    [('the', 2)]
    """
    counts: Counter[str] = Counter()
    for line in lines:
        tokens = [t for t in training_tokens(line.removesuffix("\n"), fmt) if t != UNSPELLED]
        counts.update(surface for _, surface in join_tokens(tokens, fmt) if surface.strip())
    return counts


def rank_ngrams(text: str, words: Mapping[str, int], n: int) -> NgramRanks:
    """Counts the n-grams of the words of a text, given how often each word occurs in it.

    >>> found = rank_ngrams("toy", {"the": 9, "ab": 1, "abc": 1}, 2)
    >>> list(zip(found.ngrams, found.token_ranks.tolist(), found.type_ranks.tolist()))
    [('he', 1, 2), ('th', 1, 2), ('ab', 3, 1), ('bc', 4, 2)]
    """
    if n < 1:
        raise ConfigError(f"n-grams have at least 1 character, not {n}")
    among_tokens: Counter[str] = Counter()
    among_types: Counter[str] = Counter()
    for word, times in words.items():
        edged = f"{EDGE}{word}{EDGE}" if n > 2 else word
        for i in range(len(edged) - n + 1):
            among_tokens[edged[i : i + n]] += times
            among_types[edged[i : i + n]] += 1
    if not among_tokens:
        raise DataError(f"{text} has no words of {n} characters: give a longer text")
    ngrams = sorted(among_tokens, key=lambda ngram: (-among_tokens[ngram], ngram))
    return NgramRanks(
        text=text,
        n=n,
        n_tokens=sum(words.values()),
        n_types=len(words),
        ngrams=tuple(ngrams),
        among_tokens=np.array([among_tokens[ngram] for ngram in ngrams]),
        among_types=np.array([among_types[ngram] for ngram in ngrams]),
    )


def ranks(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """1 + how many are greater.

    >>> ranks(np.array([5, 9, 5, 1])).tolist()
    [2, 1, 2, 4]
    """
    return len(counts) + 1 - np.searchsorted(np.sort(counts), counts, side="right")


def spearman(a: NDArray[np.int64], b: NDArray[np.int64]) -> float | None:
    """Rank correlation, equals at their mean rank; none where one side is all equal.

    >>> spearman(np.array([1, 2, 3]), np.array([10, 20, 30]))
    1.0
    """
    x, y = (_mean_ranks(counts) for counts in (a, b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else None


def _mean_ranks(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    ordered = np.sort(counts)
    below = np.searchsorted(ordered, counts, side="left")
    return (below + np.searchsorted(ordered, counts, side="right")) / 2
