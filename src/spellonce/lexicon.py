"""The lexicon: which lexemes there are, how they are spelled, how often they were seen.

Type ids run by falling frequency, after UNK and EOS. The first `n_lexemes` types are lexemes; the
others of the training text are *novel* to the model: they are UNK to the lexeme LM and spelled by
the speller. Counts are kept for all, because the frequency bins of the paper (table 1) need them.

Characters seen fewer than `min_char_count` times are `◇`, as in the paper. A literal ◇ in a text is
such a character too, so nothing is ever mistaken for the placeholder.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import RunError
from spellonce.text import EOS, UNSPELLED

UNK_ID = 0
EOS_ID = 1
N_SPECIAL = 2

OTHER = "◇"
"""Stands for every character that is not in the alphabet."""
BOUNDARY_SYMBOL = 0
"""BOW as an input of the speller, EOW as an output."""
OTHER_SYMBOL = 1

N_SCALAR_VALUES = 1_112_064
"""All that a Unicode character can be."""


class Alphabet:
    """The characters that spellings are made of.

    >>> a = Alphabet("abn")
    >>> a.replace("naïve"), a.encode("ban").tolist(), len(a)
    ('na◇◇◇', [3, 2, 4], 5)
    """

    def __init__(self, chars: Iterable[str]) -> None:
        self.chars = tuple(chars)
        self._symbol = {char: i + 2 for i, char in enumerate(self.chars)}
        if OTHER in self._symbol or len(self._symbol) != len(self.chars):
            raise RunError(f"an alphabet has each character once, and never {OTHER}")

    def __len__(self) -> int:
        """Symbols of the speller: the characters, ◇, and the word boundary."""
        return len(self.chars) + 2

    @property
    def other_nats(self) -> float:
        """What a lossless coder pays to say which character a ◇ was."""
        return float(np.log(N_SCALAR_VALUES - len(self.chars)))

    def replace(self, word: str) -> str:
        """The word with ◇ for every character that is not in the alphabet."""
        known = self._symbol
        if known.keys() >= set(word):
            return word
        return "".join(char if char in known else OTHER for char in word)

    def encode(self, word: str) -> NDArray[np.int32]:
        """The symbols of a word, without boundaries."""
        get = self._symbol.get
        return np.fromiter((get(char, OTHER_SYMBOL) for char in word), np.int32, len(word))

    def decode(self, symbols: Iterable[int]) -> str:
        """The word of some symbols, without boundaries."""
        return "".join(OTHER if s == OTHER_SYMBOL else self.chars[s - 2] for s in symbols)


@dataclass(frozen=True)
class Spellings:
    """Many spellings, end to end.

    >>> s = Spellings.of(Alphabet("ab"), ["ab", "", "b"])
    >>> s.lengths().tolist(), s[2].tolist()
    ([2, 0, 1], [3])
    """

    symbols: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.bool_] | None = None
    """Which of them go on after what is here, so that no EOW follows; None: none of them."""

    @classmethod
    def of(cls, alphabet: Alphabet, words: Sequence[str]) -> Spellings:
        """Encodes the words."""
        offsets = np.zeros(len(words) + 1, dtype=np.int64)
        np.cumsum([len(word) for word in words], out=offsets[1:])
        return cls(alphabet.encode("".join(words)), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> NDArray[np.int32]:
        return self.symbols[self.offsets[i] : self.offsets[i + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """How many symbols each has."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.integer[Any]], limit: int | None = None) -> Spellings:
        """Some of them, in the order given, those longer than `limit` symbols cut there.

        >>> s = Spellings.of(Alphabet("ab"), ["ab", "", "b"]).take(np.array([2, 0]), limit=1)
        >>> s.symbols.tolist(), s.offsets.tolist()
        ([3, 2], [0, 1, 2])
        """
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        cut = None if self.cut is None else self.cut[rows]
        if limit is not None:
            cut = lengths > limit if cut is None else cut | (lengths > limit)
            lengths = np.minimum(lengths, limit)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        shift = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Spellings(self.symbols[shift + np.arange(offsets[-1])], offsets, cut)

    def ends(self) -> NDArray[np.bool_]:
        """Which of them are followed by EOW."""
        return np.ones(len(self), dtype=bool) if self.cut is None else ~self.cut


