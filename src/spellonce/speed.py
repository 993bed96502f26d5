"""How fast a training step is on this machine: what a budget is planned with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spellonce.trainer import Trainer


@dataclass(frozen=True)
class Speed:
    """Seconds of a step, measured on this machine."""

    step: float
    """A step without the lexicon factor."""
    lexicon: float
    """What the lexicon factor adds to a step that has it."""

    def per_step(self, interval: int) -> float:
        """Mean seconds per step."""
        return self.step + self.lexicon / interval


def measure_speed(
    trainer: Trainer, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Speed:
    """Takes steps for about so many seconds, and times them. The trainer is spent afterwards.

    The first third is not counted: threads start, and memory is touched for the first time.
    """
    times: dict[bool, list[float]] = {False: [], True: []}
    begin = clock()
    n_steps = 0
    while trainer.team.led(lambda: clock() < begin + seconds or len(times[False]) < 2):
        # Lexicon steps are rare in training; here one in four is made one.
        lexicon = trainer.has_lexicon_factor and n_steps % 4 == 1
        start = clock()
        trainer.step(lexicon=lexicon)
        n_steps += 1
        if start > begin + seconds / 3 and n_steps > 2:
            times[lexicon].append(clock() - start)
    step = float(np.mean(times[False]))
    return Speed(step, max(0.0, float(np.mean(times[True])) - step) if times[True] else 0.0)
