"""The types of a text and how often each was seen, counted in bounded memory.

A text of billions of words has more types than fit, most of them seen once. So when there are too
many, those seen least are dropped (lossy counting: Manku & Motwani 2002), and their tokens are ones
without a spelling from then on. What is known of the result: a count is at most `missed` too small,
and a type that was seen more often than `missed` is there. Where nothing was dropped that is 0.

Numbers are given anew at each drop, to the types that stay: an *era* ends. Which number became
which is kept on disk, and the tokens of all eras are renumbered in the end, the last era first.

No torch here.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from spellonce.corpus import BLOCK
from spellonce.lexicon import count_characters
from spellonce.numbering import Ids, Numbers
from spellonce.text import EOS, UNSPELLED

_ALWAYS = (UNSPELLED, EOS)
"""The first numbers; what is dropped becomes the first of them."""


class Census:
    """Counts types that several processes have numbered, each on its own, block by block.

    >>> census = Census(Path("ids"), most=1000)
    >>> census.take(1, ["\\n", "a", "b"], np.array([1, 2, 1, 0])).tolist()
    [2, 3, 2, 1]
    >>> census.take(2, ["c", "b"], np.array([1, 0, 1])).tolist()
    [3, 4, 3]
    >>> census.counts(), census.missed
    ({'': 0, '\\n': 1, 'a': 2, 'b': 3, 'c': 1}, 0)
    """

    def __init__(self, ids: Path, most: int) -> None:
        self.most, self.missed, self.n_tokens = max(most, 4), 0, 0
        self.dropped_chars: Counter[str] = Counter()
        """The characters of types that were dropped: the alphabet knows them all."""
        self._ids, self._renamed = ids, ids.with_suffix(".eras")
        self._numbers = Numbers(*_ALWAYS)
        self._counts = np.zeros(1 << 16, dtype=np.int64)
        self._own: dict[int, Ids] = {}  # what each process calls 0, 1, 2, …
        self._ends: list[int] = []  # tokens before the end of each era
        self._sizes: list[int] = []  # numbers in each era

    @property
    def era(self) -> int:
        """How often numbers were given anew: what processes said before that is forgotten."""
        return len(self._ends)

    @property
    def is_full(self) -> bool:
        """Whether there are more types than there should be."""
        return len(self._numbers) > self.most

    def take(self, process: int, new: list[str], ids: NDArray[np.integer[Any]]) -> Ids:
        """Tokens in the numbers of a process, some of its types new: in our own numbers."""
        known = self._own.get(process, np.zeros(0, dtype=np.int32))
        mine = self._own[process] = np.concatenate([known, self._numbers.of(new)])
        if len(self._numbers) > len(self._counts):
            more = np.zeros(len(self._numbers), dtype=np.int64)
            self._counts = np.concatenate([self._counts, more])
        self._counts[mine] += np.bincount(ids, minlength=len(mine))
        self.n_tokens += len(ids)
        numbers: Ids = mine[ids]
        return numbers

    def thin_out(self) -> None:
        """Drops the types seen least, half of them or more. Processes must begin anew."""
        counts, n_always = self._counts[: len(self._numbers)], len(_ALWAYS)
        last = len(counts) - n_always - self.most // 2 - 1  # of those that go, by rising count
        floor = int(np.partition(counts[n_always:], last)[last])
        stays = counts > floor
        stays[:n_always] = True
        renamed = np.zeros(len(counts), dtype="<i4")
        renamed[stays] = np.arange(stays.sum())
        with self._renamed.open("ab" if self._ends else "wb") as file:
            file.write(renamed.tobytes())
        self._ends.append(self.n_tokens)
        self._sizes.append(len(renamed))
        gone = dict(compress(self.counts().items(), (~stays).tolist()))
        self.dropped_chars.update(count_characters(gone))
        self._numbers = Numbers(*compress(self._numbers, stays.tolist()))
        self._counts = np.concatenate([counts[stays], np.zeros(1 << 16, dtype=np.int64)])
        self._counts[0] += sum(gone.values())
        self._own.clear()
        self.missed += floor

    def counts(self) -> dict[str, int]:
        """How often each type was seen, in the order of their numbers."""
        return dict(zip(self._numbers, self._counts.tolist(), strict=False))

    def renumber(self, type_ids: Ids) -> None:
        """Gives the tokens on disk their type ids, which come in the order of `counts`."""
        end = self.n_tokens
        with self._ids.open("r+b") as file:
            for era in reversed(range(self.era)):
                start, before = self._ends[era], sum(self._sizes[:era])
                _replace(file, start, end, type_ids)
                renamed = np.fromfile(self._renamed, "<i4", self._sizes[era], offset=4 * before)
                type_ids, end = type_ids[renamed], start
            _replace(file, 0, end, type_ids)
        self._renamed.unlink(missing_ok=True)


def _replace(file: BinaryIO, start: int, end: int, by: Ids) -> None:
    """Replaces each number of a file from one place to another by what stands at it."""
    file.seek(4 * start)
    while file.tell() < 4 * end:
        part = file.read(min(BLOCK, 4 * end - file.tell()))
        file.seek(-len(part), os.SEEK_CUR)
        file.write(by[np.frombuffer(part, dtype="<i4")].astype("<i4").tobytes())
