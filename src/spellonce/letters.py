"""Embeddings from letters: what e(w) usually is where a word is written like this.

Ridge regression from the character n-grams of lexemes to their embeddings, in which a lexeme counts
by how much use has taught of it:

    argmin_B  Σ_w t(w) · ‖x(w) B + m − e(w)‖² + λ · ‖B‖²,   t(w) = n(w) / (n(w) + N₀)

x(w) are the n-grams of the word between marks for its ends, in lower case, and its shape (capitals,
digits). Lexemes that are left aside tell how far such guesses are from the truth: the covariance of
their errors. So a guess is a Gaussian, and can be the prior of whatever else is known of a word.

    V lexemes, F features, D width
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.mixture import sparse_matrix

_SIZES = range(2, 7)
"""Of n-grams."""
_LONGEST = 40
"""Characters of a word that are looked at."""
_SEEN = 4
"""N-grams of fewer lexemes are no features."""
_PENALTY = 0.2
"""λ"""
_DOUBT = 10.0
"""N₀"""
_ASIDE = 10
"""Every so many-th lexeme is left aside, to see how good guesses are."""
_STEPS = 15
"""Of conjugate gradients."""


def features(word: str) -> list[str]:
    """The n-grams of a word, each once, and its shape.

    >>> sorted(features("Up"))
    ['\\x00Xx', '<u', '<up', '<up>', 'p>', 'up', 'up>']
    """
    marked = f"<{word[:_LONGEST].casefold()}>"
    grams = {marked[i : i + n] for n in _SIZES for i in range(len(marked) - n + 1)}
    return [*grams, "\0" + shape(word)]


def shape(word: str) -> str:
    """What kinds of characters follow each other.

    >>> [shape(word) for word in ("walked", "Walked", "1,000", "McRae", "USA")]
    ['x', 'Xx', '9.9', 'XxXx', 'X']
    """
    kinds = re.sub(r"[^\W\d_]", lambda m: "X" if m.group().isupper() else "x", word[:_LONGEST])
    kinds = re.sub(r"[^Xx\d]", ".", re.sub(r"\d", "9", kinds))
    return kinds[:1] + "".join(b for a, b in pairwise(kinds) if a != b)


class Letters:
    """Guesses embeddings from how words are written."""

    def __init__(self, words: Sequence[str], embeddings: Tensor, counts: NDArray[np.int64]) -> None:
        """Learns from lexemes: their embeddings (V, D), and how often each was seen (V,)."""
        found = [features(word) for word in words]
        times = Counter(feature for own in found for feature in own)
        kept = [feature for feature, n in times.items() if n >= _SEEN]
        self._columns = {feature: i for i, feature in enumerate(kept)}
        aside = np.arange(len(words)) % _ASIDE == _ASIDE // 2
        rows = embeddings.float()
        trust = torch.from_numpy(counts / (counts + _DOUBT)).to(rows)[:, None]
        learned = trust * torch.from_numpy(~aside).to(rows)[:, None]
        self._mean = (learned * rows).sum(0) / learned.sum().clamp_min(1e-9)
        places, values, shape = self._sparse(found)
        matrix = sparse_matrix(places, values, shape)
        turned = sparse_matrix(places.flip(0), values, shape[::-1])
        self._weights = _ridge(matrix, turned, learned, rows - self._mean)
        errors = (rows - self._mean - matrix @ self._weights) * (trust - learned).sqrt()
        n_aside = (trust - learned).sum().clamp_min(1e-9)
        self.covariance = errors.T @ errors / n_aside
        """Of what guesses miss.  (D, D)"""

    def __call__(self, words: Sequence[str]) -> Tensor:
        """Guesses.  (N, D)"""
        found = [features(word) for word in words]
        return self._mean + sparse_matrix(*self._sparse(found)) @ self._weights

    def _sparse(self, found: Sequence[list[str]]) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """Features as (places, values, shape) of a matrix whose rows have length 1."""
        rows = [[self._columns[f] for f in own if f in self._columns] for own in found]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        columns = torch.tensor([column for row in rows for column in row], dtype=torch.int64)
        places = torch.stack([torch.arange(len(rows)).repeat_interleave(lengths), columns])
        values = lengths.clamp_min(1).rsqrt().float().repeat_interleave(lengths)
        device = self._mean.device
        return places.to(device), values.to(device), (len(rows), max(len(self._columns), 1))


def _ridge(matrix: Tensor, turned: Tensor, trust: Tensor, targets: Tensor) -> Tensor:
    """The solution for all columns of the targets at once, by conjugate gradients.  (F, D)"""
    residual = turned @ (trust * targets)
    solution, direction = torch.zeros_like(residual), residual.clone()
    square = residual.square().sum(0)
    for _ in range(_STEPS):
        product = turned @ (trust * (matrix @ direction)) + _PENALTY * direction
        step = square / (direction * product).sum(0).clamp_min(1e-30)
        solution += step * direction
        residual -= step * product
        before, square = square, residual.square().sum(0)
        direction = residual + square / before.clamp_min(1e-30) * direction
    return solution
