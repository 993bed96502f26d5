"""A training text as type ids on disk, and what was counted on the way.

Block by block, so the memory needed depends on the number of types and not on the length of the
text; a long text is read on several cores. The ids are a memory-mapped array: a corpus larger than
memory trains.

No torch here.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spellonce import lexicon as lexicons
from spellonce.corpus import BLOCK, Source
from spellonce.errors import DataError
from spellonce.lexicon import Lexicon
from spellonce.text import TextFormat, training_tokens

_WORTH_IT = 4
"""Texts of fewer blocks are done before other processes would have started."""


@dataclass(frozen=True)
class Encoded:
    """The training text as type ids, on disk, with what was counted on the way."""

    lexicon: Lexicon
    n_tokens: int
    n_chars: int
    n_bytes: int
    n_other: int
    """Characters of tokens that became ◇,"""
    n_spelled: int
    """out of so many."""
    sha256: str


class _Numbers(dict[str, int]):
    """Numbers words as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def number(block: str, fmt: TextFormat) -> tuple[list[str], NDArray[np.int32]]:
    """The different tokens of a block of lines, and the block in their numbers.

    >>> number("a b\\na\\n", TextFormat())[0], number("a b\\na\\n", TextFormat())[1].tolist()
    (['a', 'b', '\\n'], [0, 1, 2, 0, 2])
    """
    numbers = _Numbers()
    tokens = training_tokens(block, fmt)
    ids = np.fromiter(map(numbers.__getitem__, tokens), np.int32, len(tokens))
    return list(numbers), ids


def encode(
    source: Source,
    fmt: TextFormat,
    path: Path,
    *,
    vocab_size: int | None = None,
    min_char_count: int = 25,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda n_bytes: None,
) -> Encoded:
    """Counts the types of a text and writes its type ids (int32, little-endian) to `path`.

    One pass over the text: raw types are numbered as they come, and renumbered by frequency in
    the file when all counts are known. `processes`: as many as there are cores, if not said.
    """
    numbers = _Numbers()
    counts = np.zeros(1 << 16, dtype=np.int64)
    digest = hashlib.sha256()
    n_tokens = n_chars = n_bytes = 0
    has_words = False

    def blocks() -> Iterator[str]:
        nonlocal n_chars, n_bytes, has_words
        for block in source.blocks(digest):
            n_chars += len(block)
            n_bytes += len(block.encode())
            has_words = has_words or not block.isspace()
            yield block

    if processes is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if source.n_bytes() < _WORTH_IT * BLOCK:
        processes = 1
    with path.open("wb") as out:
        for types, ids in _numbered(blocks(), fmt, processes):
            own = np.fromiter(map(numbers.__getitem__, types), np.int32, len(types))
            if len(numbers) > len(counts):
                counts = np.concatenate([counts, np.zeros(len(numbers), dtype=np.int64)])
            counts[own] += np.bincount(ids, minlength=len(types))
            out.write(own[ids].astype("<i4").tobytes())
            n_tokens += len(ids)
            progress(n_bytes)
    if not has_words:
        raise DataError(f"{source.segments[0].path} has only white space: there are no words in it")
    raw_counts = dict(zip(numbers, counts.tolist(), strict=False))
    built = lexicons.build(raw_counts, vocab_size=vocab_size, min_char_count=min_char_count)
    with path.open("r+b") as file:
        while part := file.read(BLOCK):
            file.seek(-len(part), os.SEEK_CUR)
            file.write(built.type_ids[np.frombuffer(part, dtype="<i4")].astype("<i4").tobytes())
    return Encoded(
        built.lexicon, n_tokens, n_chars, n_bytes, built.n_other, built.n_spelled,
        digest.hexdigest(),
    )  # fmt: skip


def _numbered(
    blocks: Iterator[str], fmt: TextFormat, processes: int
) -> Iterator[tuple[list[str], NDArray[np.int32]]]:
    """`number` of every block, in their order; not many of them are in memory at a time."""
    if processes < 2:
        yield from (number(block, fmt) for block in blocks)
        return
    # Not multiprocessing's own pool: its spawned processes run the caller's script again, and its
    # forked ones are not safe beside the threads of torch.
    from loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    with ProcessPoolExecutor(processes) as pool:
        waiting: deque[Future[tuple[list[str], NDArray[np.int32]]]] = deque()
        for block in blocks:
            waiting.append(pool.submit(number, block, fmt))
            if len(waiting) > processes + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def open_ids(path: Path) -> NDArray[np.int32]:
    """The memory-mapped type ids that `encode` wrote."""
    ids: NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")
    return ids
