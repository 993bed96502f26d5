"""A lexicon that grows: a novel word, once spelled, becomes a lexeme that can be summoned.

The words that have grown are a tail of the softmax, and UNK stands for it in the head:

    p(s | UNK, h) = softmax over the grown words and `spell a new one`
    logit of a grown word: like · h·e(s) + often · log n(s);  of a new one: `new`

where e(s), its embedding, is the mean of the states that predicted it so far: embeddings are tied,
so what predicts a word points to where the word is. Then UNK spells only what has not grown.

    D width, G grown words
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GrowthSettings:
    """How grown words compete."""

    limit: int = 2000
    """Grown words that are kept: the latest that were met."""
    like: float = 0.3
    often: float = 1.0
    new: float = 4.0

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"the limit of grown words must be at least 1, got {self.limit}")


@dataclass(frozen=True)
class Chance:
    """What is known of a novel word before it is met."""

    likeness: Floats
    """h·e of each grown word.  (G,)"""
    log_counts: Floats
    own: int
    """Its own place among them; −1 if it has not grown."""

    def log_all(self, settings: GrowthSettings) -> tuple[Floats, float]:
        """(log p of each grown word, log p that a new one is spelled).  (G,)"""
        logits = settings.like * self.likeness + settings.often * self.log_counts
        total = float(np.logaddexp.reduce(logits, initial=settings.new))
        return logits - total, settings.new - total

    def log_p(self, settings: GrowthSettings) -> tuple[float, float]:
        """(log p of the word itself, −∞ if it has not grown; log p that a new one is spelled)."""
        each, new = self.log_all(settings)
        return -np.inf if self.own < 0 else float(each[self.own]), new


class Grown:
    """The words that have grown."""

    def __init__(self, width: int, limit: int) -> None:
        self._places: dict[str, int] = {}  # word → row, those that were not met for long first
        self._sums = torch.zeros(limit, width, dtype=torch.float64)
        self._counts = np.zeros(limit)

    def forget(self) -> None:
        """Begins anew."""
        self._places.clear()

    def words(self) -> list[str]:
        """Those that have grown."""
        return list(self._places)

    def look(self, state: Tensor, word: str | None = None) -> Chance:
        """What a state (D,) makes of the grown words, in the order of `words`, and of a word."""
        places = np.fromiter(self._places.values(), np.int64, len(self._places))
        counts = np.maximum(self._counts[places], 1)
        n = len(self._places)  # rows are filled in order
        likeness = (self._sums[:n] @ state.double().cpu()).numpy()[places] / counts
        own = -1 if word is None or word not in self._places else list(self._places).index(word)
        return Chance(likeness, np.log(counts), own)

    def meet(self, word: str, state: Tensor) -> Chance:
        """What the present state (D,) makes of a novel word; then the word is learned."""
        chance = self.look(state, word)
        self.learn(word, state)
        return chance

    def learn(self, word: str, state: Tensor) -> None:
        """Takes in a novel word that a state predicted."""
        place = self._places.pop(word, None)
        if place is None:
            if len(self._places) < len(self._counts):
                place = len(self._places)
            else:
                place = self._places.pop(next(iter(self._places)))
            self._sums[place], self._counts[place] = 0.0, 0.0
        self._places[word] = place
        self._sums[place] += state.double().cpu()
        self._counts[place] += 1

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers."""
        return {
            "places": dict(self._places), "sums": self._sums.clone(), "counts": self._counts.copy(),
        }  # fmt: skip

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._places = dict(kept["places"])
        self._sums, self._counts = kept["sums"].clone(), kept["counts"].copy()
