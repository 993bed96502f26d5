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
from spellonce.numbering import Numbering, Numbers
from spellonce.text import TextFormat

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


_numbering: Numbering
"""Of a process that is one of several."""


def _begin(fmt: TextFormat) -> None:
    global _numbering
    _numbering = Numbering(fmt)


def _read(block: bytes) -> tuple[int, list[str], NDArray[np.int32]]:
    return os.getpid(), *_numbering.read(block)


def encode(
    source: Source,
    fmt: TextFormat,
    path: Path,
    *,
    vocab_size: int | None = None,
    min_count: int = 1,
    min_char_count: int = 25,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda n_bytes: None,
) -> Encoded:
    """Counts the types of a text and writes its type ids (int32, little-endian) to `path`.

    One pass over the text: raw types are numbered as they come, and renumbered by frequency in
    the file when all counts are known. `processes`: as many as there are cores, if not said.
    """
    numbers = Numbers()
    counts = np.zeros(1 << 16, dtype=np.int64)
    digest = hashlib.sha256()
    n_tokens = n_chars = n_bytes = 0
    has_words = False

    def blocks() -> Iterator[bytes]:
        nonlocal n_chars, n_bytes, has_words
        for block in source.blocks(digest):
            raw = block.encode()
            n_chars += len(block)
            n_bytes += len(raw)
            has_words = has_words or not block.isspace()
            yield raw

    if processes is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if source.n_bytes() < _WORTH_IT * BLOCK:
        processes = 1
    with path.open("wb") as out:
        own: dict[int, NDArray[np.int32]] = {}  # what each process calls 0, 1, 2, …
        for process, new, ids in _numbered(blocks(), fmt, processes):
            known = own.get(process, np.zeros(0, dtype=np.int32))
            mine = own[process] = np.concatenate([known, numbers.of(new)])
            if len(numbers) > len(counts):
                counts = np.concatenate([counts, np.zeros(len(numbers), dtype=np.int64)])
            counts[mine] += np.bincount(ids, minlength=len(mine))
            out.write(mine[ids].astype("<i4").tobytes())
            n_tokens += len(ids)
            progress(n_bytes)
    if not has_words:
        raise DataError(f"{source.segments[0].path} has only white space: there are no words in it")
    raw_counts = dict(zip(numbers, counts.tolist(), strict=False))
    built = lexicons.build(
        raw_counts, vocab_size=vocab_size, min_count=min_count, min_char_count=min_char_count
    )
    with path.open("r+b") as file:
        while part := file.read(BLOCK):
            file.seek(-len(part), os.SEEK_CUR)
            file.write(built.type_ids[np.frombuffer(part, dtype="<i4")].astype("<i4").tobytes())
    return Encoded(
        built.lexicon, n_tokens, n_chars, n_bytes, built.n_other, built.n_spelled,
        digest.hexdigest(),
    )  # fmt: skip


def _numbered(
    blocks: Iterator[bytes], fmt: TextFormat, processes: int
) -> Iterator[tuple[int, list[str], NDArray[np.int32]]]:
    """(process, types that are new to it, the block in its numbers) of every block, in their order.

    Not many of them are in memory at a time.
    """
    if processes < 2:
        numbering = Numbering(fmt)
        yield from ((0, *numbering.read(block)) for block in blocks)
        return
    # Not multiprocessing's own pool: its spawned processes run the caller's script again, and its
    # forked ones are not safe beside the threads of torch.
    from loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    with ProcessPoolExecutor(processes, initializer=_begin, initargs=(fmt,)) as pool:
        waiting: deque[Future[tuple[int, list[str], NDArray[np.int32]]]] = deque()
        for block in blocks:
            waiting.append(pool.submit(_read, block))
            if len(waiting) > processes + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def open_ids(path: Path) -> NDArray[np.int32]:
    """The memory-mapped type ids that `encode` wrote."""
    ids: NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")
    return ids
