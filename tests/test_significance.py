"""p-values against scipy, against plain enumeration, and against what must hold for any."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from spellonce import significance
from spellonce.errors import DataError
from spellonce.significance import holm, permutation_test


def p_of(differences: object, **options: int) -> float:
    test = permutation_test([differences], **options)
    assert test.p.shape == (1,)
    return float(test.p[0])


def articles(n: int, seed: int, effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Bits of two systems, the second of which needs `effect` more on average."""
    rng = np.random.default_rng(seed)
    length = rng.integers(500, 5_000, n)
    a = length * rng.normal(1.6, 0.1, n)
    return a, a + length * rng.normal(effect, 0.02, n)


def absolute_sum(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return np.abs((x - y).sum(axis=axis))


def signed_sum(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    return (x - y).sum(axis=axis)


@pytest.mark.parametrize("n", range(2, 14))
@pytest.mark.parametrize("effect", [0, 0.01])
def test_all_patterns_against_scipy(n: int, effect: float) -> None:
    a, b = articles(n, n, effect)
    options = {"permutation_type": "samples", "vectorized": True, "n_resamples": 10_000}
    test = permutation_test([a - b])
    assert (test.exact, test.n_permutations) == (True, 2**n)
    one = scipy.stats.permutation_test((a, b), absolute_sum, alternative="greater", **options)
    two = scipy.stats.permutation_test((a, b), signed_sum, alternative="two-sided", **options)
    assert test.p[0] == one.pvalue == two.pvalue


@pytest.mark.parametrize("effect", [0, 0.003, 0.01])
def test_drawn_patterns_against_all_of_them_and_scipy(effect: float) -> None:
    n = 16
    a, b = articles(n, 3, effect)
    truth = p_of(a - b, draws=2**n)
    drawn = permutation_test([a - b])
    assert (drawn.exact, drawn.n_permutations) == (False, 10_000)
    error = 4 * math.sqrt(truth * (1 - truth) / 10_000) + 1e-4
    assert drawn.p[0] == pytest.approx(truth, abs=error)
    theirs = scipy.stats.permutation_test(
        (a, b), absolute_sum, permutation_type="samples", vectorized=True, n_resamples=10_000,
        alternative="greater", rng=np.random.default_rng(1),
    )  # fmt: skip
    assert drawn.p[0] == pytest.approx(theirs.pvalue, abs=2 * error)


def test_drawn_patterns_counted_one_by_one() -> None:
    a, b = articles(40, 5, 0.002)
    signs = np.concatenate(list(significance._drawn_signs(40, 500, seed=9)))
    assert set(np.unique(signs)) == {-1.0, 1.0} and signs.shape == (500, 40)
    d = a - b
    extreme = sum(abs(math.fsum(row * d)) >= abs(math.fsum(d)) for row in signs)
    assert p_of(d, draws=500, seed=9) == (1 + extreme) / 501
    other = np.concatenate(list(significance._drawn_signs(40, 500, seed=8)))
    assert (signs != other).any()


@pytest.mark.parametrize("draws", [100, 1_000_000])
def test_blocks_of_memory_change_nothing(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    d = np.subtract(*articles(14, 2, 0.002))
    whole = p_of(d, draws=draws)
    monkeypatch.setattr(significance, "_BLOCK", 14 * 20)
    if draws > 2**14:
        assert p_of(d, draws=draws) == whole
    else:
        assert [len(s) for s in significance._drawn_signs(14, draws, 0)] == [20] * 5
        assert 0 < p_of(d, draws=draws) <= 1


def test_alike_systems_are_rarely_called_different() -> None:
    """Under the null hypothesis p is below 0.05 in a twentieth of all cases."""
    rng = np.random.default_rng(4)
    p = permutation_test(rng.normal(0, 1, (2_000, 12))).p
    share = float((p < 0.05).mean())
    assert abs(share - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2_000)


def test_large_differences_have_the_smallest_p() -> None:
    for n in (1, 2, 5, 13, 14, 60):
        test = permutation_test([np.ones(n)])
        # Of drawn patterns, some can be the observed one.
        assert test.smallest_p <= test.p[0] <= test.smallest_p + (0.001 if n == 14 else 0)


def test_few_articles() -> None:
    assert p_of([]) == p_of([3.5]) == p_of([0.0]) == 1.0
    assert p_of([1.0, 1.0]) == 0.5
    assert permutation_test(np.zeros((0, 5))).p.shape == (0,)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(DataError, match="not finite"):
        permutation_test([[1.0, bad]])


# --- what holds for any figures ---------------------------------------------------------------

BITS = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=16)
"""Whole numbers: differences are exact, and ties frequent."""


@settings(deadline=None, max_examples=60)
@given(bits=BITS, shift=st.integers(-10_000, 10_000), scale=st.sampled_from([1, 0.1, 1e-9, 1e9]))
def test_symmetry_range_shift_and_scale(
    bits: list[tuple[int, int]], shift: int, scale: float
) -> None:
    a, b = np.array(bits, dtype=float).reshape(-1, 2).T
    p = p_of(a - b, draws=1_000)
    assert 0 < p <= 1
    assert p_of(b - a, draws=1_000) == p
    assert p_of((a + shift) - (b + shift), draws=1_000) == p
    assert p_of((a - b) * scale, draws=1_000) == p, "ties are ties in any unit"
    if (a == b).all():
        assert p == 1


@settings(deadline=None, max_examples=60)
@given(tenths=st.lists(st.integers(-9, 9), min_size=1, max_size=10))
def test_no_tie_is_lost_to_rounding(tenths: list[int]) -> None:
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1, but as extreme; counted here in whole numbers."""
    observed = abs(sum(tenths))
    sums = [sum(s * t for s, t in zip(signs, tenths, strict=True))
            for signs in itertools.product((-1, 1), repeat=len(tenths))]  # fmt: skip
    truth = sum(abs(total) >= observed for total in sums) / len(sums)
    assert p_of(np.array(tenths) / 10) == truth


def test_ties_of_large_differences_that_cancel() -> None:
    """Their sum is tiny, and the rounding of the sum is not tiny beside it."""
    d = np.array([1e6 + 0.1, -1e6 - 0.3, 1e6 + 0.7, -1e6 - 0.4])
    whole = np.array([10**7 + 1, -(10**7) - 3, 10**7 + 7, -(10**7) - 4])
    signs = np.array([*itertools.product((-1, 1), repeat=4)])
    truth = (np.abs(signs @ whole) >= abs(whole.sum())).mean()
    assert p_of(d) == truth


# --- Holm -------------------------------------------------------------------------------------


def rejected(p: list[float], level: float) -> set[int]:
    """Holm's procedure as he wrote it: step down until the first that is too large."""
    found: set[int] = set()
    for step, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] * (len(p) - step) > level:
            break
        found.add(i)
    return found


P_VALUES = st.lists(st.floats(1e-4, 1), max_size=12)


@given(p=P_VALUES)
def test_holm_is_the_least_level_that_rejects(p: list[float]) -> None:
    corrected = holm(p)
    for i, value in enumerate(corrected):
        assert i in rejected(p, value) or value == 1
        assert i not in rejected(p, value * (1 - 1e-9))


@given(p=P_VALUES)
def test_holm_is_monotone_and_capped(p: list[float]) -> None:
    corrected = holm(p)
    assert all(a <= b <= 1 for a, b in zip(p, corrected, strict=True))
    for i, j in itertools.combinations(range(len(p)), 2):
        if p[i] <= p[j]:
            assert corrected[i] <= corrected[j]


def test_holm_by_hand() -> None:
    assert holm([]).tolist() == []
    assert holm([0.2]).tolist() == [0.2]
    assert holm([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.06, 0.06, 0.5])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
