"""A text in numbers: its tokens, as they come, are 0, 1, 2, …

What tokenizing a *chunk* gives, which is what stands between two spaces or line breaks, does not
depend on what is around it. So only chunks that are new are tokenized, and the others are looked
up, all of a block at once: chunks of up to 15 bytes in a table with one place for each (their
bytes and length, in two 64-bit words, are compared, so nothing is left to luck), the rest, and
what was driven from its place by another, in a dictionary.

No torch here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from spellonce.text import EOS, TextFormat, training_tokens

_REMEMBERED = 1 << 24
"""Characters of chunks that are remembered before one begins anew."""
_PART = 1 << 18
"""Bytes that are looked up at a time."""
_SLOTS = 20
"""Bits of the number of a place in the table."""
_LONGEST = 15
_EMPTY = 1
"""The number of the chunk without characters; EOS is 0."""
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)
"""Odd numbers that scatter keys over the table."""
_BREAK, _SPACE = ord(EOS), ord(" ")
_WHITE = [char.encode("utf-8") for char in map(chr, range(0x3001)) if char.isspace()]
_ENDS_WHITE = np.isin(np.arange(256), [white[-1] for white in _WHITE])
"""By byte: whether it is the last of any white space."""

Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


_SPACE_TOUCHED = re.compile(r"\s | \n")


def _lines_of(block: bytes, size: int) -> Iterator[bytes]:
    """A block in parts of about so many bytes, all but the last ending with a line.

    >>> list(_lines_of(b"a\\nbcd\\ne\\n", 3))
    [b'a\\nbcd\\n', b'e\\n']
    """
    start = 0
    while start < len(block):
        stop = block.find(b"\n", start + size - 1) + 1 or len(block)
        yield block[start:stop]
        start = stop


class Numbers(defaultdict[str, int]):
    """Numbers words as they come, after some that are known."""

    def __init__(self, *known: str) -> None:
        super().__init__(count(len(known)).__next__, zip(known, count(), strict=False))

    def of(self, words: list[str]) -> Ids:
        """The numbers of words."""
        return np.fromiter(map(self.__getitem__, words), np.int32, len(words))

    def after(self, n: int) -> list[str]:
        """The words that came after the first n."""
        return list(islice(reversed(self), len(self) - n))[::-1]  # without passing by all others


class Numbering:
    """Numbers the tokens of a text that comes in blocks of lines, as UTF-8.

    >>> numbering = Numbering(TextFormat())
    >>> [(new, ids.tolist()) for new, ids in map(numbering.read, [b"a b\\n", b"b.\\na\\n"])]
    [(['\\n', 'a', 'b'], [1, 2, 0]), (['⇹.'], [2, 3, 0, 1, 0])]
    """

    def __init__(self, fmt: TextFormat) -> None:
        self._fmt = fmt
        self._begin(0)

    def _begin(self, era: int) -> None:
        """Knows no type but EOS."""
        self._era = era
        self._types = Numbers(EOS)
        self._told = 0
        self._forget()

    def _forget(self) -> None:
        """Knows no chunk but EOS and the empty one."""
        self._chunks = Numbers(EOS, "")
        self._n_chars = 0
        # A span is (start, length) of a chunk's tokens; an EOS follows them.
        self._tokens = np.zeros(2, dtype=np.int32)
        self._spans = np.array([[0, 1], [1, 0]])
        # A row is a key and the number of its chunk; at first all are those of the empty one.
        self._table = np.zeros((1 << _SLOTS, 3), dtype=np.uint64)
        self._table[:, 2] = _EMPTY

    def read(self, block: bytes, era: int = 0) -> tuple[list[str], Ids]:
        """(types that are new, the tokens of the block in numbers); in a new era all are."""
        if era != self._era:
            self._begin(era)
        # Bit by bit: what is new in one is known in the next.
        parts = [self._read(part) for part in _lines_of(block, _PART)]
        new = self._types.after(self._told)
        self._told += len(new)
        return new, np.concatenate([np.zeros(0, dtype=np.int32), *parts])

    def _read(self, block: bytes) -> Ids:
        if self._n_chars > _REMEMBERED:
            self._forget()
        data = np.frombuffer(block + EOS.encode() + bytes(16), dtype=np.uint8)
        if self._fmt.tokenization == "reversible" and _is_irregular(data):
            places, breaks = self._lines(block.decode("utf-8"))
        else:
            places, breaks = self._words(block, data)
        self._take_up(self._chunks.after(len(self._spans)))
        starts, lengths = self._spans[places].T
        lengths = lengths + breaks
        shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self._tokens[shift + np.arange(len(shift))]

    def _lines(self, block: str) -> tuple[Places, Places]:
        """(chunks, whether an EOS follows each) where some lines must be one chunk."""
        parts: list[str] = []
        ends: list[int] = []
        for line in block.split(EOS):
            is_regular = _SPACE_TOUCHED.search(f"{EOS}{line}{EOS}") is None
            parts += line.split(" ") if is_regular else [line]
            ends.append(len(parts) - 1)
        breaks = np.zeros(len(parts), dtype=np.int64)
        breaks[ends[:-1]] = 1
        return self._chunks.of(parts).astype(np.int64), breaks

    def _words(self, block: bytes, data: Bytes) -> tuple[Places, Places]:
        """(chunks, whether an EOS follows each) where spaces and line breaks cut.

        `data` is the block with a line break at its end, and more behind it.
        """
        is_break = data == _BREAK
        ends = np.flatnonzero(is_break | (data == _SPACE))
        starts = np.concatenate([[0], ends[:-1] + 1])
        sizes = ends - starts
        low, high, slots = _keys(data, starts, sizes)
        found = self._table[slots]
        is_known = (found[:, 0] == low) & (found[:, 1] == high) & (sizes <= _LONGEST)
        places = found[:, 2].astype(np.int64)
        rest = np.flatnonzero(~is_known)
        spans = zip(starts[rest].tolist(), ends[rest].tolist(), strict=True)
        places[rest] = self._chunks.of([block[a:b].decode("utf-8") for a, b in spans])
        # Those take the places that were of no use here.
        is_used = np.zeros(1 << _SLOTS, dtype=bool)
        is_used[slots[is_known]] = True
        rest = rest[~is_used[slots[rest]] & (sizes[rest] <= _LONGEST)]
        rest = rest[np.unique(slots[rest], return_index=True)[1]]
        rows = np.stack([low[rest], high[rest], places[rest].astype(np.uint64)], 1)
        self._table[slots[rest]] = rows
        breaks = is_break[ends].astype(np.int64)
        breaks[-1] = 0
        return places, breaks

    def _take_up(self, new: list[str]) -> None:
        """Tokenizes chunks."""
        if not new:
            return
        lines = EOS.join(new)
        self._n_chars += len(lines)
        numbers = self._types.of([*training_tokens(lines, self._fmt), EOS])
        ends = np.flatnonzero(numbers == 0)
        starts = np.concatenate([[0], ends[:-1] + 1])
        spans = np.stack([starts + len(self._tokens), ends - starts], 1)
        self._spans = np.concatenate([self._spans, spans])
        self._tokens = np.concatenate([self._tokens, numbers])


def _keys(data: Bytes, starts: Places, sizes: Places) -> tuple[Words, Words, Places]:
    """(first word, second word, place in the table) of chunks; of long ones they mean nothing."""
    at = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))  # from every byte on
    low = at[starts] & _MASKS[np.minimum(sizes, 8)]
    high = at[starts + 8] & _MASKS[np.clip(sizes - 8, 0, 7)]
    high |= np.minimum(sizes, 255).astype(np.uint64) << np.uint64(56)
    mixed = (low * _MIX[0] ^ high * _MIX[1]) * _MIX[2]
    return low, high, (mixed >> np.uint64(64 - _SLOTS)).astype(np.int64)


def _is_irregular(data: Bytes) -> bool:
    """Whether white space comes before any space, or a line break after it.

    `data` ends in a line break and three bytes or more that are no white space.

    >>> [_is_irregular(np.frombuffer(t + b"\\n123", np.uint8)) for t in (b"a b", b" a", b"a\\t b")]
    [False, True, True]
    """
    spaces = np.flatnonzero(data == _SPACE)
    if not len(spaces):
        return False
    if spaces[0] == 0 or (data[spaces + 1] == _BREAK).any():
        return True
    suspect = spaces[_ENDS_WHITE[data[spaces - 1]]]
    last = [data[suspect - n].astype(np.int64) for n in (1, 2, 3)]
    for size in (1, 2, 3):
        code = sum(last[n] << 8 * n for n in range(size))
        white = [int.from_bytes(white, "big") for white in _WHITE if len(white) == size]
        if np.isin(code, white).any():
            return True
    return False
