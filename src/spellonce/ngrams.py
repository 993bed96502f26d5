"""A count-based lexeme LM: interpolated modified Kneser–Ney (Chen & Goodman 1998), in arrays.

    p_n(w | c) = (a(c, w) − D(a)) / A(c) + γ(c) · p_{n−1}(w | c without its first word)

where a is the count of the highest order and, below it, how many different words stood before; the
end of the recursion is uniform. Nothing is learned by gradient, so it is made in seconds.

An n-gram is known by the place of its key, place of its first n−1 words · V + last word, among the
sorted keys of its order: all positions of a text are looked up at once.

No torch here.

    T words, B streams, V different words
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]
_ABSENT = -1
_WEIGHTS = 8
"""Kinds of contexts by how often they were seen."""


@dataclass(frozen=True)
class Order:
    """The n-grams of one length n ≥ 2."""

    keys: Words
    """Sorted."""
    share: NDArray[np.float32]
    """(a − D) / A of each."""
    rest: NDArray[np.float32]
    """γ of each context, that is of each n-gram one shorter; 1 where nothing was seen after it."""
    weight: NDArray[np.uint8]
    """⌊log2 A⌋ of each context, at most `_WEIGHTS` − 1."""

    def find(self, contexts: Words, words: Words, n_words: int) -> Words:
        """Places of n-grams; −1 for those that were never seen."""
        wanted = np.where(contexts < 0, _ABSENT, contexts * n_words + words)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, place, _ABSENT)


@dataclass(frozen=True)
class Ngrams:
    """The model. Orders run from 2; a single word is known by its own number."""

    unigram: NDArray[np.float64]
    """p_1.  (V,)"""
    orders: tuple[Order, ...]

    @property
    def n_words(self) -> int:
        """V"""
        return len(self.unigram)

    @property
    def reach(self) -> int:
        """How many words before a word it looks at."""
        return len(self.orders)

    @property
    def n_kinds(self) -> int:
        """How many kinds of contexts there are: how many words were found, and how often."""
        return 1 + self.reach * _WEIGHTS

    def probabilities(
        self, words: Words, before: Words
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """p of words (T, B) after words `before` (reach, B), −1 where there are none.

        Also the kind of context that each was found in.
        """
        seen = np.concatenate([before, words])
        p = self.unigram[words]
        kinds = np.zeros(words.shape, dtype=np.int64)
        grams = seen
        for n, order in enumerate(self.orders):
            context = grams[:-1]
            grams = order.find(context, seen[1 + len(seen) - len(grams) :], self.n_words)
            # Of those that are looked up, the last T are about our words.
            context, own = context[-len(words) :], grams[-len(words) :]
            known = (context >= 0) & (order.rest[context] < 1)
            share = np.where(own >= 0, order.share[own], 0.0)
            p = np.where(known, share + order.rest[context] * p, p)
            kinds = np.where(known, 1 + n * _WEIGHTS + order.weight[context], kinds)
        return p, kinds

    def distribution(self, before: Sequence[int]) -> tuple[NDArray[np.float64], int]:
        """p of every word after some (−1: none), and the kind of context.  (V,)"""
        history = np.full(self.reach, _ABSENT, dtype=np.int64)
        recent = list(before)[-self.reach :] if self.reach else []
        history[len(history) - len(recent) :] = recent
        p, kind = self.unigram.copy(), 0
        grams = history
        for n, order in enumerate(self.orders):
            context = grams[-1]
            if context < 0:
                break
            low, high = np.searchsorted(
                order.keys, [context * self.n_words, (context + 1) * self.n_words]
            )
            if order.rest[context] < 1:
                p *= order.rest[context]
                p[order.keys[low:high] - context * self.n_words] += order.share[low:high]
                kind = 1 + n * _WEIGHTS + int(order.weight[context])
            grams = order.find(grams[:-1], history[n + 1 :], self.n_words)
        return p, kind

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, by name."""
        found: dict[str, NDArray[Any]] = {"unigram": self.unigram}
        for n, order in enumerate(self.orders, 2):
            found |= {f"{n}.{f.name}": getattr(order, f.name) for f in fields(Order)}
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Ngrams:
        """What `arrays` gave."""
        names = [f.name for f in fields(Order)]
        n_orders = (len(arrays) - 1) // len(names)
        orders = [
            Order(**{name: arrays[f"{n}.{name}"] for name in names}) for n in range(2, n_orders + 2)
        ]
        return cls(arrays["unigram"], tuple(orders))


