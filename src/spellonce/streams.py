"""Streams of ids, some longer than others, read side by side.

No torch here.

    T window, B rails
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spellonce.lexicon import EOS_ID

_T = TypeVar("_T", bound=np.generic)
SIDE_BY_SIDE = 24
"""Streams that are read at the same time."""
MAX_WINDOW = 1000
"""No strip is longer."""


@dataclass(frozen=True)
class Strip:
    """A window over streams that are read side by side."""

    inputs: NDArray[np.int64]
    """What is before each token, EOS before the first; EOS where a stream has ended.  (T, B)"""
    real: NDArray[np.int64]
    """The cells t·B + b at which a stream has a token."""
    places: NDArray[np.int64]
    """The places of those tokens in all the streams, end to end."""


def side_by_side(
    streams: Sequence[NDArray[np.int64]], cells: int
) -> Iterator[tuple[int, Iterator[Strip]]]:
    """Groups of streams of similar length: (rails, strips of about so many cells).

    >>> a, b = np.array([5, 6, 7]), np.array([8])
    >>> for n_rails, strips in side_by_side([b, a], cells=4):
    ...     for strip in strips:
    ...         print(n_rails, strip.inputs.tolist(), strip.real.tolist(), strip.places.tolist())
    2 [[1, 1], [5, 1]] [0, 1, 2] [1, 0, 2]
    2 [[6, 1]] [0] [3]
    """
    lengths = np.array([len(stream) for stream in streams], dtype=np.int64)
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *streams])
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    for first in range(0, len(order), SIDE_BY_SIDE):
        group = order[first : first + SIDE_BY_SIDE]
        window = max(1, min(cells // len(group), MAX_WINDOW))
        yield len(group), _strips(ids, starts[group], lengths[group], window)


def _strips(
    ids: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    window: int,
) -> Iterator[Strip]:
    longest = int(lengths.max())
    for begin in range(0, longest, window):
        at = np.arange(begin, min(begin + window, longest))[:, None]  # (T, 1)
        inside = at < lengths  # (T, B)
        place = np.where(inside, starts + at, 0)
        inputs = np.where(inside & (at > 0), ids[place - 1], EOS_ID)
        yield Strip(inputs, np.flatnonzero(inside), place[inside])


def split_up(
    values: NDArray[_T], streams: Sequence[Sequence[Any] | NDArray[Any]]
) -> list[NDArray[_T]]:
    """What belongs to the streams end to end, stream by stream.

    >>> [part.tolist() for part in split_up(np.arange(3.0), [[7, 7], [], [7]])]
    [[0.0, 1.0], [], [2.0]]
    """
    ends = np.cumsum([len(stream) for stream in streams], dtype=np.int64)
    return [values[end - len(stream) : end] for stream, end in zip(streams, ends, strict=True)]
