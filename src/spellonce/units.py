"""Units: the pieces that pure-char and pure-bpe model instead of words, two baselines of the paper.

A word is a sequence of units, the last of which says that the word ends there: a unit of its own
among characters, a mark on the last piece (`</w>`) under BPE. So a sequence of units determines the
words, and each word has one canonical segmentation. Ids run as in the lexicon: UNK (a training
token without a spelling), EOS, then the units by falling training frequency.

BPE (Sennrich et al. 2016) is learned on the types of the lexicon with their counts and never
crosses a word. Given the merges, words are segmented exactly as subword-nmt (v0.2) does. Learning
differs from it in ties only: of pairs that are equally frequent, subword-nmt takes the largest by
the strings of both; so do we while characters are paired, but pairs with a merged unit come later,
the earliest made first.

No torch here.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError, RunError
from spellonce.lexicon import N_SPECIAL, OTHER, Lexicon, escape, unescape
from spellonce.text import EOS, UNSPELLED

Kind = Literal["characters", "bpe"]

MIN_PAIR_COUNT = 2
"""A pair seen less often is not merged, as in subword-nmt."""

_WORD_END = "␣"
"""Name of the unit that ends a word, among characters."""
_LITERAL_WORD_END = "'␣'"
"""Name of the character ␣ itself."""
_MARK = "</w>"
"""What the name of a BPE unit has at its end if the word ends there."""

_BLOCK = 1 << 20
"""Types that `expand` takes at once …"""
_BLOCK_UNITS = 1 << 24
"""… unless they might become more units than this."""
_CACHE_SIZE = 1 << 18


@dataclass(frozen=True)
class Units:
    """What a word can be made of, and how it is.

    >>> from spellonce.lexicon import build
    >>> lexicon = build({"ab": 5, "b": 2, "\\n": 1}, min_char_count=1).lexicon
    >>> units = bpe(lexicon, 1)
    >>> units.names
    ('', '\\n', 'ab</w>', 'b</w>', 'a', 'a</w>', 'b', '◇', '◇</w>')
    >>> [units.names[i] for i in units.segment("abab")]
    ['a', 'b', 'ab</w>']
    """

    names: tuple[str, ...]
    """What each unit is called, by id: UNK, EOS, then by falling frequency (ties by name)."""
    counts: NDArray[np.int64]
    """How often each unit stands in the training text, UNK and EOS included."""
    merges: tuple[tuple[str, str], ...]
    """Names of the units that BPE joins, in the order learned; none for characters."""
    kind: Kind
    """`characters`, or `bpe`."""
    _spellings: Sequence[str] = field(init=False, repr=False, compare=False)
    _ends: NDArray[np.bool_] = field(init=False, repr=False, compare=False)
    _inside: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """The unit of a character that has others after it."""
    _last: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """The unit of a character (of none: "") that ends the word."""
    _merged: Mapping[tuple[int, int], tuple[int, int]] = field(
        init=False, repr=False, compare=False
    )
    """Which pairs are merged: (rank, the unit that they become)."""
    _cache: dict[str, tuple[int, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RunError(f"units are {' or '.join(get_args(Kind))}, not {self.kind!r}")
        if self.names[:N_SPECIAL] != (UNSPELLED, EOS) or len(self.names) != len(self.counts):
            raise RunError("units begin with UNK and EOS and have a count each")
        if (self.counts < 0).any() or (np.diff(self.counts[N_SPECIAL:]) > 0).any():
            raise RunError("units must stand by falling frequency")
        read = _read_character if self.kind == "characters" else _read_piece
        pieces = {name: read(name) for name in self.names[N_SPECIAL:]}
        ids = {piece: i for i, piece in enumerate(pieces.values(), start=N_SPECIAL)}
        if len(ids) != len(self.names) - N_SPECIAL:
            raise RunError("a unit is there twice")
        inside = {s: i for (s, ends), i in ids.items() if len(s) == 1 and not ends}
        last = {s: i for (s, ends), i in ids.items() if len(s) < 2 and ends}
        if set(last) != ({""} if self.kind == "characters" else set(inside)):
            raise RunError("units that end words are missing")
        merged = _merge_table(self.merges, pieces, ids)
        made = {unit for _, unit in merged.values()}.union(inside.values(), last.values())
        if len(made) != len(ids):
            raise RunError("there are units that no merge makes")
        for name, value in (
            ("_spellings", ("", "", *(spelling for spelling, _ in ids))),
            ("_ends", np.array([True, True, *(ends for _, ends in ids)])),
            ("_inside", inside),
            ("_last", last),
            ("_merged", merged),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.names)

    def segment(self, word: str) -> list[int]:
        """The units of one word, whose characters are in the alphabet or ◇; the last one ends it.

        Under BPE there is no empty word.
        """
        units = self._cache.get(word)
        if units is None:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            units = self._cache[word] = tuple(self._segment(word))
        return list(units)

    def _segment(self, word: str) -> list[int]:
        body, tail = (word, "") if self.kind == "characters" else (word[:-1], word[-1:])
        try:
            units = [*(self._inside[char] for char in body), self._last[tail]]
        except KeyError as error:
            what = f"there is no unit for {error.args[0]!r}" if word else "no unit is an empty word"
            raise ValueError(f"cannot segment {word!r}: {what}") from None
        return merge(units, self._merged) if self._merged else units

    def join(self, ids: Iterable[int]) -> str:
        """The word that some units write: `join(segment(word)) == word`."""
        return "".join(self._spellings[i] for i in ids)

    def ends_word(self) -> NDArray[np.bool_]:
        """For each unit, whether a word ends with it; so do UNK and EOS."""
        return self._ends.copy()

    def spelling(self, unit_id: int) -> str:
        """The characters that a unit writes; none for UNK, EOS and the end of a word."""
        return self._spellings[unit_id]


def characters(lexicon: Lexicon) -> Units:
    """The characters of the alphabet, ◇, and the end of a word.

    >>> from spellonce.lexicon import build
    >>> lexicon = build({"ab": 5, "b": 2, "\\n": 1}, min_char_count=1).lexicon
    >>> units = characters(lexicon)
    >>> units.names, units.counts.tolist()
    (('', '\\n', 'b', '␣', 'a', '◇'), [0, 1, 7, 7, 5, 0])
    >>> units.segment("ba"), units.join(units.segment("ba"))
    ([2, 4, 3], 'ba')
    """
    chars = (_LITERAL_WORD_END if c == _WORD_END else c for c in lexicon.alphabet.chars)
    return _counted([*chars, OTHER, _WORD_END], (), "characters", lexicon)


def bpe(lexicon: Lexicon, n_merges: int) -> Units:
    """Units of byte-pair encoding after `n_merges` merges, or as many as there are.

    Every character of the alphabet and ◇ is a unit inside a word and another one at its end, seen
    or not, and so is all that a merge makes: new words may need it.
    """
    if n_merges < 0:
        raise ConfigError(f"n_merges must be at least 0, got {n_merges}")
    merges = _learn(lexicon, n_merges)
    pieces = {(char, ends) for char in (*lexicon.alphabet.chars, OTHER) for ends in (False, True)}
    pieces.update((left + right, ends) for (left, _), (right, ends) in merges)
    return _counted(
        [_piece_name(*piece) for piece in pieces],
        tuple((_piece_name(*left), _piece_name(*right)) for left, right in merges),
        "bpe",
        lexicon,
    )


def expand(units: Units, lexicon: Lexicon, type_ids: NDArray[np.int32], path: Path) -> int:
    """Writes the units of a stream of types (int32, little-endian); returns how many there are."""
    flat, lengths = _segment_types(units, lexicon)
    starts = np.cumsum(lengths) - lengths
    # Whatever the text, a block becomes no more units than this allows (or one word's).
    block = min(_BLOCK, max(_BLOCK_UNITS // int(lengths.max()), 1))
    n_units = 0
    with path.open("wb") as out:
        for begin in range(0, len(type_ids), block):
            types = np.asarray(type_ids[begin : begin + block])
            n = lengths[types]
            ends = np.cumsum(n)
            places = np.arange(ends[-1]) + np.repeat(starts[types] - (ends - n), n)
            out.write(flat[places].tobytes())
            n_units += len(places)
    return n_units


_COLUMNS = "id\tcount\tunit"
_MERGE_COLUMNS = "left\tright"
_SPECIAL_NAMES = ("UNK", "EOS")


def to_text(units: Units) -> str:
    """`units.tsv`: what kind and how many, then all units, then the merges.

    >>> from spellonce.lexicon import build
    >>> lexicon = build({"aa": 2, "\\n": 1}, min_char_count=1).lexicon
    >>> print(to_text(bpe(lexicon, 1)).replace("\\t", " "), end="")
    bpe 7 1
    id count unit
    0 0 UNK
    1 1 EOS
    2 2 aa</w>
    3 0 a
    4 0 a</w>
    5 0 ◇
    6 0 ◇</w>
    left right
    a a</w>
    """
    lines = [f"{units.kind}\t{len(units)}\t{len(units.merges)}", _COLUMNS]
    for i, (name, count) in enumerate(zip(units.names, units.counts.tolist(), strict=True)):
        lines.append(f"{i}\t{count}\t{_SPECIAL_NAMES[i] if i < N_SPECIAL else escape(name)}")
    lines.append(_MERGE_COLUMNS)
    lines += [f"{escape(left)}\t{escape(right)}" for left, right in units.merges]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> Units:
    """Reads what `to_text` wrote."""
    try:
        lines = text.split("\n")
        kind, n_units, n_merges = lines[0].split("\t")
        rows, merge_rows = lines[2 : 2 + int(n_units)], lines[3 + int(n_units) : -1]
        names = [UNSPELLED, EOS]
        counts = []
        for i, row in enumerate(rows):
            number, count, name = row.split("\t")
            if int(number) != i:
                raise ValueError(f"id {number} is out of order")
            if i >= N_SPECIAL:
                names.append(unescape(name))
            counts.append(int(count))
        merges = []
        for row in merge_rows:
            left, right = row.split("\t")
            merges.append((unescape(left), unescape(right)))
        units = Units(tuple(names), np.array(counts, np.int64), tuple(merges), cast(Kind, kind))
        # Also what could be read may be damaged: a line may be missing, or an escape broken.
        if len(merges) != int(n_merges) or to_text(units) != text:
            raise ValueError("it is not as it was written")
        return units
    except (ValueError, OverflowError, IndexError, RunError) as error:
        raise RunError(f"not a file of units: {error}") from error


def merge(units: Sequence[int], merged: Mapping[tuple[int, int], tuple[int, int]]) -> list[int]:
    """Merges pairs of units, those of the lowest rank first, from the left, until none is left.

    `merged` has (rank, the unit that they become) for each pair. The time is n log n, so that a
    file without a space in it is no trap.

    >>> merge([1, 1, 1, 2], {(1, 1): (0, 3), (3, 2): (1, 4), (1, 2): (2, 5)})
    [3, 5]
    """
    units = list(units)
    after = list(range(1, len(units) + 1))
    before = list(range(-1, len(units) - 1))
    heap = [
        (merged[pair][0], place) for place, pair in enumerate(pairwise(units)) if pair in merged
    ]
    heapq.heapify(heap)
    while heap:
        rank = heap[0][0]
        made = []
        # All places of a pair before any pair that this makes, even one of a lower rank.
        while heap and heap[0][0] == rank:
            place = heapq.heappop(heap)[1]
            gone = after[place]
            if gone == len(units):
                continue
            found = merged.get((units[place], units[gone]))
            if found is None or found[0] != rank:  # one of the two is in another pair by now
                continue
            units[place], units[gone] = found[1], -1
            after[place] = after[gone]
            if after[gone] < len(units):
                before[after[gone]] = place
            made.append(place)
        for place in made:
            for left, right in ((before[place], place), (place, after[place])):
                if left >= 0 and right < len(units):
                    found = merged.get((units[left], units[right]))
                    if found is not None:
                        heapq.heappush(heap, (found[0], left))
    return [unit for unit in units if unit >= 0]


# A piece is (the characters that a unit writes, whether the word ends with it).
Piece = tuple[str, bool]


def _piece_name(spelling: str, ends: bool) -> str:
    r"""The name of a piece; a literal `</w>` in it gets a backslash, so that names are unique.

    >>> _piece_name("the", True), _piece_name("the</w>", False), _piece_name(r"<\/w>", True)
    ('the</w>', 'the<\\/w>', '<\\\\/w></w>')
    """
    return re.sub(r"<(\\*)/w>", r"<\1\\/w>", spelling) + _MARK * ends


def _read_piece(name: str) -> Piece:
    """Undoes `_piece_name`."""
    spelling = re.sub(r"<\\(\\*)/w>", r"<\1/w>", name.removesuffix(_MARK))
    piece = spelling, name.endswith(_MARK)
    if not spelling or _piece_name(*piece) != name:
        raise RunError(f"{name!r} is no unit of BPE")
    return piece


def _read_character(name: str) -> Piece:
    if name == _WORD_END:
        return "", True
    if name == _LITERAL_WORD_END:
        return _WORD_END, False
    if len(name) != 1:
        raise RunError(f"{name!r} is no character")
    return name, False


def _merge_table(
    merges: Iterable[tuple[str, str]], pieces: Mapping[str, Piece], ids: Mapping[Piece, int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """(rank, the unit made) for each pair of units; `pieces` is by name."""
    table: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, names in enumerate(merges):
        left, right = (pieces.get(name, ("", True)) for name in names)
        product = ids.get((left[0] + right[0], right[1]))
        if left[1] or right not in ids or product is None:
            raise RunError(f"{names[0]!r} and {names[1]!r} cannot be merged")
        if table.setdefault((ids[left], ids[right]), (rank, product)) != (rank, product):
            raise RunError(f"{names[0]!r} and {names[1]!r} are merged twice")
    return table


def _counted(
    names: Iterable[str], merges: tuple[tuple[str, str], ...], kind: Kind, lexicon: Lexicon
) -> Units:
    """The units of these names, counted in the training text and in their order."""
    names = (UNSPELLED, EOS, *sorted(names))
    uncounted = Units(names, np.zeros(len(names), dtype=np.int64), merges, kind)
    flat, lengths = _segment_types(uncounted, lexicon)
    counts = np.zeros(len(names), dtype=np.int64)
    np.add.at(counts, flat, np.repeat(lexicon.counts, lengths))
    order = np.argsort(-counts[N_SPECIAL:], kind="stable") + N_SPECIAL  # stable: ties by name
    order = np.concatenate([np.arange(N_SPECIAL), order])
    return Units(tuple(names[i] for i in order), counts[order], merges, kind)


def _segment_types(units: Units, lexicon: Lexicon) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The units of all types end to end, and how many each has; UNK and EOS are themselves."""
    specials = ([i] for i in range(N_SPECIAL))
    words = map(units._segment, lexicon.types[N_SPECIAL:])
    segments = list(chain(specials, words))
    lengths = np.fromiter(map(len, segments), np.int64, len(segments))
    flat = np.fromiter(chain.from_iterable(segments), "<i4", int(lengths.sum()))
    return flat, lengths


