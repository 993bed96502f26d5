"""Dropout masks: shares, independence; and they depend on what they are tied to alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spellonce.noise import Noise, dropout, dropout_over_time, dropout_shared

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(5))
def test_it_is_uniform_and_independent(seed: int) -> None:
    x = Noise(seed).tied("a", 400, 300, CPU).double().numpy()
    assert stats.kstest(x.ravel(), "uniform").pvalue > 1e-4
    # Neighbours in either direction, other names and other seeds have nothing to do with it.
    for a, b in (
        (x[:, 1:], x[:, :-1]),
        (x[1:], x[:-1]),
        (x, Noise(seed).tied("b", 400, 300, CPU).numpy()),
        (x, Noise(seed + 1).tied("a", 400, 300, CPU).numpy()),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4.5 / np.sqrt(a.size)
    means = x.mean(1)  # of rows: as they should scatter
    assert stats.kstest((means - 0.5) * np.sqrt(12 * 300), "norm").pvalue > 1e-4


@given(st.permutations(range(12)), st.integers(0, 2**64 - 1))
def test_rows_keep_their_masks_in_any_order(order: list[int], seed: int) -> None:
    noise, x = Noise(seed), torch.ones(5, 12, 7)
    whole = dropout(x, 0.4, noise, "a")
    rows = torch.tensor(order)
    assert torch.equal(dropout(x[:, rows], 0.4, noise.take(rows), "a"), whole[:, rows])
    whole = dropout_over_time(x, 0.4, noise, "a")
    assert torch.equal(dropout_over_time(x[:, rows], 0.4, noise.take(rows), "a"), whole[:, rows])
    shared = dropout_shared(x, 0.4, noise, "a")
    assert torch.equal(shared, dropout_shared(x, 0.4, noise.take(rows), "a"))


def test_words_are_known_by_time_and_rail() -> None:
    noise = Noise(3)
    times, rails = torch.tensor([0, 0, 1, 5]), torch.tensor([0, 1, 0, 1])
    masks = noise.at(times, rails).tied("a", 4, 50, CPU)
    assert len({tuple(row.tolist()) for row in masks}) == 4
    part = noise.take(torch.tensor([1])).at(torch.tensor([5]), torch.tensor([0]))
    assert torch.equal(part.tied("a", 1, 50, CPU)[0], masks[3]), "rail 1 is the only one there"
    lexemes = noise.of("lexicon", torch.tensor([0, 1]))
    assert not torch.equal(lexemes.tied("a", 2, 50, CPU), noise.tied("a", 2, 50, CPU))


def test_the_mean_stays() -> None:
    x = torch.ones(2000, 50)
    for drop in (dropout, dropout_shared):
        y = drop(x, 0.3, Noise(0), "a")
        assert float(y.mean()) == pytest.approx(1, abs=0.01)
        assert y.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
        assert drop(x, 0.3, None, "a") is x and drop(x, 0.0, Noise(0), "a") is x
