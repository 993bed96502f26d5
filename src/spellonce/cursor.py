"""Where a training is, and what it has told since its last report. A part of every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

_WORSE, _PATIENCE = 1.3, 5
"""Training has diverged if its bpc is so many times what it began with, in so many reports …"""
_SURE = 10
"""… of at least so many steps each: of few, it is chance what they are about."""


@dataclass(frozen=True)
class Told:
    """What a step tells."""

    lm_nats: float = 0.0
    novel_nats: float = 0.0
    lexicon_nats: float = 0.0
    lexemes: float = 0.0


@dataclass
class Tally:
    """Sums since the last report."""

    tokens: int = 0
    lm_nats: float = 0.0
    novel_nats: float = 0.0
    lexicon_nats: float = 0.0
    lexemes: float = 0.0
    clipped: int = 0
    steps: int = 0


@dataclass
class Cursor:
    """Where a run is."""

    step: int = 0
    epoch: int = 0
    window: int = 0
    lexicon_batches: int = 0
    tokens: int = 0
    averaged: int = 0
    first_bpc: float | None = None
    """Of training, in the first report."""
    worse: int = 0
    """Reports in a row that were clearly worse than that."""
    valid_nats: list[float] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def divergence(self, bpc: float) -> str | None:
        """What shows that training has diverged, given the bpc of the latest report; None: nothing.

        >>> cursor = Cursor(tally=Tally(steps=50))
        >>> [cursor.divergence(bpc) for bpc in (2.0, 1.9, 3.0, 3.0, 3.0, 3.0)]
        [None, None, None, None, None, None]
        >>> cursor.divergence(3.0)
        '3.00 bpc on the training text, where the first steps had 2.00'
        """
        if self.tally.steps < _SURE:
            return None
        if self.first_bpc is None:
            self.first_bpc = bpc
        self.worse = self.worse + 1 if bpc > _WORSE * self.first_bpc else 0
        if self.worse < _PATIENCE:
            return None
        return f"{bpc:.2f} bpc on the training text, where the first steps had {self.first_bpc:.2f}"
