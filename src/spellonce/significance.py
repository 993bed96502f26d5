"""Is one system better than another, or was it luck? A paired permutation test over articles.

Under the null hypothesis both systems are alike, so in each article their bits could as well have
been exchanged: the difference d of an article could as well have been −d. The statistic is |Σ d|,
and p is the share of sign patterns for which it is at least as large as it was. With many pairs of
systems some look different by chance; Holm's correction accounts for that (Holm 1979).

NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spellonce.errors import DataError

DRAWS = 10_000
"""Sign patterns that are drawn where there are more than so many; else all are taken."""
LEVEL = 0.05
"""A difference is called significant where p, corrected, is below this."""
_BLOCK = 1 << 22
"""Signs that are held in memory at a time."""


@dataclass(frozen=True)
class PermutationTest:
    """What a permutation test over articles found."""

    p: NDArray[np.float64]
    """One p-value, never zero, for each row of differences."""
    n_permutations: int
    """How many sign patterns were tried."""
    exact: bool
    """Whether these were all that there are."""

    @property
    def smallest_p(self) -> float:
        """The least p that so many permutations can give, however large a difference is."""
        # A pattern and its opposite are equally extreme.
        return min(1.0, 2 / self.n_permutations) if self.exact else 1 / (self.n_permutations + 1)


def permutation_test(
    differences: ArrayLike, *, draws: int = DRAWS, seed: int = 0
) -> PermutationTest:
    """Two-sided p-values of rows of differences, one column for each article.

    Exact where there are no more than `draws` sign patterns; then p = extreme / all. Otherwise
    patterns are drawn, the same for all rows, and the observed one counts as one more:
    p = (1 + extreme) / (1 + draws).

    >>> permutation_test([[1.0, 2.0, 3.0], [1.0, -1.0, 0.0]]).p.tolist()
    [0.25, 1.0]
    """
    d = np.atleast_2d(np.asarray(differences, dtype=np.float64))  # (pairs, articles)
    if not np.isfinite(d).all():
        raise DataError("the bits of an article are not finite: there is nothing to be tested")
    n = d.shape[1]
    exact = n < 63 and 2**n <= draws
    observed = np.abs(d.sum(axis=1))
    # The order of a sum changes its last digits, by no more than this; a tie must stay a tie.
    slack = max(100, n) * np.finfo(np.float64).eps * np.abs(d).sum(axis=1)
    extreme = np.zeros(len(d), dtype=np.int64)
    for signs in _all_signs(n) if exact else _drawn_signs(n, draws, seed):
        extreme += (np.abs(signs @ d.T) >= observed - slack).sum(axis=0)
    if exact:
        return PermutationTest(extreme / 2**n, 2**n, exact)
    return PermutationTest((1 + extreme) / (1 + draws), draws, exact)


def _all_signs(n: int) -> Iterator[NDArray[np.float64]]:
    rows = max(1, _BLOCK // max(n, 1))
    for start in range(0, 2**n, rows):
        patterns = np.arange(start, min(start + rows, 2**n))
        bits = (patterns[:, None] >> np.arange(n)) & 1
        yield bits.astype(np.float64) * 2 - 1


def _drawn_signs(n: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    rows = max(1, _BLOCK // max(n, 1))
    for start in range(0, draws, rows):
        coins = rng.integers(0, 2, (min(rows, draws - start), n), dtype=np.int8)
        yield coins.astype(np.float64) * 2 - 1


def holm(p_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values of a family of tests, corrected so that any false alarm has at most its level.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected
