"""Where a training is, and what it has told since its last report. A part of every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field


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
