"""Embeddings guessed from letters: what was put into spellings is found in them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spellonce.letters import Letters, _ridge, features
from spellonce.mixture import sparse_matrix

STEMS = ["".join(word) for word in itertools.product("bdkl", "aeou", "mnrt", "aei")]
ENDINGS = ["", "s", "ed", "ing"]


def world(noise: float) -> tuple[list[str], torch.Tensor]:
    """Words whose embeddings are those of their stem, their ending and their capital, added up."""
    rng = np.random.default_rng(0)
    parts = {part: rng.normal(size=12) for part in (*STEMS, *ENDINGS, "X")}
    words = [a + b for a in STEMS for b in ENDINGS] + [a.capitalize() for a in STEMS]
    rows = [
        parts[w[:4].lower()] + 2 * parts[w[4:]] + 2 * parts["X"] * w[0].isupper()
        + noise * rng.normal(size=12)
        for w in words
    ]  # fmt: skip
    return words, torch.tensor(np.array(rows), dtype=torch.float32)


def test_endings_and_capitals_are_understood() -> None:
    """A stem with an ending that it was never seen with is guessed better than by the mean."""
    words, rows = world(0.1)
    hidden = np.array([hash_of(word) % 5 == 0 for word in words])
    known = [word for word, is_hidden in zip(words, hidden, strict=True) if not is_hidden]
    guess = Letters(known, rows[~hidden], np.full(len(known), 100))
    left = rows[hidden] - guess([w for w, h in zip(words, hidden, strict=True) if h])
    spread = rows - rows.mean(0)
    assert left.square().mean() < 0.4 * spread.square().mean()
    told = guess.covariance.diagonal().mean()
    assert told == pytest.approx(float(left.square().mean()), rel=0.5), "it knows how good it is"


def hash_of(word: str) -> int:
    return sum(ord(c) * 31**i for i, c in enumerate(word))


def test_lexemes_count_by_how_often_they_were_seen() -> None:
    words, rows = world(0.0)
    wrong = torch.full_like(rows, 50.0)
    both = Letters([*words, *words], torch.cat([rows, wrong]),
                   np.array([1000] * len(words) + [0] * len(words)))  # fmt: skip
    right = Letters(words, rows, np.full(len(words), 1000))
    assert (both(words) - rows).square().mean() < 0.5
    assert (both(words) - right(words)).abs().max() < 5


@given(st.text())
def test_any_word_has_features(word: str) -> None:
    found = features(word)
    assert len(set(found)) == len(found) > 0


def test_the_regression_is_that_of_the_normal_equations() -> None:
    rng = torch.Generator().manual_seed(0)
    dense = (torch.rand(40, 9, generator=rng) < 0.3).float()
    targets, trust = (torch.rand(40, n, generator=rng) for n in (3, 1))
    places, values = dense.nonzero().T, dense[dense > 0]
    matrix = sparse_matrix(places, values, (40, 9))
    turned = sparse_matrix(places.flip(0), values, (9, 40))
    expected = torch.linalg.solve(
        dense.T @ (trust * dense) + 0.2 * torch.eye(9), dense.T @ (trust * targets)
    )
    torch.testing.assert_close(_ridge(matrix, turned, trust, targets), expected, atol=1e-4, rtol=0)
