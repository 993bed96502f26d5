"""How long a run is: a number of steps, and corrections of it where a budget asks for them.

A machine's speed changes while it trains, so a run with a budget is planned again several times.
The schedule of the learning rate is a function of the *place* of a step between 0 and 1, and each
correction only changes how fast the remaining places are walked through: the rate never jumps.
"""

from __future__ import annotations

from dataclasses import dataclass

REVISIONS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95)
"""The places at which a budget is planned again."""


@dataclass(frozen=True)
class Plan:
    """From which step on a run is planned to end after how many: the marks (step, total).

    >>> plan = Plan.of(100).revised(50, 150)
    >>> [plan.place(step) for step in (0, 25, 50, 100, 150)]
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    marks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, steps: int) -> Plan:
        """So many steps from the beginning."""
        return cls(((0, steps),))

    @property
    def total(self) -> int:
        """How many steps the run takes in all."""
        return self.marks[-1][1]

    def place(self, step: float) -> float:
        """Where a step stands in the schedule, from 0 to 1."""
        place, (begin, total) = 0.0, self.marks[0]
        for next_begin, next_total in self.marks[1:]:
            if step < next_begin:
                break
            place += (1 - place) * (next_begin - begin) / (total - begin)
            begin, total = next_begin, next_total
        return place + (1 - place) * (step - begin) / (total - begin)

    def revised(self, step: int, total: int) -> Plan:
        """The plan that ends after `total` steps instead; what came before `step` stays."""
        return Plan((*self.marks, (step, max(total, step + 1))))


@dataclass
class Budget:
    """Keeps a run to its seconds."""

    seconds: float
    """For the whole run."""
    per_step: float
    """Seconds of a step, as measured before the first one."""
    after: float
    """Seconds that the end takes: scoring the validation split, saving."""
    step: int
    """The step from which on time is now being measured,"""
    spent: float
    """and the seconds that were spent until then."""

    def steps(self) -> int:
        """How many steps fit in, as far as one knows before the first."""
        return int((self.seconds - self.spent - self.after) / self.per_step)

    def is_due(self, plan: Plan, step: int) -> bool:
        """Whether to plan again now."""
        done = len(plan.marks) - 1
        return done < len(REVISIONS) and self.step < step and plan.place(step) >= REVISIONS[done]

    def revise(self, plan: Plan, step: int, spent: float) -> Plan:
        """Plans the steps that are left by the speed since the last time."""
        per_step = (spent - self.spent) / (step - self.step)
        self.step, self.spent = step, spent
        left = self.seconds - spent - self.after
        return plan.revised(step, step + round(left / max(per_step, 1e-9)))
