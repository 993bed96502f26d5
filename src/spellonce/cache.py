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
from dataclasses import dataclass, replace
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
        self.states = torch.zeros(0, width)
        self.strings = np.zeros(0, dtype=np.int64)
        self._numbers: dict[str, int] = {}
        self._words: dict[int, str] = {}
        self._next = n_lexemes

    def forget(self) -> None:
        """Begins anew."""
        self.states = self.states[:0]
        self.strings = self.strings[:0]
        self._name({})

    def number(self, word: str) -> int:
        """The number of a novel word; the next free one if it has none.

        Not more than a thousand are to be asked for before they are read.
        """
        found = self._numbers.get(word)
        if found is None:
            found = self._numbers[word] = self._next
            self._words[found] = word
            self._next += 1
            if len(self._numbers) > 2 * self.window + 1000:
                self._tidy()
        return found

    def _tidy(self) -> None:
        """Forgets the numbers of words that are in memory no longer, but for the latest."""
        kept = set(self.strings.tolist())
        self._name({
            word: n for word, n in self._numbers.items() if n in kept or n >= self._next - 1000
        })  # fmt: skip

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
        """Takes in tokens, and forgets those that are out of reach.  (N, D), (N,)"""
        self.states = torch.cat([self.states, states.cpu()])[-self.window :]
        self.strings = np.concatenate([self.strings, strings])[-self.window :]

    def _look_up(self, states: Tensor, strings: NDArray[np.int64]) -> Found:
        n, before = len(strings), len(self.strings)
        keys = torch.cat([self.states.to(states.device), states])  # (M, D)
        names = torch.from_numpy(np.concatenate([self.strings, strings])).to(states.device)
        at = torch.arange(n, device=states.device)[:, None] + before
        place = torch.arange(len(names), device=states.device)
        outside = (place >= at) | (place < at - self.window)  # (N, M)
        alike = (names == names[before:, None]).masked_fill(outside, False)
        novel = (names >= self.n_lexemes).expand(n, -1)
        raw = (states @ keys.T).masked_fill(outside, -torch.inf)
        size = (~outside).sum(1)
        peak = torch.where(size > 0, raw.amax(1), 0.0)
        log_p, features = [], [peak.double() / 10, (size.double() + 1).log()]
        for sharpness in self.sharpness:
            weights = torch.exp(sharpness * (raw - peak[:, None])).masked_fill(outside, 0.0)
            total = weights.sum(1).double().clamp_min(1e-300)
            own = (weights * alike).sum(1).double()
            log_p.append((own / total).log())
            features.append(total.clamp_min(1).log())
            features.append((weights * novel).sum(1).double() / total)
        return Found(
            torch.stack(log_p, 1).cpu().numpy(),
            torch.stack(features, 1).cpu().numpy(),
            alike.any(1).cpu().numpy(),
            (size == 0).cpu().numpy(),
        )

    @torch.no_grad()
    def distribution(self, state: Tensor) -> tuple[NDArray[np.int64], Found]:
        """(strings in memory, what it says of each of them) at a state (D,).  (S,), (S, …)

        Features do not depend on the string: there is one row of them.
        """
        strings, place = np.unique(self.strings, return_inverse=True)
        probe = self._look_up(state[None], np.array([-1]))
        log_p = np.full((len(strings), len(self.sharpness)), -np.inf)
        if len(strings):
            raw = (self.states.to(state.device) @ state).double().cpu().numpy()
            for k, sharpness in enumerate(self.sharpness):
                weights = np.exp(sharpness * (raw - raw.max()))
                sums = np.bincount(place, weights, len(strings))
                log_p[:, k] = np.log(sums / weights.sum())
        return strings, replace(probe, log_p=log_p)

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
            "states": self.states, "strings": self.strings, "next": self._next,
            "numbers": dict(self._numbers),
        }  # fmt: skip

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self.states, self.strings = kept["states"], kept["strings"]
        self._next = int(kept["next"])
        self._name(kept["numbers"])
