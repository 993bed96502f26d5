"""What was read so far, to be summoned again: an open-vocabulary cache keyed by hidden state.

A memory holds the last W tokens as (state that predicted it, words before it, string). At a state h
its components are distributions over strings,

    c_k(s | h) = Σ_j softmax_j(θ_k · h·h_j) · [s_j = s]      over the j that came after the same
                                                             a_k words as what comes now

θ is a sharpness (0 counts how often a string came), and a = 0 looks at all that is remembered.
Strings are numbers: lexemes have their ids, novel ones get the next free number when they are met.

Cost and memory per token depend on W and not on the length of the text, and a text that is read in
pieces is remembered as one that is read at once.

    N tokens of a piece, M tokens in memory, W window, D width, K components, A words before
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.errors import ConfigError

_BLOCK = 256
"""Tokens that are looked up at a time."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FURTHEST = 3
"""Words before that a component may look at."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Component:
    """One way to look into the memory."""

    sharpness: float
    """θ: how much more a state counts the more it is like the present one."""
    after: int = 0
    """Words before that must be the same."""

    def __post_init__(self) -> None:
        if not isinstance(self.after, int) or not 0 <= self.after <= _FURTHEST:
            raise ConfigError(f"after must be from 0 to {_FURTHEST}, got {self.after!r}")
        if not (isinstance(self.sharpness, float | int) and 0 <= self.sharpness < np.inf):
            raise ConfigError(f"sharpness must be 0 or more, got {self.sharpness!r}")


@dataclass(frozen=True)
class Found:
    """What the memory says of each token of a piece, before it has seen it."""

    log_p: Floats
    """log c_k of the token's own string; −∞ where it is not in memory.  (N, K)"""
    features: Floats
    """What is known of the memory at that moment, for a gate.  (N, F)"""
    is_there: NDArray[np.bool_]
    """Whether a component has anything to say.  (N, K)"""

    @classmethod
    def joined(cls, parts: Sequence[Found], n_components: int) -> Found:
        """End to end."""
        none = cls(
            np.zeros((0, n_components)), np.zeros((0, n_features(n_components))),
            np.zeros((0, n_components), dtype=bool),
        )  # fmt: skip
        return cls(*(
            np.concatenate([getattr(part, name) for part in (none, *parts)])
            for name in ("log_p", "features", "is_there")
        ))  # fmt: skip


def n_features(n_components: int) -> int:
    """F"""
    return 2 + 3 * n_components


