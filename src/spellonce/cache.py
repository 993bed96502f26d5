"""What was read so far, to be summoned again: an open-vocabulary cache keyed by hidden state.

A memory holds the last W tokens as (state that predicted it, string). At a state h its components
are distributions over strings,

    c_k(s | h) = Σ_j softmax_j(θ_k · h·h_j) · [s_j = s]

one for each sharpness θ_k; θ = 0 counts how often a string came. Strings are numbers: lexemes have
their ids, novel ones get the next free number when they are met.

Cost and memory per token depend on W and not on the length of the text, and a text that is read in
pieces is remembered as one that is read at once.

    N tokens of a piece, W window, D width, K sharpnesses
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 256
"""Tokens that are looked up at a time."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What the memory says of each token of a piece, before it has seen it."""

    log_p: Floats
    """log c_k of the token's own string; −∞ where it is not in memory.  (N, K)"""
    features: Floats
    """What is known of the memory at that moment, for a gate.  (N, F)"""
    is_known: NDArray[np.bool_]
    """Whether the string is in memory.  (N,)"""
    is_empty: NDArray[np.bool_]
    """Whether nothing is in memory.  (N,)"""


def n_features(n_components: int) -> int:
    """F"""
    return 2 + 2 * n_components


class Memory:
    """The last tokens."""

    def __init__(
        self, width: int, n_lexemes: int, *, window: int, sharpness: Sequence[float]
    ) -> None:
        self.window, self.sharpness, self.n_lexemes = window, tuple(sharpness), n_lexemes
        # What is remembered is from `_begin` to `_end`; there is room for as much again, and more.
        self._states = torch.zeros(2 * window + _BLOCK, width)
        self._strings = np.zeros(2 * window + _BLOCK, dtype=np.int64)
        self._begin = self._end = 0
        self._numbers: dict[str, int] = {}
        self._words: dict[int, str] = {}
        self._next = n_lexemes

    @property
    def states(self) -> Tensor:
        """Those that predicted what is remembered.  (M, D)"""
        return self._states[self._begin : self._end]

    @property
    def strings(self) -> NDArray[np.int64]:
        """What is remembered, the latest last.  (M,)"""
        return self._strings[self._begin : self._end]

    def forget(self) -> None:
        """Begins anew."""
        self._begin = self._end = 0
        self._name({})

    def numbers(self, words: Sequence[str]) -> list[int]:
        """The numbers of novel words, the next free ones for those that have none.

        They are to be read before others are asked for.
        """
        if len(self._numbers) > 2 * self.window + 1000:
            self._tidy()
        for word in words:
            if word not in self._numbers:
                self._numbers[word] = self._next
                self._words[self._next] = word
                self._next += 1
        return [self._numbers[word] for word in words]

    def _tidy(self) -> None:
        """Forgets the numbers of words that are in memory no longer."""
        kept = set(self.strings.tolist())
        self._name({word: n for word, n in self._numbers.items() if n in kept})

    def _name(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)
        self._words = {number: word for word, number in numbers.items()}

    @torch.no_grad()
    def read(self, states: Tensor, strings: NDArray[np.int64]) -> Found:
        """Looks tokens up, each in what was before it, and remembers them.  (N, D), (N,)"""
        parts = []
        for start in range(0, len(strings), _BLOCK):
            block = slice(start, start + _BLOCK)
            parts.append(self._look_up(states[block], strings[block]))
            self.remember(states[block], strings[block])
        n_k = len(self.sharpness)
        return Found(
            np.concatenate([np.zeros((0, n_k)), *(p.log_p for p in parts)]),
            np.concatenate([np.zeros((0, n_features(n_k))), *(p.features for p in parts)]),
            np.concatenate([np.zeros(0, dtype=bool), *(p.is_known for p in parts)]),
            np.concatenate([np.zeros(0, dtype=bool), *(p.is_empty for p in parts)]),
        )

    def remember(self, states: Tensor, strings: NDArray[np.int64]) -> None:
        """Takes in tokens, and forgets those that are out of reach.  (N, D), (N,); N ≤ a block"""
        n = len(strings)
        if self._end + n > len(self._strings):
            kept = slice(max(self._begin, self._end - self.window), self._end)
            size = kept.stop - kept.start
            self._states[:size] = self._states[kept].clone()
            self._strings[:size] = self._strings[kept].copy()
            self._begin, self._end = 0, size
        self._states[self._end : self._end + n] = states.cpu()
        self._strings[self._end : self._end + n] = strings
        self._end += n
        self._begin = max(self._begin, self._end - self.window)

    def _look_up(self, states: Tensor, strings: NDArray[np.int64]) -> Found:
        n, before = len(strings), len(self.strings)
        keys = torch.cat([self.states.to(states.device), states])  # (M, D)
        names = torch.from_numpy(np.concatenate([self.strings, strings])).to(states.device)
        at = torch.arange(n, device=states.device)[:, None] + before
        place = torch.arange(len(names), device=states.device)
        outside = (place >= at) | (place < at - self.window)  # (N, M)
        alike = (names == names[before:, None]).masked_fill(outside, False)
        raw = (states @ keys.T).masked_fill(outside, -torch.inf)
        weights, features = self._weigh(raw, names >= self.n_lexemes)
        own = [
            ((w * alike).sum(1).double() / w.sum(1).double().clamp_min(1e-300)).log()
            for w in weights
        ]
        return Found(
            torch.stack(own, 1).cpu().numpy(),
            features,
            alike.any(1).cpu().numpy(),
            outside.all(1).cpu().numpy(),
        )

    def _weigh(self, raw: Tensor, novel: Tensor) -> tuple[list[Tensor], Floats]:
        """(weights under each sharpness, features) of likenesses (N, M), −∞ where nothing is.

        `novel`: which strings are.  (M,)
        """
        there = raw > -torch.inf
        size = there.sum(1)
        peak = raw.new_zeros(len(raw))
        if raw.shape[1]:
            peak = torch.where(size > 0, raw.amax(1), 0.0)
        weights, features = [], [peak.double() / 10, (size.double() + 1).log()]
        for sharpness in self.sharpness:
            weight = torch.exp(sharpness * (raw - peak[:, None])).masked_fill(~there, 0.0)
            total = weight.sum(1).double()
            weights.append(weight)
            features.append(total.clamp_min(1).log())
            features.append((weight * novel).sum(1).double() / total.clamp_min(1e-300))
        return weights, torch.stack(features, 1).cpu().numpy()

    @torch.no_grad()
    def distribution(self, state: Tensor) -> tuple[NDArray[np.int64], Found]:
        """(strings in memory, what it says of each of them) at a state (D,).  (S,), (S, …)

        Features do not depend on the string: there is one row of them.
        """
        strings, place = np.unique(self.strings, return_inverse=True)
        raw = (self.states.to(state.device) @ state)[None]  # (1, M)
        novel = torch.from_numpy(self.strings >= self.n_lexemes).to(state.device)
        weights, features = self._weigh(raw, novel)
        log_p = np.full((len(strings), len(self.sharpness)), -np.inf)
        if len(strings):
            for k, weight in enumerate(weights):
                each = weight[0].double().cpu().numpy()
                with np.errstate(divide="ignore"):
                    log_p[:, k] = np.log(np.bincount(place, each, len(strings)) / each.sum())
        known = np.ones(len(strings), dtype=bool)
        return strings, Found(log_p, features, known, np.array([not len(strings)]))

    def word(self, number: int) -> str:
        """The novel word of a number."""
        return self._words[number]

    def novel_words(self) -> set[str]:
        """Those that are in memory."""
        return {self._words[n] for n in set(self.strings.tolist()) if n >= self.n_lexemes}

    # --- keeping it -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers."""
        return {
            "states": self.states.clone(), "strings": self.strings.copy(), "next": self._next,
            "numbers": dict(self._numbers),
        }  # fmt: skip

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._begin, self._end = 0, len(kept["strings"])
        self._states[: self._end], self._strings[: self._end] = kept["states"], kept["strings"]
        self._next = int(kept["next"])
        self._name(kept["numbers"])