@dataclass(frozen=True)
class _Table:
    """The n-grams of one length in a text, n ≥ 1."""

    keys: Words
    counts: NDArray[np.int64]
    """How often each occurs."""
    places: Words
    """Which one ends at each word of the text, from the n-th word on; −1: none."""
    adjusted: NDArray[np.int64]
    """a of each."""
    contexts: Words
    """Of each, the place of the (n−1)-gram that it begins with."""
    n_contexts: int

    def discounted(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """D by count, what is taken from each n-gram, and A and what was taken of each context."""
        discounts = _discounts(self.adjusted)
        taken = discounts[np.minimum(self.adjusted, 3)]
        total = np.bincount(self.contexts, self.adjusted, self.n_contexts)
        left = np.bincount(self.contexts, taken, self.n_contexts)
        return discounts, taken, total, left


def _tables(text: Words, n_words: int, order: int) -> list[_Table]:
    """Of all lengths up to an order; there is always one for single words."""
    keys = np.arange(n_words)
    counts = np.bincount(text[text >= 0], minlength=n_words)
    contexts = np.zeros(n_words, dtype=np.int64)
    found = [_Table(keys, counts, text, counts, contexts, 1)]
    for n in range(2, order + 1):
        shorter = found[-1]
        before, last = shorter.places[:-1], text[n - 1 :]
        whole = np.flatnonzero((before >= 0) & (last >= 0))
        if not len(whole):
            break
        keys, first, inverse, counts = np.unique(
            before[whole] * n_words + last[whole],
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        places = np.full(len(last), _ABSENT)
        places[whole] = inverse
        # The n-gram without its first word is the shorter one that ends at the same place.
        preceded = np.bincount(shorter.places[1:][whole[first]], minlength=len(shorter.keys))
        found[-1] = replace(shorter, adjusted=preceded)
        found.append(_Table(keys, counts, places, counts, keys // n_words, len(shorter.keys)))
    return found


def count(words: NDArray[np.integer[Any]], n_words: int, order: int) -> Ngrams:
    """Counts the n-grams of a text up to an order; none of them goes across a −1.

    >>> model = count(np.array([0] + [1, 2] * 9 + [1, 3]), n_words=4, order=2)
    >>> model.distribution([1])[0].round(2).tolist()
    [0.07, 0.08, 0.73, 0.13]
    """
    return _model(_tables(words.astype(np.int64), n_words, order))


def _model(tables: Sequence[_Table]) -> Ngrams:
    orders = []
    for table in tables:
        _, taken, total, left = table.discounted()
        some = np.maximum(total, 1)
        orders.append(Order(
            table.keys,
            ((table.adjusted - taken) / some[table.contexts]).astype(np.float32),
            np.where(total > 0, left / some, 1.0).astype(np.float32),
            _weight(some),
        ))  # fmt: skip
    first, *longer = orders
    uniform = float(first.rest[0]) / len(first.keys)
    return Ngrams(first.share.astype(np.float64) + uniform, tuple(longer))


def leave_one_out(
    words: NDArray[np.integer[Any]], n_words: int, order: int
) -> tuple[Ngrams, NDArray[np.float32], NDArray[np.uint8]]:
    """The model of a text; p of each of its words when what it adds to the counts itself is taken
    away; and the kind of its context then. (At a −1 they mean nothing.)
    """
    text = words.astype(np.int64)
    tables = _tables(text, n_words, order)
    p = np.full(len(text), 1 / n_words)
    kinds = np.zeros(len(text), dtype=np.uint8)
    for n, table in enumerate(tables, 1):
        discounts, taken, total, left = table.discounted()
        whole = np.flatnonzero(table.places >= 0)
        places, own = table.places[whole], whole + n - 1  # own: the words that end them
        gone = np.ones(len(whole), dtype=np.int64)
        if n < len(tables):  # one word less stood before it if this was the only time that it did
            longer = tables[n]
            preceded = np.concatenate([[_ABSENT], longer.places])[whole]
            gone = ((preceded >= 0) & (longer.counts[preceded] == 1)).astype(np.int64)
        context = table.contexts[places]
        a_without, total_without = table.adjusted[places] - gone, total[context] - gone
        taken_without = discounts[np.minimum(a_without, 3)]
        left_without = left[context] - taken[places] + taken_without
        known = total_without > 0
        some = np.maximum(total_without, 1)
        mixed = (a_without - taken_without + left_without * p[own]) / some
        p[own] = np.where(known, mixed, p[own])
        if n > 1:
            kinds[own] = np.where(known, 1 + (n - 2) * _WEIGHTS + _weight(some), kinds[own])
    return _model(tables), p.astype(np.float32), kinds


def _weight(totals: NDArray[Any]) -> NDArray[np.uint8]:
    """⌊log2⌋, and no more than there are weights."""
    weights: NDArray[np.uint8] = np.minimum(np.log2(totals), _WEIGHTS - 1).astype(np.uint8)
    return weights


def _discounts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """What is taken from counts of 0, 1, 2, and 3 or more.

    >>> _discounts(np.array([1] * 8 + [2] * 4 + [3] * 2 + [4])).round(3).tolist()
    [0.0, 0.5, 1.25, 2.0]
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    discounts = np.zeros(4)
    if n[1] == 0:
        discounts[1:] = 0.5  # such counts cannot be smoothed by the formula
        return discounts
    y = n[1] / (n[1] + 2 * n[2])
    for k in (1, 2, 3):
        more = (k + 1) * y * n[k + 1] / n[k] if n[k] else 0.0
        discounts[k] = np.clip(k - more, 0.1, k - 0.1)
    return discounts