@dataclass(frozen=True)
class Lexicon:
    """All training types by falling frequency; the first `n_lexemes` of them can be summoned."""

    alphabet: Alphabet
    types: tuple[str, ...]
    """Spelling of each type after ◇; UNK and EOS, which have none, come first."""
    counts: NDArray[np.int64]
    """Training count of each type; UNK's is that of the tokens without a spelling."""
    n_lexemes: int
    _id: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.types[:N_SPECIAL] != (UNSPELLED, EOS) or len(self.types) != len(self.counts):
            raise RunError("a lexicon begins with UNK and EOS and has a count for each type")
        if not N_SPECIAL <= self.n_lexemes <= len(self.types):
            raise RunError(f"{self.n_lexemes} lexemes out of {len(self.types)} types cannot be")
        object.__setattr__(self, "_id", {word: i for i, word in enumerate(self.types)})
        if len(self._id) != len(self.types) or (self.counts < 0).any():
            raise RunError("a lexicon has each type once, and counts of 0 or more")

    def type_id(self, token: str) -> int | None:
        """The id of a token's type, lexeme or not; None for one never seen in training."""
        return self._id.get(self.alphabet.replace(token) if token != EOS else EOS)

    def lexeme_id(self, token: str) -> int:
        """The id of the lexeme that the token is, or UNK.

        >>> lexicon = Lexicon(Alphabet("ab"), ("", "\\n", "ab", "b"), np.array([0, 1, 5, 2]), 3)
        >>> lexicon.lexeme_id("ab"), lexicon.lexeme_id("b"), lexicon.type_id("b")
        (2, 0, 3)
        """
        type_id = self.type_id(token)
        return UNK_ID if type_id is None or type_id >= self.n_lexemes else type_id

    def encode(self, tokens: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lexeme ids of tokens of a text to be scored, and the training counts of their types."""
        type_ids = np.fromiter(
            (-1 if (t := self.type_id(token)) is None else t for token in tokens),
            np.int64, len(tokens),
        )  # fmt: skip
        counts = np.where(type_ids < 0, 0, self.counts[type_ids])
        known = (type_ids >= 0) & (type_ids < self.n_lexemes)
        return np.where(known, type_ids, UNK_ID), counts

    def spellings(self) -> Spellings:
        """The spellings of all types; UNK's and EOS's are empty."""
        words = ["" if i < N_SPECIAL else word for i, word in enumerate(self.types)]
        return Spellings.of(self.alphabet, words)

    def unspelled(self, share: float) -> NDArray[np.bool_]:
        """A share of the lexemes, the same whatever the lexicon: which ones.  (V,)

        >>> lexicon = Lexicon(Alphabet("ab"), ("", "\\n", "ab", "b"), np.array([0, 1, 5, 2]), 4)
        >>> lexicon.unspelled(0.5).tolist()
        [False, False, False, True]
        """
        chosen = np.zeros(self.n_lexemes, dtype=bool)
        for i in range(N_SPECIAL, self.n_lexemes if share else 0):
            chosen[i] = zlib.crc32(self.types[i].encode("utf-8", "surrogatepass")) < share * 2**32
        return chosen

    def symbol_counts(self, *, by_types: bool) -> NDArray[np.int64]:
        """How often the speller's symbols occur, EOW among them, in all types or in all tokens.

        >>> lexicon = Lexicon(Alphabet("ab"), ("", "\\n", "ab", "b"), np.array([0, 1, 5, 2]), 3)
        >>> [lexicon.symbol_counts(by_types=x).tolist() for x in (True, False)]
        [[2, 0, 1, 2], [7, 0, 5, 7]]
        """
        spellings = self.spellings()
        times = np.ones_like(self.counts) if by_types else self.counts.copy()
        times[:N_SPECIAL] = 0
        found = np.zeros(len(self.alphabet), dtype=np.int64)
        np.add.at(found, spellings.symbols, np.repeat(times, spellings.lengths()))
        found[BOUNDARY_SYMBOL] = times.sum()
        return found


@dataclass(frozen=True)
class Build:
    """A lexicon fresh from counting, and how it names the raw types that were counted."""

    lexicon: Lexicon
    type_ids: NDArray[np.int32]
    """Type id of each raw type, in the order of the counts given to `build`."""
    n_other: int
    """Characters of the training tokens that became ◇,"""
    n_spelled: int
    """out of so many."""


def build(
    raw_counts: Mapping[str, int],
    *,
    vocab_size: int | None = None,
    min_count: int = 1,
    min_char_count: int = 25,
    more_chars: Mapping[str, int] | None = None,
) -> Build:
    """Makes a lexicon from the counts of raw types (`EOS` and `UNSPELLED` among them).

    `vocab_size` counts EOS but not UNK; None takes all types that were seen `min_count` times.
    `more_chars` are characters of words that are not among the types, with their counts.

    >>> lexicon = build({"a": 3, "b": 1, "\\n": 2}, vocab_size=2, min_char_count=1).lexicon
    >>> lexicon.types, lexicon.n_lexemes
    (('', '\\n', 'a', 'b'), 3)
    """
    char_counts = Counter(count_characters(raw_counts))
    char_counts.update(more_chars or {})
    frequent = [c for c, n in char_counts.items() if n >= min_char_count and c != OTHER]
    alphabet = Alphabet(sorted(frequent, key=lambda c: (-char_counts[c], c)))
    kept = sum(char_counts[c] for c in alphabet.chars)

    renamed = _with_other(list(raw_counts), char_counts.keys() - set(alphabet.chars))
    counts = dict(zip(renamed, raw_counts.values(), strict=True))
    if len(counts) < len(renamed):  # some have become the same
        counts = dict.fromkeys(renamed, 0)
        for word, count in zip(renamed, raw_counts.values(), strict=True):
            counts[word] += count
    special = [counts.pop(UNSPELLED, 0), counts.pop(EOS, 0)]
    words = sorted(sorted(counts), key=counts.__getitem__, reverse=True)
    by_rank = np.array([*special, *map(counts.__getitem__, words)], dtype=np.int64)
    n_words = int((by_rank[N_SPECIAL:] >= min_count).sum())
    if vocab_size is not None:
        n_words = min(n_words, max(vocab_size - 1, 0))
    lexicon = Lexicon(
        alphabet=alphabet,
        types=(UNSPELLED, EOS, *words),
        counts=by_rank,
        n_lexemes=N_SPECIAL + n_words,
    )
    type_ids = np.fromiter(map(lexicon._id.__getitem__, renamed), np.int32, len(renamed))
    n_spelled = sum(char_counts.values())
    return Build(lexicon, type_ids, n_spelled - kept, n_spelled)


def count_characters(counts: Mapping[str, int]) -> dict[str, int]:
    """How often each character occurs, all words but EOS together.

    >>> count_characters({"ab": 3, "b": 2, EOS: 9})
    {'a': 3, 'b': 5}
    """
    words = [word for word in counts if word != EOS]
    joined = "".join(words).encode("utf-32-le", "surrogatepass")
    times = np.fromiter(map(counts.__getitem__, words), np.int64, len(words))
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    codes, places = np.unique(np.frombuffer(joined, dtype="<u4"), return_inverse=True)
    total = np.zeros(len(codes), dtype=np.int64)
    np.add.at(total, places, np.repeat(times, lengths))
    return dict(zip(map(chr, codes.tolist()), total.tolist(), strict=True))


def _with_other(words: list[str], chars: Set[str]) -> list[str]:
    """Words with ◇ for some characters, all at once; EOS stays.

    >>> _with_other(["naïve", EOS, "né", ""], {"ï"})
    ['na◇ve', '\\n', 'né', '']
    """
    if not chars:
        return words
    lines = EOS.join("" if word == EOS else word for word in words)
    class_of = "".join(map(re.escape, sorted(chars)))
    renamed = re.sub(f"[{class_of}]", OTHER, lines).split(EOS)
    return [EOS if old == EOS else new for old, new in zip(words, renamed, strict=True)]


def escape(word: str) -> str:
    r"""A word as one field of a tab-separated line.

    >>> escape("a\tb\\"), unescape(escape("a\tb\\"))
    ('a\\u{9}b\\u{5C}', 'a\tb\\')
    """
    if word.isprintable() and "\\" not in word:
        return word
    return "".join(c if c.isprintable() and c != "\\" else f"\\u{{{ord(c):X}}}" for c in word)


def unescape(field_text: str) -> str:
    """Undoes `escape`."""
    if "\\" not in field_text:
        return field_text
    head, *rest = field_text.split("\\u{")
    out = [head]
    for part in rest:
        code, _, tail = part.partition("}")
        out += [chr(int(code, 16)), tail]
    return "".join(out)


_HEADER = "id\tcount\trole\tspelling"
_SPECIAL_NAMES = ("UNK", "EOS")


def to_tsv(lexicon: Lexicon) -> str:
    """`lexicon.tsv`: first the alphabet, then all types; made to be read by people too."""
    lines = [_HEADER]
    lines += [f"{i + 2}\t\tcharacter\t{escape(c)}" for i, c in enumerate(lexicon.alphabet.chars)]
    for i, (word, count) in enumerate(zip(lexicon.types, lexicon.counts.tolist(), strict=True)):
        role = "special" if i < N_SPECIAL else "lexeme" if i < lexicon.n_lexemes else "novel"
        name = _SPECIAL_NAMES[i] if i < N_SPECIAL else escape(word)
        lines.append(f"{i}\t{count}\t{role}\t{name}")
    return "\n".join(lines) + "\n"


def from_tsv(text: str) -> Lexicon:
    """Reads what `to_tsv` wrote."""
    chars: list[str] = []
    types: list[str] = []
    counts: list[int] = []
    n_lexemes = 0
    try:
        header, *lines = text.removesuffix("\n").split("\n")
        if header != _HEADER:
            raise ValueError("the header is not that of a lexicon")
        for line in lines:
            number, count, role, name = line.split("\t")
            if role == "character":
                chars.append(unescape(name))
                continue
            if int(number) != len(types):
                raise ValueError(f"id {number} is out of order")
            n_lexemes += role != "novel"
            types.append((UNSPELLED, EOS)[len(types)] if role == "special" else unescape(name))
            counts.append(int(count))
        return Lexicon(Alphabet(chars), tuple(types), np.array(counts, dtype=np.int64), n_lexemes)
    except (ValueError, OverflowError, IndexError) as error:
        raise RunError(f"not a lexicon: {error}") from error


def load(path: Path) -> Lexicon:
    """Reads a `lexicon.tsv`."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            return from_tsv(file.read())
    except (OSError, UnicodeDecodeError, RunError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
