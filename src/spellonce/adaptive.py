"""A two-level model that remembers: its scores mixed with a cache of what it has just read.

    p(s | ctx) = π_0 · p_static(s | ctx) + Σ_k π_k · c_k(s | h)

c_k are the components of the cache (see `cache`), π = π(h, what the cache knows) a softmax gate.
It is one distribution over lexemes ∪ novel words in memory ∪ UNK, so a coder can spend it: a
lexeme adds up both routes, a novel word in memory has the cache's alone, and UNK spells only what
is in neither. Nothing that comes later has a part in a score; the cache is a mixture of what was
read before, and weights change, if they do, after a segment was scored.

    N tokens, D width, K components, F features
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.cache import Found, Memory, n_features
from spellonce.errors import ConfigError, RunError
from spellonce.lexicon import EOS_ID, UNK_ID, Lexicon, Spellings
from spellonce.two_level import Followed, TwoLevel

STRIP = 500
"""Tokens that are followed at a time where weights do not change."""
_NEVER = -1e9
"""A logit of what must not be."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CacheSettings:
    """A cache and its gate."""

    window: int = 3000
    """Tokens that are remembered."""
    sharpness: tuple[float, ...] = (0.0, 0.1, 0.3)
    """θ of each component: how much more a state counts the more it is like the present one."""
    by_features: tuple[tuple[float, ...], ...] = ()
    """The gate's weights of features; rows are static, component 1, 2, …  (1 + K, F + 1)"""
    by_state: tuple[tuple[float, ...], ...] = ()
    """Its weights of the hidden state; none: it does not look at it.  (1 + K, D)"""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"the cache's window must be at least 1, got {self.window}")
        n_k = len(self.sharpness)
        shape = (1 + n_k, n_features(n_k) + 1)
        if self.by_features and np.shape(self.by_features) != shape:
            raise RunError(f"the cache's gate does not fit: {np.shape(self.by_features)}, {shape}")

    @classmethod
    def fixed(cls, weight: float, sharpness: float, window: int = 3000) -> CacheSettings:
        """One component with the same weight everywhere."""
        if not 0 <= weight < 1:
            raise ConfigError(f"the cache's weight must be at least 0 and below 1, got {weight}")
        rows = np.zeros((2, n_features(1) + 1))
        rows[1, -1] = np.log(weight) - np.log1p(-weight) if weight else _NEVER
        return cls(window, (sharpness,), tuple(map(tuple, rows.tolist())))

    def log_weights(self, found: Found, states: Tensor) -> Floats:
        """log π of each token.  (N, 1 + K)"""
        inputs = np.concatenate([found.features, np.ones((len(found.features), 1))], 1)
        logits = inputs @ np.array(self.by_features).T
        if self.by_state:
            logits += states.double().cpu().numpy() @ np.array(self.by_state).T
        logits[logits < _NEVER / 2] = -np.inf
        log_weights: Floats = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
        log_weights[found.is_empty] = [0.0, *[-np.inf] * len(self.sharpness)]
        return log_weights


def mix(static: Floats, is_novel: NDArray[np.bool_], found: Found, log_weights: Floats) -> Floats:
    """−log p of each token under the mixture, given −log p_static."""
    cached = np.logaddexp.reduce(found.log_p + log_weights[:, 1:], 1)
    own = np.where(is_novel & (cached > -np.inf), -np.inf, log_weights[:, 0] - static)
    nats: Floats = -np.logaddexp(own, cached)
    return nats


@dataclass(frozen=True)
class Piece:
    """The scores of some tokens."""

    lm_nats: Floats
    spell_nats: Floats
    """The two parts of the static score."""
    nats: Floats
    """The adaptive score."""


class Reader:
    """Reads one stream, piece by piece, and scores every token before it learns from it."""

    def __init__(
        self, network: TwoLevel, lexicon: Lexicon, cache: CacheSettings | None = None
    ) -> None:
        self.network, self.lexicon, self.cache = network, lexicon, cache
        self._state = network.zero_state(1)
        self._before = EOS_ID
        self.memory: Memory | None = None
        if cache is not None:
            self.memory = Memory(
                network.lm.table.n_embed, lexicon.n_lexemes,
                window=cache.window, sharpness=cache.sharpness,
            )  # fmt: skip

    def forget(self) -> None:
        """Empties the cache; the hidden state stays."""
        if self.memory is not None:
            self.memory.forget()

    def read(self, tokens: Sequence[str]) -> Piece:
        """Scores the next tokens of the stream."""
        pieces = [self._read(tokens[i : i + STRIP]) for i in range(0, len(tokens), STRIP)]
        none = np.zeros(0)
        return Piece(*(
            np.concatenate([none, *(getattr(piece, name) for piece in pieces)])
            for name in ("lm_nats", "spell_nats", "nats")
        ))  # fmt: skip

    def _read(self, tokens: Sequence[str]) -> Piece:
        ids, _ = self.lexicon.encode(tokens)
        is_novel = ids == UNK_ID
        replace = self.lexicon.alphabet.replace
        words = [replace(tokens[i]) for i in np.flatnonzero(is_novel).tolist()]
        followed = self._follow(ids, Spellings.of(self.lexicon.alphabet, words))
        self._state, self._before = followed.state, int(ids[-1])
        static = followed.lm_nats + followed.spell_nats
        if self.cache is None or self.memory is None:
            return Piece(followed.lm_nats, followed.spell_nats, static)
        strings = ids.astype(np.int64)
        strings[is_novel] = [self.memory.number(word) for word in words]
        found = self.memory.read(followed.states, strings)
        log_weights = self.cache.log_weights(found, followed.states)
        nats = mix(static, is_novel, found, log_weights)
        return Piece(followed.lm_nats, followed.spell_nats, nats)

    @torch.no_grad()
    def _follow(self, ids: NDArray[np.int64], spellings: Spellings) -> Followed:
        return self.network.follow(ids, self._before, spellings, self._state)

    # --- keeping it -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that it carries from piece to piece."""
        return {
            "state": [tuple(t.clone() for t in part) for part in self._state],
            "before": self._before,
            "memory": None if self.memory is None else self.memory.state_dict(),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._state, self._before = kept["state"], kept["before"]
        if self.memory is not None:
            self.memory.restore(kept["memory"])
