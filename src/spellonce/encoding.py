"""A training text as type ids on disk, and what was counted on the way.

Block by block, so the memory needed depends on the number of types, which is bounded, and on the
longest line, and not on the length of the text; a long text is read on several cores. The ids are a
memory-mapped array: a corpus larger than memory trains.

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
from spellonce.census import Census
from spellonce.corpus import BLOCK, Source
from spellonce.errors import DataError
from spellonce.lexicon import Lexicon
from spellonce.numbering import Numbering
from spellonce.text import TextFormat

MOST_TYPES = 1 << 21
"""Of more types than these the rarest lose their spelling."""
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
    missed: int
    """By how much a count may be too small (see `census`); 0, but for very many types."""
    sha256: str


_numbering: Numbering
"""Of a process that is one of several."""


def _begin(fmt: TextFormat) -> None:
    global _numbering
    _numbering = Numbering(fmt)


def _read(block: bytes, era: int) -> tuple[int, list[str], NDArray[np.int32]]:
    return os.getpid(), *_numbering.read(block, era)


def encode(
    source: Source,
    fmt: TextFormat,
    path: Path,
    *,
    vocab_size: int | None = None,
    min_count: int = 1,
    min_char_count: int = 25,
    most_types: int = MOST_TYPES,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda n_bytes: None,
) -> Encoded:
    """Counts the types of a text and writes its type ids (int32, little-endian) to `path`.

    One pass over the text: raw types are numbered as they come, and renumbered by frequency in
    the file when all counts are known. Of more than `most_types` the rarest lose their spelling
    (see `census`); which of the rarest, the number of `processes` has a say in. That is as many as
    there are cores, if not said.
    """
    census = Census(path, most_types)
    digest = hashlib.sha256()
    n_chars = n_bytes = 0
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
        for process, new, ids in _numbered(blocks(), fmt, processes, census):
            out.write(census.take(process, new, ids).astype("<i4").tobytes())
            progress(n_bytes)
    if not has_words:
        raise DataError(f"{source.segments[0].path} has only white space: there are no words in it")
    built = lexicons.build(
        census.counts(), vocab_size=vocab_size, min_count=min_count,
        min_char_count=min_char_count, more_chars=census.dropped_chars,
    )  # fmt: skip
    census.renumber(built.type_ids)
    return Encoded(
        built.lexicon, census.n_tokens, n_chars, n_bytes, built.n_other, built.n_spelled,
        census.missed, digest.hexdigest(),
    )  # fmt: skip


def _numbered(
    blocks: Iterator[bytes], fmt: TextFormat, processes: int, census: Census
) -> Iterator[tuple[int, list[str], NDArray[np.int32]]]:
    """(process, types that are new to it, the block in its numbers) of every block, in their order.

    Not many of them are in memory at a time. The types are thinned out when they are too many and
    none of the blocks is under way.
    """
    if processes < 2:
        numbering = Numbering(fmt)
        for block in blocks:
            if census.is_full:
                census.thin_out()
            yield 0, *numbering.read(block, census.era)
        return
    # Not multiprocessing's own pool: its spawned processes run the caller's script again, and its
    # forked ones are not safe beside the threads of torch.
    from loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    with ProcessPoolExecutor(processes, initializer=_begin, initargs=(fmt,)) as pool:
        waiting: deque[Future[tuple[int, list[str], NDArray[np.int32]]]] = deque()
        for block in blocks:
            if census.is_full:
                while waiting:
                    yield waiting.popleft().result()
                census.thin_out()
            waiting.append(pool.submit(_read, block, census.era))
            if len(waiting) > processes + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def open_ids(path: Path) -> NDArray[np.int32]:
    """The memory-mapped type ids that `encode` wrote."""
    ids: NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")
    return ids