class Memory:
    """The last tokens."""

    def __init__(
        self, width: int, n_lexemes: int, *, window: int, components: Sequence[Component]
    ) -> None:
        self.window, self.components, self.n_lexemes = window, tuple(components), n_lexemes
        self._reach = max((c.after for c in components), default=0)
        # What is remembered is from `_begin` to `_end`; there is room for as much again, and more.
        room = 2 * window + _BLOCK
        self._states = torch.zeros(room, width)
        self._strings = np.zeros(room, dtype=np.int64)
        self._contexts = np.zeros((room, self._reach), dtype=np.int64)
        self._next = n_lexemes
        self.forget()

    @property
    def states(self) -> Tensor:
        """Those that predicted what is remembered.  (M, D)"""
        return self._states[self._begin : self._end]

    @property
    def strings(self) -> NDArray[np.int64]:
        """What is remembered, the latest last.  (M,)"""
        return self._strings[self._begin : self._end]

    @property
    def contexts(self) -> NDArray[np.int64]:
        """What came before each: the last word, the last two, …, in a number each.  (M, A)"""
        return self._contexts[self._begin : self._end]

    def forget(self) -> None:
        """Begins anew."""
        self._begin = self._end = 0
        self._recent = np.zeros(self._reach, dtype=np.uint64)  # the latest last
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

    def _names(self, strings: NDArray[np.int64]) -> NDArray[np.uint64]:
        """What strings are known by in contexts: a novel word's number may be another one day."""
        names = strings.astype(np.uint64)
        for i in np.flatnonzero(strings >= self.n_lexemes).tolist():
            name = self._words[int(strings[i])].encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(name, digest_size=8).digest()
            names[i] = int.from_bytes(digest, "little")
        return names + np.uint64(1)  # 0: nothing was before

    def _contexts_of(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The words before each of the next ones, and before what comes then.  (N + 1, A)"""
        line = np.concatenate([self._recent, names])
        n = len(names) + 1
        found = np.zeros((n, self._reach), dtype=np.uint64)
        code = np.zeros(n, dtype=np.uint64)
        for a in range(self._reach):
            code = (code + line[self._reach - 1 - a :][:n]) * _MIX
            code ^= code >> np.uint64(29)
            found[:, a] = code
        return found.view(np.int64)

    @torch.no_grad()
    def read(self, states: Tensor, strings: NDArray[np.int64]) -> Found:
        """Looks tokens up, each in what was before it, and remembers them.  (N, D), (N,)"""
        parts = []
        for start in range(0, len(strings), _BLOCK):
            block = slice(start, start + _BLOCK)
            parts.append(self._look_up(states[block], strings[block]))
            self.remember(states[block], strings[block])
        return Found.joined(parts, len(self.components))

    def remember(self, states: Tensor, strings: NDArray[np.int64]) -> None:
        """Takes in tokens, and forgets those that are out of reach.  (N, D), (N,); N ≤ a block"""
        n = len(strings)
        if self._end + n > len(self._strings):
            self._move()
        new = slice(self._end, self._end + n)
        self._states[new] = states.cpu()
        self._strings[new] = strings
        if self._reach:
            names = self._names(strings)
            self._contexts[new] = self._contexts_of(names)[:-1]
            self._recent = np.concatenate([self._recent, names])[-self._reach :]
        self._end += n
        self._begin = max(self._begin, self._end - self.window)

    def _move(self) -> None:
        """What is remembered to the beginning of the room."""
        kept, size = slice(self._begin, self._end), self._end - self._begin
        self._states[:size] = self._states[kept].clone()
        for array in (self._strings, self._contexts):
            array[:size] = array[kept].copy()
        self._begin, self._end = 0, size

    def _look_up(self, states: Tensor, strings: NDArray[np.int64]) -> Found:
        n, before, device = len(strings), len(self.strings), states.device
        keys = torch.cat([self.states.to(device), states])  # (M, D)
        names = torch.from_numpy(np.concatenate([self.strings, strings])).to(device)
        at = torch.arange(n, device=device)[:, None] + before
        place = torch.arange(len(names), device=device)
        outside = (place >= at) | (place < at - self.window)  # (N, M)
        alike = (names == names[before:, None]).masked_fill(outside, False)
        raw = (states @ keys.T).masked_fill(outside, -torch.inf)
        own = self._contexts_of(self._names(strings))[:-1] if self._reach else self.contexts[:0]
        contexts = torch.from_numpy(np.concatenate([self.contexts, own])).to(device)
        weights, features, there = self._weigh(
            raw, names >= self.n_lexemes, contexts, contexts[before:]
        )
        log_p = [
            ((w * alike).sum(1).double() / w.sum(1).double().clamp_min(1e-300)).log()
            for w in weights
        ]
        return Found(torch.stack(log_p, 1).cpu().numpy(), features, there)

    def _weigh(
        self, raw: Tensor, novel: Tensor, contexts: Tensor, present: Tensor
    ) -> tuple[list[Tensor], Floats, NDArray[np.bool_]]:
        """(weights of each component, features, whether it has any) of likenesses (N, M), which are
        −∞ where nothing is.

        `novel`: which strings are (M,); `contexts` of them (M, A); `present`: those of now (N, A).
        """
        ways = [_Way.of(raw)]
        for a in range(self._reach):
            same = contexts[None, :, a] == present[:, None, a]
            ways.append(_Way.of(ways[-1].likeness.masked_fill(~same, -torch.inf)))
        size = (raw > -torch.inf).sum(1)
        highest = torch.where(size > 0, ways[0].peak, 0.0)
        weights, features, there = [], [highest.double() / 10, (size.double() + 1).log()], []
        for component in self.components:
            way = ways[component.after]
            is_there = way.peak > -torch.inf
            weight = way.weights(component.sharpness)
            total = weight.sum(1).double()
            weights.append(weight)
            there.append(is_there)
            features.append(total.clamp_min(1).log())
            features.append((weight * novel).sum(1).double() / total.clamp_min(1e-300))
            features.append(torch.where(is_there, way.peak - highest, 0.0).double() / 10)
        return weights, torch.stack(features, 1).cpu().numpy(), torch.stack(there, 1).cpu().numpy()

    @torch.no_grad()
    def distribution(self, state: Tensor) -> tuple[NDArray[np.int64], Found]:
        """(strings in memory, what it says of each of them) at a state (D,).  (S,), (S, …)

        Features and what is there do not depend on the string: there is one row of them.
        """
        strings, place = np.unique(self.strings, return_inverse=True)
        device = state.device
        raw = (self.states.to(device) @ state)[None]  # (1, M)
        novel = torch.from_numpy(self.strings >= self.n_lexemes).to(device)
        contexts = torch.from_numpy(self.contexts).to(device)
        now = torch.from_numpy(self._contexts_of(np.zeros(0, dtype=np.uint64))).to(device)
        weights, features, there = self._weigh(raw, novel, contexts, now)
        log_p = np.full((len(strings), len(self.components)), -np.inf)
        for k in np.flatnonzero(there[0]).tolist():
            each = weights[k][0].double().cpu().numpy()
            with np.errstate(divide="ignore"):
                log_p[:, k] = np.log(np.bincount(place, each, len(strings)) / each.sum())
        return strings, Found(log_p, features, there)

    def word(self, number: int) -> str:
        """The novel word of a number."""
        return self._words[number]

    def novel_words(self) -> set[str]:
        """Those that are in memory."""
        return {self._words[n] for n in set(self.strings.tolist()) if n >= self.n_lexemes}

    # --- keeping it -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers."""
        self._move()  # so that it is where it is for whoever restores it: sums take the same turns
        return {
            "states": self.states.clone(), "strings": self.strings.copy(),
            "contexts": self.contexts.copy(), "recent": self._recent.copy(), "next": self._next,
            "numbers": dict(self._numbers),
        }  # fmt: skip

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave. ValueError: it does not fit together."""
        strings, words = kept["strings"], set(kept["numbers"].values())
        if len(strings) > self.window or not set(strings[strings >= self.n_lexemes]) <= words:
            raise ValueError("what was remembered does not fit together")
        self._begin, self._end = 0, len(strings)
        self._states[: self._end], self._strings[: self._end] = kept["states"], kept["strings"]
        self._contexts[: self._end] = kept["contexts"]
        self._recent, self._next = kept["recent"].copy(), int(kept["next"])
        self._name(kept["numbers"])


@dataclass(frozen=True)
class _Way:
    """What comes after the same words."""

    likeness: Tensor
    """−∞ where something else is.  (N, M)"""
    distance: Tensor
    """From the most alike; −∞ too.  (N, M)"""
    peak: Tensor
    """The likeness of that one, −∞ if there is none.  (N,)"""

    @classmethod
    def of(cls, likeness: Tensor) -> _Way:
        peak = likeness.new_full((len(likeness),), -torch.inf)
        if likeness.shape[1]:
            peak = likeness.amax(1)
        distance = (likeness - peak[:, None]).masked_fill(likeness == -torch.inf, -torch.inf)
        return cls(likeness, distance, peak)

    def weights(self, sharpness: float) -> Tensor:
        """Of each that is remembered, 1 for the most alike.  (N, M)"""
        if sharpness == 0:
            return (self.likeness > -torch.inf).to(self.likeness.dtype)
        return torch.exp(sharpness * self.distance)
