"""The learned cache of HCLMcache: recent words, keyed by the states that predicted them.

Which slot holds which word when does not depend on any weight. So the course of the cache over a
window is worked out first, in NumPy, and the attention of all its positions is then one product.
What was our choice stands in `hclm`.

    T window, B rails, S slots, D width
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce.lexicon import N_SPECIAL


@dataclass(frozen=True)
class Course:
    """How the cache fares over a window. Versions of keys: the S carried in, then one per token."""

    live: NDArray[np.bool_]
    """Which versions are in some slot when a token is predicted.  (B, T, S + T)"""
    hit: NDArray[np.int64]
    """The version that holds the token, or −1.  (B, T)"""
    blend: NDArray[np.float32]
    """Each token's version as a mixture of carried keys and states.  (B, T, S + T)"""
    versions: NDArray[np.int64]
    words: NDArray[np.int64]
    uses: NDArray[np.float64]
    """Version, word (−1: none) and use of each slot in the end.  (B, S)"""


def follow(
    tokens: NDArray[np.int64],
    words: NDArray[np.int64],
    uses: NDArray[np.float64],
    decay: float,
) -> Course:
    """Enters tokens (T, B) one after another; those below `N_SPECIAL` are not cached.

    >>> empty = np.full((1, 2), -1), np.full((1, 2), -1.0)
    >>> course = follow(np.array([[7], [8], [7], [9]]), *empty, decay=0.9)
    >>> course.hit.tolist(), course.words.tolist()    # 9 takes the place of 8
    ([[-1, -1, 2, -1]], [[7, 9]])
    """
    n_steps, n_rails = tokens.shape
    n_slots = words.shape[1]
    rail = np.arange(n_rails)
    words, uses = words.copy(), uses.copy()
    versions = np.tile(np.arange(n_slots), (n_rails, 1))
    live = np.zeros((n_rails, n_steps, n_slots + n_steps), dtype=bool)
    hits = np.full((n_rails, n_steps), -1)
    blend = np.zeros((n_rails, n_slots + n_steps, n_slots + n_steps), dtype=np.float32)
    blend[:, np.arange(n_slots), np.arange(n_slots)] = 1.0
    for t in range(n_steps):
        token = tokens[t]
        here, slots = np.nonzero(words >= 0)
        live[here, t, versions[here, slots]] = True
        match = words == token[:, None]
        hit, cached = match.any(1), token >= N_SPECIAL
        slot = np.where(hit, match.argmax(1), uses.argmin(1))
        hits[:, t] = np.where(hit & cached, versions[rail, slot], -1)
        uses = np.where(uses >= 0, uses * decay, uses)
        new = n_slots + t
        old = blend[rail, versions[rail, slot]]
        blend[:, new] = np.where(hit[:, None], 0.5 * old, 0.0)
        blend[:, new, new] += np.where(hit, 0.5, 1.0)
        on = rail[cached]
        uses[on, slot[on]] = np.where(hit[on], uses[on, slot[on]] + 1, 1.0)
        words[on, slot[on]] = token[on]
        versions[on, slot[on]] = new
    return Course(live, hits, blend[:, n_slots:], versions, words, uses)


class WordCache(nn.Module):
    """The learned part of the cache: where to look, and how far to trust it."""

    def __init__(self, slots: int, decay: float, n_vector: int) -> None:
        super().__init__()
        self.slots, self.decay, self.n_vector = slots, decay, n_vector
        self.query = nn.Linear(n_vector, n_vector, bias=False)
        self.gate = nn.Linear(n_vector, 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Look at what is like the present state; trust the speller first."""
        with torch.no_grad():
            bound = self.n_vector**-0.5
            self.query.weight.uniform_(-bound, bound, generator=generator)
            self.query.weight += torch.eye(self.n_vector)
            self.gate.weight.zero_()
            self.gate.bias.fill_(2.0)

    def zero_state(self, n_rails: int) -> tuple[Tensor, ...]:
        """Empty slots: keys, words, uses."""
        keys = self.query.weight.new_zeros(n_rails, self.slots, self.n_vector)
        words = torch.full((n_rails, self.slots), -1, device=keys.device)
        return keys, words, torch.full(words.shape, -1.0, dtype=torch.float64, device=keys.device)

    def mix(
        self,
        states: Tensor,
        tokens: NDArray[np.int64],
        spell_nats: Tensor,
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Nats of tokens (T, B) by both routes, given what spelling them costs, and the new slots.

        Tokens that are not cached keep their nats.
        """
        keys, words, uses = state
        course = follow(tokens, words.cpu().numpy(), uses.cpu().numpy(), self.decay)
        device = states.device
        live, hit, blend = (
            torch.from_numpy(x).to(device) for x in (course.live, course.hit, course.blend)
        )
        h = states.transpose(0, 1)  # (B, T, D)
        keys = torch.cat([keys, blend @ torch.cat([keys, h], 1)], 1)  # (B, S + T, D)
        log_attention = self._attend(h, keys, live)
        log_cache = log_attention.gather(2, hit.clamp_min(0).unsqueeze(2))[..., 0].T  # (T, B)
        trust = self.gate(states)[..., 0]  # (T, B)
        spelled = functional.logsigmoid(trust) - spell_nats
        summoned = functional.logsigmoid(-trust) + log_cache
        both = torch.where(hit.T >= 0, torch.logaddexp(spelled, summoned), spelled)
        in_use = live.any(2).T & torch.from_numpy(tokens >= N_SPECIAL).to(device)
        nats = torch.where(in_use, -both, spell_nats)
        place, new_words, new_uses = (
            torch.from_numpy(x).to(device) for x in (course.versions, course.words, course.uses)
        )
        new_keys = keys.gather(1, place.unsqueeze(2).expand(-1, -1, self.n_vector))
        return nats, (new_keys, new_words, new_uses)

    def _attend(self, h: Tensor, keys: Tensor, live: Tensor) -> Tensor:
        """log attention of states (B, T, D) on live keys (B, S, D) → (B, T, S)"""
        scores = self.query(h) @ keys.transpose(1, 2) / self.n_vector**0.5
        # A large finite number instead of −∞: a row without live keys must not become NaN.
        scores = scores.to(keys.dtype)  # where products have fewer digits, a softmax has not
        return torch.log_softmax(scores.masked_fill(~live, -1e9), 2)

    def route(self, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Logits of (speller, cache) and of the slots, at one moment of one rail."""
        keys, words, _ = state
        filled = words >= 0
        trust = self.gate(hidden)[0] if filled.any() else hidden.new_full((1,), float("inf"))
        attention = self._attend(hidden[None], keys, filled[None])[0, 0]
        routes = torch.cat([functional.logsigmoid(trust), functional.logsigmoid(-trust)])
        return routes, attention.masked_fill(~filled[0], float("-inf"))
