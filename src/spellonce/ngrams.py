"""A count-based lexeme LM: interpolated modified Kneser–Ney (Chen & Goodman 1998), in arrays.

    p_n(w | c) = (a(c, w) − D(a)) / A(c) + γ(c) · p_{n−1}(w | c without its first word)

where a is the count of the highest order and, below it, how many different words stood before; the
end of the recursion is uniform. Nothing is learned by gradient, so it is made in seconds.

Below the highest order, an n-gram that nothing can stand before (at the beginning of a text, or
after a break) counts every time. A word that was counted itself can be left out.

An n-gram is known by its place among those of its order, which are sorted by context (the place of
the first n−1 words) and last word: all positions of a text are looked up at once.

No torch here.

    T words, B streams, V different words
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]
_ABSENT = -1
_WEIGHTS = 8
"""Kinds of contexts by how often they were seen."""
_MIDDLE = 1 << 15
"""Distances of keys are stored as what they are above it: so they use all of 16 bits."""
_STORED = ("gaps", "large_gaps", "counts", "large_counts", "once")


@dataclass(frozen=True)
class Order:
    """The n-grams of one length n. Those of length 1 all have the same context."""

    begins: NDArray[np.unsignedinteger[Any]]
    """Where the n-grams of each context begin, and where the last one's end."""
    words: NDArray[np.unsignedinteger[Any]]
    """The last word of each n-gram; sorted in each context."""
    counts: NDArray[np.unsignedinteger[Any]]
    """a of each."""
    once: NDArray[np.uint8]
    """Whether it occurs but once: a bit each."""
    totals: NDArray[np.unsignedinteger[Any]]
    """A of each context, that is of each n-gram one shorter."""
    left: NDArray[np.float32]
    """Σ D in each context."""
    discounts: NDArray[np.float64]
    """D of counts of 0, 1, 2, and 3 or more."""

    def __len__(self) -> int:
        return len(self.words)

    def contexts(self) -> Words:
        """The context of each n-gram."""
        return np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))

    def find(self, contexts: Words, words: Words) -> Words:
        """Places of n-grams; −1 for those that were never seen."""
        places = np.full(contexts.shape, _ABSENT)
        known = np.nonzero(contexts >= 0)
        context, word = contexts[known], words[known]
        low, end = (self.begins[context + i].astype(np.int64) for i in (0, 1))
        high = end
        # Binary search for all at once; the context with the most n-grams says when it is done.
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            is_below = (low < high) & (self.words[middle - (middle == len(self))] < word)
            low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
        is_there = (low < end) & (self.words[np.minimum(low, len(self) - 1)] == word)
        places[known] = np.where(is_there, low, _ABSENT)
        return places

    def is_once(self, places: Words) -> NDArray[np.bool_]:
        """Whether n-grams occur but once."""
        found: NDArray[np.bool_] = (self.once[places >> 3] >> (7 - (places & 7)) & 1).astype(bool)
        return found

    def mix(
        self, p: NDArray[np.float64], contexts: Words, places: Words, gone: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(p_n out of p_{n−1}, A) where so many of each n-gram are taken away; A = 0: p_{n−1}."""
        a = np.where(places >= 0, self.counts[places], 0).astype(np.int64)
        gone = np.where(places >= 0, np.minimum(gone, a), 0)
        total = np.where(contexts >= 0, self.totals[contexts], 0).astype(np.int64) - gone
        d, d_full = (self.discounts[np.minimum(x, 3)] for x in (a - gone, a))
        left = self.left[contexts] - d_full + d
        mixed = (a - gone - d + left * p) / np.maximum(total, 1)
        return np.where(total > 0, mixed, p), total


@dataclass(frozen=True)
class Expansion:
    """p of every word after some others, as a sum: a share of the unigram, and what was seen."""

    unigram: float
    """Its share."""
    words: Words
    """Those that were seen there, after all or after the last of the others."""
    p: NDArray[np.float64]
    """What each of them has beside its share of the unigram; the same word may come again."""
    kind: int
    """The kind of context."""

    def sums(self, unigram: NDArray[np.float64], group: Words) -> NDArray[np.float64]:
        """p of groups of words, given that of each in the unigram and the group of each word."""
        seen = np.bincount(group[self.words], self.p, len(unigram))
        total: NDArray[np.float64] = self.unigram * unigram + seen
        return total


@dataclass(frozen=True)
class Ngrams:
    """The model. A single word is known by its own number."""

    orders: tuple[Order, ...]

    def __deepcopy__(self, memo: object) -> Ngrams:
        return self  # it does not change

    @property
    def n_words(self) -> int:
        """V"""
        return len(self.orders[0])

    @property
    def reach(self) -> int:
        """How many words before a word it looks at."""
        return len(self.orders) - 1

    @property
    def n_kinds(self) -> int:
        """How many kinds of contexts there are: how many words were found, and how often."""
        return 1 + self.reach * _WEIGHTS

    def probabilities(
        self, words: Words, before: Words, *, left_out: bool | NDArray[np.bool_] = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """p of words (T, B) after words `before` (reach, B), −1 where there are none.

        Also the kind of context that each was found in. `left_out`: the words, or some of them,
        were counted, and what each added to the counts is taken away while it is looked at.
        """
        seen = np.concatenate([before, words])
        contexts, places = [np.zeros_like(words)], [words]
        grams = seen
        for order in self.orders[1:]:
            context = grams[:-1]
            grams = order.find(context, seen[len(seen) - len(context) :])
            # Of those that are looked up, the last T are about our words.
            contexts.append(context[len(context) - len(words) :])
            places.append(grams[len(grams) - len(words) :])
        p = np.full(words.shape, 1 / self.n_words)
        kinds = np.zeros(words.shape, dtype=np.int64)
        for n, order in enumerate(self.orders):
            gone = np.broadcast_to(np.asarray(left_out), words.shape).astype(np.int64)
            if n < self.reach and np.any(left_out):  # something is gone if nothing else was there
                longer = places[n + 1]
                gone[(longer >= 0) & ~self.orders[n + 1].is_once(longer)] = 0
            p, total = order.mix(p, contexts[n], places[n], gone)
            if n > 0:
                kinds = np.where(total > 0, _kind(n, total), kinds)
        return p, kinds

    @cached_property
    def unigram(self) -> NDArray[np.float64]:
        """p of every word where nothing before it is known.  (V,)"""
        order = self.orders[0]
        every = np.arange(self.n_words)
        uniform = np.full(self.n_words, 1 / self.n_words)
        nothing = np.zeros_like(every)
        return order.mix(uniform, nothing, every, nothing)[0]

    def expand(self, before: Sequence[int]) -> Expansion:
        """p of every word after some (−1: none), as the sum that it is."""
        history = np.full(self.reach, _ABSENT, dtype=np.int64)
        recent = list(before)[-self.reach :] if self.reach else []
        history[len(history) - len(recent) :] = recent
        found = Expansion(1.0, np.zeros(0, dtype=np.int64), np.zeros(0), 0)
        contexts = history
        for n, order in enumerate(self.orders[1:], 1):
            context = int(contexts[-1])
            if context < 0:
                break
            if total := int(order.totals[context]):
                seen = slice(*order.begins[context : context + 2].tolist())
                a = order.counts[seen].astype(np.int64)
                rest = float(order.left[context]) / total  # γ
                found = Expansion(
                    found.unigram * rest,
                    np.concatenate([found.words, order.words[seen].astype(np.int64)]),
                    np.concatenate([
                        found.p * rest, (a - order.discounts[np.minimum(a, 3)]) / total
                    ]),
                    int(_kind(n, np.array(total))),
                )  # fmt: skip
            contexts = order.find(contexts[:-1], history[n:])
        return found

    def distribution(self, before: Sequence[int]) -> tuple[NDArray[np.float64], int]:
        """p of every word after some (−1: none), and the kind of context.  (V,)"""
        found = self.expand(before)
        return found.sums(self.unigram, np.arange(self.n_words)), found.kind

    def distributions(self, before: Words) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The same for many of them (reach, N), the last one behind: (N, V) and (N,)."""
        n = before.shape[1]
        p, kinds = np.tile(self.unigram, (n, 1)), np.zeros(n, dtype=np.int64)
        contexts = before
        for length, order in enumerate(self.orders[1:], 1):
            context = contexts[-1]
            total = np.where(context >= 0, order.totals[context], 0).astype(np.int64)
            row = np.flatnonzero(total)
            here, total = context[row], total[row]
            p[row] *= (order.left[here] / total)[:, None]
            begins = order.begins[here].astype(np.int64)
            lengths = order.begins[here + 1].astype(np.int64) - begins
            ends = np.cumsum(lengths)
            places = np.arange(lengths.sum()) + np.repeat(begins - ends + lengths, lengths)
            a = order.counts[places].astype(np.int64)
            seen = (a - order.discounts[np.minimum(a, 3)]) / np.repeat(total, lengths)
            p[np.repeat(row, lengths), order.words[places]] += seen
            kinds[row] = _kind(length, total)
            contexts = order.find(contexts[:-1], before[length:])
        return p, kinds

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, by name, in few bytes: sorted keys by their distances, small numbers in small
        integers, and nothing that follows from the rest."""
        found: dict[str, NDArray[Any]] = {}
        for n, order in enumerate(self.orders, 1):
            keys = order.contexts() * self.n_words + order.words
            gaps = _narrow(np.diff(keys, prepend=-1) - _MIDDLE, np.int16)
            parts: tuple[NDArray[Any], ...] = (*gaps, *_narrow(order.counts, np.uint8), order.once)
            found |= {f"{n}.{name}": part for name, part in zip(_STORED, parts, strict=True)}
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Ngrams:
        """What `arrays` gave. ValueError: it is something else."""
        orders: list[Order] = []
        for n in range(1, len(arrays) // len(_STORED) + 1):
            own = [arrays.get(f"{n}.{name}") for name in _STORED]
            if any(part is None for part in own):
                raise ValueError(f"n-grams of {n} are missing")
            gaps, large_gaps, counts, large_counts, once = cast(list[NDArray[Any]], own)
            keys = _wide(gaps, large_gaps)
            keys += _MIDDLE
            is_rising = bool((keys > 0).all())
            np.cumsum(keys, out=keys)
            keys -= 1
            every = _wide(counts, large_counts)
            n_words = len(orders[0]) if orders else len(keys)
            last = len(orders[-1]) * n_words if orders else len(keys)
            if len(every) != len(keys) or len(once) != -(-len(keys) // 8) or not (
                len(keys) and is_rising and keys.min() >= 0 and keys[-1] < last
            ):  # fmt: skip
                raise ValueError(f"n-grams of {n} do not fit together")
            orders.append(_order(keys, once, every, n, n_words, orders))
        if not orders:
            raise ValueError("there are no n-grams")
        return cls(tuple(orders))


def _narrow(
    values: NDArray[np.integer[Any]], kind: type[np.integer[Any]]
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
    """(numbers in fewer bytes, the largest of which stands for those that have no room; these).

    >>> [part.tolist() for part in _narrow(np.array([1, 254, 300, 255]), np.uint8)]
    [[1, 254, 255, 255], [300, 255]]
    """
    top = np.iinfo(kind).max
    return np.minimum(values, top).astype(kind), values[values >= top].astype(np.int64)


def _wide(small: NDArray[Any], large: NDArray[Any]) -> NDArray[np.int64]:
    """Undoes `_narrow`."""
    values = small.astype(np.int64)
    top = np.iinfo(small.dtype).max
    has_none = small == top
    if values.ndim != 1 or has_none.sum() != large.size or (large < top).any():
        raise ValueError("numbers are missing")
    values[has_none] = large
    return values


def count(
    words: NDArray[np.integer[Any]],
    n_words: int,
    order: int,
    is_given: NDArray[np.bool_] | None = None,
) -> Ngrams:
    """Counts the n-grams of a text up to an order; none of them goes across a −1.

    `is_given`: words that only begin n-grams, right behind a −1, and are never predicted.

    >>> model = count(np.array([0] + [1, 2] * 9 + [1, 3]), n_words=4, order=2)
    >>> model.distribution([1])[0].round(2).tolist()
    [0.1, 0.08, 0.71, 0.11]
    """
    text = words.astype(np.int64)
    keys, places = np.arange(n_words), text  # places: of the n-gram that ends at each word
    said = text >= 0 if is_given is None else (text >= 0) & ~is_given
    counts = np.bincount(text[said], minlength=n_words)
    orders: list[Order] = []
    for n in range(1, order + 1):
        before, last = places[:-1], text[n:]
        whole = np.flatnonzero((before >= 0) & (last >= 0)) if n < order else np.zeros(0, np.int64)
        longer_keys, first, inverse, longer_counts = np.unique(
            before[whole] * n_words + last[whole],
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        adjusted = counts
        if len(whole):
            adjusted = _preceded(places, 1 + whole, first, len(keys))
            if n == 1 and is_given is not None:
                adjusted -= np.bincount(text[is_given], minlength=n_words)
        orders.append(_order(keys, np.packbits(counts == 1), adjusted, n, n_words, orders))
        if not len(whole):
            break
        places = np.full(len(last), _ABSENT)
        places[whole] = inverse
        keys, counts = longer_keys, longer_counts
    return Ngrams(tuple(orders))


def _preceded(places: Words, ends: Words, first: Words, n: int) -> NDArray[np.int64]:
    """How many different words stand before each of n n-grams, and how often nothing does.

    `places` are those of the n-grams at the words of a text, `ends` the words where a longer one
    ends, `first` those among them where it does so for the first time.
    """
    nothing = places >= 0
    nothing[ends] = False
    return np.bincount(places[ends[first]], minlength=n) + np.bincount(places[nothing], minlength=n)


def _order(
    keys: Words,
    once: NDArray[np.uint8],
    adjusted: NDArray[np.int64],
    n: int,
    n_words: int,
    shorter: Sequence[Order],
) -> Order:
    """The n-grams with sorted keys, context · V + last word."""
    contexts = keys // n_words if n > 1 else np.zeros_like(keys)
    n_contexts = len(shorter[-1]) if shorter else 1
    discounts = _discounts(adjusted)
    totals = np.bincount(contexts, adjusted, n_contexts).astype(np.int64)
    left = np.bincount(contexts, discounts[np.minimum(adjusted, 3)], n_contexts)
    return Order(
        _smallest(np.concatenate([[0], np.bincount(contexts, minlength=n_contexts).cumsum()])),
        _smallest(keys - contexts * n_words),
        _smallest(adjusted),
        once,
        _smallest(totals),
        left.astype(np.float32),
        discounts,
    )


def _smallest(values: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """Numbers in as few bytes as hold the largest of them."""
    return values.astype(np.min_scalar_type(values.max(initial=0)))


def _kind(n: int, totals: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The kind of contexts of n words that were seen so often."""
    weight = np.minimum(np.log2(np.maximum(totals, 1)), _WEIGHTS - 1).astype(np.int64)
    kinds: NDArray[np.int64] = 1 + (n - 1) * _WEIGHTS + weight
    return kinds


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