def _learn(lexicon: Lexicon, n_merges: int) -> list[tuple[Piece, Piece]]:
    """The first merges of BPE, by the library `tokenizers`.

    The library sees a text of private symbols, one for each character inside a word and one for
    each at the end of a word. So it needs no marker that a word could contain itself, and numbers
    the symbols by code point, where its own marker would have them numbered at random: that number
    breaks ties.
    """
    words = dict(zip(lexicon.types[N_SPECIAL:], lexicon.counts[N_SPECIAL:].tolist(), strict=True))
    pieces = {(char, False) for word in words for char in word[:-1]}
    pieces |= {(word[-1], True) for word in words}
    if not pieces or n_merges == 0:
        return []
    # The smallest symbols win ties, in subword-nmt the largest names.
    in_order = sorted(pieces, key=lambda piece: _piece_name(*piece), reverse=True)
    symbol = {piece: _private_symbol(i) for i, piece in enumerate(in_order)}
    piece_of = {s: piece for piece, s in symbol.items()}

    def text() -> Iterator[str]:
        for word, count in words.items():
            coded = "".join(symbol[char, False] for char in word[:-1]) + symbol[word[-1], True]
            at_once = max((1 << 16) // len(word), 1)
            for begin in range(0, count, at_once):
                yield f"{coded} " * min(at_once, count - begin)

    def decode(symbols: str) -> Piece:
        parts = [piece_of[s] for s in symbols]
        return "".join(char for char, _ in parts), parts[-1][1]

    # Each merge takes a symbol from some type: the library would make room for more of them.
    possible = sum(len(word) - 1 for word in words)
    merges = _train(text(), len(pieces) + min(n_merges, possible))
    # A merge may make a unit that is there already; then the library goes on for too long.
    return [(decode(left), decode(right)) for left, right in merges[:n_merges]]


def _private_symbol(number: int) -> str:
    """The n-th character that is no space and no surrogate.

    >>> _private_symbol(0), _private_symbol(0xD800 - 0x21) == chr(0xE000)
    ('!', True)
    """
    code = 0x21 + number
    return chr(code if code < 0xD800 else code + 0x800)


def _train(text: Iterator[str], n_symbols: int) -> list[tuple[str, str]]:
    """Merges learned from words between plain spaces, until there are so many symbols."""
    import tokenizers  # not needed to use units that are there

    tokenizer: Any = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=n_symbols, min_frequency=MIN_PAIR_COUNT, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(text, trainer)
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]
