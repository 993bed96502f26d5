"""How much of p_spell(· | h) is spent on given words, over the tree of their prefixes.

A novel word is no lexeme, but the speller does not know that: Σ_w p_spell(σ(w) | h) over the
lexemes is lost. Words share prefixes, and the speller reads each prefix once; what begins with a
prefix of next to no probability has no more than that. So the sum is exact to N · 1e-11 for N
prefixes.

    M vectors, P pairs of a vector and a prefix, H hidden
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.lexicon import BOUNDARY_SYMBOL
from spellonce.mixture import SpellingMixture, blend
from spellonce.speller import Speller

_PAIRS = 1 << 15
"""Prefixes, over all vectors, that are read at a time, about."""
_NEVER = -25.4
"""log p of a prefix that is not followed further: about 1e-11."""
Places = NDArray[np.int64]
Word = tuple[int, ...]


@dataclass(frozen=True)
class _Level:
    """The prefixes of one length. Those that continue one of them are in a row in the next."""

    prefixes: list[Word]
    is_word: NDArray[np.bool_]
    first: Places
    """Of each, where those that continue it begin,"""
    n: Places
    """and how many they are."""

    @cached_property
    def symbols(self) -> Places:
        """The last symbol of each; BOW for the empty one."""
        last = [prefix[-1] if prefix else BOUNDARY_SYMBOL for prefix in self.prefixes]
        return np.array(last, dtype=np.int64)

    def before(self, reach: int) -> Places:
        """The last symbols of each, BOW included, −1 where there are none.  (reach, N)"""
        rows = [
            (*[-1] * reach, BOUNDARY_SYMBOL, *prefix)[1 + len(prefix) :] for prefix in self.prefixes
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), reach).T


@dataclass(frozen=True)
class _Counts:
    """What a count-based model says of a level."""

    ends: Tensor
    """p of EOW after each prefix,"""
    symbols: Tensor
    """of the symbol that leads to each prefix of the next level,"""
    kinds: Tensor
    """and the kind of context that each prefix is."""


class Trie:
    """The prefixes of words, which are symbols without boundaries.

    >>> [level.prefixes for level in Trie([(5, 6), (5,), (5, 7)]).levels]
    [[()], [(5,)], [(5, 6), (5, 7)]]
    """

    def __init__(self, words: Iterable[Sequence[int]]) -> None:
        found = sorted({tuple(word) for word in words})
        self.n_words = len(found)
        self.levels: list[_Level] = []
        ranges = [(0, len(found))] if found else []
        while ranges:
            depth = len(self.levels)
            prefixes: list[Word] = []
            is_word: list[bool] = []
            first: list[int] = []
            below: list[tuple[int, int]] = []
            for low, high in ranges:
                prefixes.append(found[low][:depth])
                is_word.append(len(found[low]) == depth)
                first.append(len(below))
                low += is_word[-1]
                while low < high:
                    end = low + 1
                    while end < high and found[end][depth] == found[low][depth]:
                        end += 1
                    below.append((low, end))
                    low = end
            starts = np.array(first, dtype=np.int64)
            n = np.diff([*first, len(below)])
            self.levels.append(_Level(prefixes, np.array(is_word), starts, n))
            ranges = below
        self._counts: tuple[SpellingMixture, list[_Counts]] | None = None

    @torch.no_grad()
    def mass(self, speller: Speller, vectors: Tensor) -> Tensor:
        """Σ p_spell(word | vector) over the words.  (M, D) → (M,)"""
        widest = max((len(level.prefixes) for level in self.levels), default=1)
        rows = max(1, _PAIRS // widest)
        starts = range(0, len(vectors), rows)
        parts = [self._mass(speller, vectors[start : start + rows]) for start in starts]
        return torch.cat([vectors.new_zeros(0, dtype=torch.float64), *parts])

    def _mass(self, speller: Speller, vectors: Tensor) -> Tensor:
        device = vectors.device
        who = torch.arange(len(vectors), device=device)
        node = torch.zeros_like(who)
        log_p = vectors.new_zeros(len(vectors), dtype=torch.float64)
        total = torch.zeros_like(log_p)
        prepared, state = speller.prepare(vectors), speller.zero_state(len(vectors))
        counts = self._counted(speller.mixture, device)
        for depth, level in enumerate(self.levels):
            symbols = torch.from_numpy(level.symbols).to(device)[node]
            x, state = speller.step(symbols, prepared[who], state)
            log_probs = torch.log_softmax(speller.output(x), 1)  # (P, A)
            trust = None
            if speller.mixture is not None:
                trust = speller.mixture.logit(x, counts[depth].kinds[node])
            ends = torch.from_numpy(level.is_word).to(device)[node]
            end = log_probs[:, BOUNDARY_SYMBOL]
            if trust is not None:
                end = blend(end, counts[depth].ends[node], trust)
            total.index_add_(0, who[ends], (log_p + end.double())[ends].exp())
            if depth + 1 == len(self.levels):
                break
            n = torch.from_numpy(level.n).to(device)[node]
            pair = torch.repeat_interleave(torch.arange(len(node), device=device), n)
            within = torch.arange(len(pair), device=device) - (n.cumsum(0) - n)[pair]
            node = torch.from_numpy(level.first).to(device)[node][pair] + within
            following = torch.from_numpy(self.levels[depth + 1].symbols).to(device)[node]
            step = log_probs[pair, following]
            if trust is not None:
                step = blend(step, counts[depth].symbols[node], trust[pair])
            log_p = log_p[pair] + step.double()
            likely = torch.nonzero(log_p > _NEVER)[:, 0]
            log_p, node, pair = log_p[likely], node[likely], pair[likely]
            who = who[pair]
            state = [tuple(part[:, pair] for part in layer) for layer in state]
        return total

    def _counted(self, mixture: SpellingMixture | None, device: torch.device) -> list[_Counts]:
        """What the counts say of each level, looked up once."""
        if mixture is None:
            return []
        if self._counts is None or self._counts[0] is not mixture:
            model, levels = mixture.ngrams, []
            for level, below in zip_longest(self.levels, self.levels[1:]):
                before = level.before(model.reach)
                ends, kinds = model.probabilities(
                    np.full((1, len(level.prefixes)), BOUNDARY_SYMBOL), before
                )
                symbols = np.zeros((1, 0))
                if below is not None:
                    parent = np.repeat(np.arange(len(level.n)), level.n)
                    symbols, _ = model.probabilities(below.symbols[None], before[:, parent])
                levels.append(_Counts(*(
                    torch.from_numpy(array[0]).to(device) for array in (ends, symbols, kinds)
                )))  # fmt: skip
            self._counts = mixture, levels
        return self._counts[1]
