"""Text ⇄ bits: what a model expects is spent by an arithmetic coder.

Whoever decodes must compute the same probabilities to the last bit. So coding and decoding are one
function (`TextCoder.token`), which takes one step at a time, always the same shapes, on one thread,
and a `Coder` that either writes the choice that it is told or reads the choice that was made.
"""

from __future__ import annotations

import copy
import io
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Protocol

import constriction  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from spellonce.errors import SpellOnceError
from spellonce.lexicon import BOUNDARY_SYMBOL, N_SCALAR_VALUES, OTHER, Alphabet
from spellonce.speller import SpellingSteps
from spellonce.stepping import Stepper
from spellonce.text import EOS, Reading, TextFormat, join_tokens, read, split_lines

MAX_WORD = 1000
"""A block with a longer word is no text."""
_TELLING = 100
"""Tokens from one time that progress is told to the next."""
MAX_OTHER = 0.3
"""Nor is one with a larger share of characters that the model does not know."""

Floats = NDArray[np.float64]


class CodecError(SpellOnceError):
    """A file that cannot be decompressed."""


# --- choices → bits -----------------------------------------------------------------------------


class Coder(Protocol):
    """Writes choices, or reads them."""

    def choose(self, p: Floats, chosen: int | None) -> int:
        """One of the choices with probabilities p: `chosen`, or what is read."""

    def uniform(self, n: int, chosen: int | None) -> int:
        """The same among n that are equally likely."""


class BitWriter:
    """Choices → bytes."""

    def __init__(self) -> None:
        self._encoder = constriction.stream.queue.RangeEncoder()

    def choose(self, p: Floats, chosen: int | None) -> int:
        assert chosen is not None
        if len(p) > 1:
            self._encoder.encode(chosen, _categorical(p))
        return chosen

    def uniform(self, n: int, chosen: int | None) -> int:
        assert chosen is not None
        if n > 1:
            self._encoder.encode(chosen, _uniform(n))
        return chosen

    def bytes(self) -> bytes:
        """All that was written."""
        words: NDArray[np.uint32] = self._encoder.get_compressed()
        return words.astype("<u4").tobytes()


class BitReader:
    """Bytes → choices."""

    def __init__(self, data: bytes) -> None:
        words = np.frombuffer(data, dtype="<u4").astype(np.uint32)
        self._decoder = constriction.stream.queue.RangeDecoder(words)

    def choose(self, p: Floats, chosen: int | None) -> int:
        return int(self._decoder.decode(_categorical(p))) if len(p) > 1 else 0

    def uniform(self, n: int, chosen: int | None) -> int:
        return int(self._decoder.decode(_uniform(n))) if n > 1 else 0


def _categorical(p: Floats) -> Any:
    return constriction.stream.model.Categorical(p, lazy=True, perfect=False)


def _uniform(n: int) -> Any:
    return constriction.stream.model.Uniform(n)


# --- text ---------------------------------------------------------------------------------------


class Others:
    """Which character a ◇ was: all that are not in the alphabet are equally likely.

    >>> others = Others(Alphabet("ab"))
    >>> [others.number(char) for char in "\\0\\x7f\\U00010000"], others.char(0x7F - 2)
    ([0, 125, 63486], '\\x7f')
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self._taken = sorted(_scalar(char) for char in alphabet.chars)
        self.n = N_SCALAR_VALUES - len(self._taken)

    def number(self, char: str) -> int:
        """Its place among the others."""
        return _scalar(char) - bisect_left(self._taken, _scalar(char))

    def char(self, number: int) -> str:
        """The character at a place."""
        for taken in self._taken:
            if taken > number:
                break
            number += 1
        return chr(number if number < 0xD800 else number + 0x800)


def _scalar(char: str) -> int:
    """The number of a character among all but the surrogates."""
    code = ord(char)
    return code if code < 0xD800 else code - 0x800


class GapCoder:
    """White space that tokens leave open, as `LayoutCode` prices it.

    (But for a bit or so whenever there are so many spaces as never before.)
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, int]] = {}

    def gap(self, coder: Coder, place: str, extra: int | None) -> int:
        """So many spaces more than one would write: one of those seen here before, or another."""
        seen = self._seen.setdefault(place, {})
        known = sorted(seen)
        total = sum(seen.values()) + 1
        p = [(seen[n] + _prior(n)) / total for n in known]
        p.append(max(1 - sum(p), 1e-9))
        index = None if extra is None else known.index(extra) if extra in seen else len(known)
        index = coder.choose(np.array(p), index)
        found = known[index] if index < len(known) else _gamma(coder, extra)
        seen[found] = seen.get(found, 0) + 1
        return found


def _prior(n: int) -> float:
    return 2.0 ** -(2 * ((n + 1).bit_length() - 1) + 1)


def _gamma(coder: Coder, n: int | None) -> int:
    """A number from 0 on, in Elias's gamma code."""
    size = None if n is None else (n + 1).bit_length() - 1
    found_size = 0
    while coder.uniform(2, None if size is None else int(found_size < size)):
        found_size += 1
        if found_size > 24:
            raise CodecError("a gap that is too wide")
    bits = 1
    for i in reversed(range(found_size)):
        bit = None if n is None else (n + 1) >> i & 1
        bits = 2 * bits + coder.uniform(2, bit)
    return bits - 1


