"""A plan's places, and a budget kept by a machine that changes its mind."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spellonce.plan import REVISIONS, Budget, Plan
from spellonce.runs import RunFolder
from spellonce.training import _Training

steps = st.integers(1, 10_000)


@given(steps, st.lists(st.tuples(st.floats(0, 1, allow_subnormal=False), steps), max_size=6))
def test_places_run_from_0_to_1_without_a_jump(
    total: int, revisions: list[tuple[float, int]]
) -> None:
    plan = Plan.of(total)
    for share, more in revisions:
        at = plan.marks[-1][0] + int(share * (plan.total - 1 - plan.marks[-1][0]))
        before = plan
        plan = plan.revised(at, at + more)
        assert plan.place(at) == pytest.approx(before.place(at), abs=1e-9)
    probes = sorted(
        {0, plan.total, *(at for at, _ in plan.marks), plan.total // 2, plan.total // 3}
    )
    places = [plan.place(step) for step in probes]
    assert places[0] == 0 and places[-1] == pytest.approx(1)
    assert places == sorted(places)


def drive(budget: Budget, seconds_of: list[float], shares: list[float]) -> tuple[float, Plan]:
    """A run whose steps take `seconds_of[i]` from the moment that a share of the budget is gone."""
    plan, step, now = Plan.of(budget.steps()), 0, budget.spent
    total_seconds, after, first = budget.seconds, budget.after, budget.per_step

    def per_step() -> float:
        return seconds_of[sum(now > share * total_seconds for share in shares)]

    while step < plan.total:
        now += per_step()
        step += 1
        if step < plan.total and budget.is_due(plan, step):
            budget.after = after * per_step() / first
            plan = budget.revise(plan, step, now)
    return now + after * per_step() / first, plan


speeds = st.floats(0.6, 1.5)


@given(
    st.lists(speeds, min_size=3, max_size=3), st.lists(st.floats(0.1, 0.85), min_size=2, max_size=2)
)
def test_a_budget_is_kept_though_the_speed_changes(
    seconds_of: list[float], at: list[float]
) -> None:
    budget = Budget(seconds=1000, per_step=1.0, after=50, step=0, spent=100)
    taken, plan = drive(budget, seconds_of, sorted(at))
    assert taken == pytest.approx(1000, rel=0.1)
    assert len(plan.marks) <= len(REVISIONS) + 1


def test_a_steady_machine_needs_no_correction() -> None:
    budget = Budget(seconds=1000, per_step=0.5, after=50, step=0, spent=100)
    taken, plan = drive(budget, [0.5], [])
    assert taken == pytest.approx(1000, rel=0.001)
    assert {total for _, total in plan.marks} <= {1699, 1700, 1701}


def test_a_budget_that_is_gone_ends_at_once() -> None:
    budget = Budget(seconds=100, per_step=1.0, after=10, step=0, spent=10)
    assert budget.revise(Plan.of(80), 8, 200.0).total == 9


def test_a_resumed_run_keeps_the_plan_it_has(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    training = object.__new__(_Training)
    training.run = run
    stored = Budget(seconds=100, per_step=1.0, after=10, step=0, spent=10)
    run.write_json("plan.json", {"steps": stored.steps(), **asdict(stored)})
    for resumed, expected in ((False, stored), (True, None)):
        training.resumed = resumed
        assert training._budget() == expected