class TextCoder:
    """Codes text with a model, block after block; it carries on what was read."""

    def __init__(
        self, stepper: Stepper, fmt: TextFormat, told: Callable[[int], None] = lambda n_chars: None
    ) -> None:
        """`told` hears now and then how many characters of a block are done."""
        self._stepper, self._fmt, self._told = stepper, fmt, told
        self._others = Others(stepper.lexicon.alphabet)
        self._gaps = GapCoder()

    def state(self) -> tuple[dict[str, Any], GapCoder]:
        """All that it carries on."""
        return self._stepper.state_dict(), copy.deepcopy(self._gaps)

    def restore(self, state: tuple[dict[str, Any], GapCoder]) -> None:
        """What `state` gave."""
        self._stepper.restore(state[0])
        self._gaps = state[1]

    def token(self, coder: Coder, token: str | None) -> str:
        """Codes one token, or reads one, and learns from it."""
        alphabet = self._stepper.lexicon.alphabet
        outlook = self._stepper.outlook()
        word = None if token is None else token if token == EOS else alphabet.replace(token)
        first, second = (None, None) if word is None else outlook.place(word)
        first = coder.choose(outlook.first, first)
        tail = outlook.tail(first)
        if tail is not None:
            second = coder.choose(outlook.within(tail), second)
        found = outlook.word(first, second)
        if found is None:
            found = self._spelled(coder, outlook.spell(), word)
        if OTHER in found:
            found = "".join(
                self._other(coder, None if token is None else token[i]) if char == OTHER else char
                for i, char in enumerate(found)
            )
        self._stepper.take(found)
        return found

    def _spelled(self, coder: Coder, steps: SpellingSteps, word: str | None) -> str:
        alphabet = self._stepper.lexicon.alphabet
        wanted = None if word is None else [*alphabet.encode(word).tolist(), BOUNDARY_SYMBOL]
        symbols: list[int] = []
        while len(symbols) <= MAX_WORD:
            symbol = coder.choose(
                steps.probabilities(), None if wanted is None else wanted[len(symbols)]
            )
            if symbol == BOUNDARY_SYMBOL and not symbols:
                raise CodecError("a word without characters")
            if symbol == BOUNDARY_SYMBOL:
                return alphabet.decode(symbols)
            symbols.append(symbol)
            steps.take(symbol)
        raise CodecError("a word without an end")

    def _other(self, coder: Coder, char: str | None) -> str:
        number = None if char is None else self._others.number(char)
        return self._others.char(coder.uniform(self._others.n, number))

    def encode(self, text: str) -> bytes | None:
        """A block of text; None if it is none that should be modelled."""
        reading = read(split_lines(text), self._fmt)
        tokens, alphabet = reading.tokens, self._stepper.lexicon.alphabet
        n_other = sum(alphabet.replace(t).count(OTHER) for t in tokens if t != EOS)
        if max(map(len, tokens), default=0) > MAX_WORD or n_other > MAX_OTHER * len(text):
            return None
        coder = BitWriter()
        last = int(reading.end[-1]) if tokens else 0
        blanks = 0 if tokens and tokens[-1] != EOS else len(text) - last
        if self._run(coder, len(tokens), reading, len(text)) + " " * blanks != text:
            return None
        return varint(len(tokens)) + varint(blanks) + coder.bytes()

    def decode(self, payload: bytes, n_bytes: int) -> str:
        """The block of text, which has so many bytes."""
        file = io.BytesIO(payload)
        n, blanks = read_varint(file), read_varint(file)
        if max(n, blanks) > n_bytes:
            raise CodecError("a text that is too long")
        return self._run(BitReader(file.read()), n, None, n_bytes) + " " * blanks

    def _run(self, coder: Coder, n: int, reading: Reading | None, most: int) -> str:
        """n tokens of lines, and what is open between them; the text, of so many characters."""
        n_chars = 0
        is_open = self._fmt.tokenization == "spaces"
        parts: list[str] = []
        line: list[str] = []
        before, end = EOS, 0
        for i in range(n):
            token = self.token(coder, None if reading is None else reading.tokens[i])
            if is_open:
                place, usual = _place(before, token)
                gap = None if reading is None else int(reading.start[i]) - end - usual
                parts.append(" " * (usual + self._gaps.gap(coder, place, gap)))
                end = 0 if reading is None else int(reading.end[i])
                n_chars += len(parts[-1])
            line.append(token)
            n_chars += 1 if token == EOS else len(self._surface([token]))
            if n_chars > most:
                raise CodecError("a text that is too long")
            if token == EOS or is_open:
                parts.append(self._surface(line))
                line = []
            before = token
            if i % _TELLING == 0:
                self._told(n_chars)
        if is_open and before != EOS:
            gap = None if reading is None else reading.text_chars - end
            parts.append(" " * self._gaps.gap(coder, "after", gap))
        return "".join([*parts, self._surface(line)])

    def _surface(self, line: list[str]) -> str:
        """The text of tokens, of which the last may be an EOS."""
        words = [token for token in line if token != EOS]
        return "".join(a + b for a, b in join_tokens(words, self._fmt)) + EOS * (EOS in line)


def _place(before: str, token: str) -> tuple[str, int]:
    """(the kind of place between two tokens, the spaces that one would write there)."""
    if before == EOS:
        return ("blank" if token == EOS else "before"), 0
    return ("after", 0) if token == EOS else ("between", 1)


# --- numbers ---------------------------------------------------------------------------------


class Bytes(Protocol):
    """What bytes can be read from."""

    def read(self, n: int, /) -> bytes:
        """Up to n of them."""


def varint(n: int) -> bytes:
    r"""A number from 0 on, seven bits a byte.

    >>> varint(0), varint(300), read_varint(io.BytesIO(varint(300)))
    (b'\x00', b'\xac\x02', 300)
    """
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def read_varint(file: Bytes) -> int:
    n = 0
    for shift in range(0, 63, 7):
        byte = file.read(1)
        if not byte:
            raise CodecError("it is cut short")
        n |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return n
    raise CodecError("it is damaged: a number is too large")
