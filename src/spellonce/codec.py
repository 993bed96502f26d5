"""Lossless compression: a file costs the bits that `eval` announces (strict, in the same mode).

A container is

    magic, version, mode, fingerprint of the model, what computed it, checksum
    blocks: kind, size, payload, checksum     text is modelled; what is no text is not
    end: kind, length and checksum of the file

Whoever decodes must compute the same probabilities to the last bit. So coding and decoding are one
function (`_Text.token`), which takes one step at a time, always the same shapes, on one thread, and
a `_Coder` that either writes the choice that it is told or reads the choice that was made. Still,
another version of torch or another kind of processor may compute otherwise: the container names
both, and `compress` decodes what it wrote before it says that it is done.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import io
import itertools
import json
import lzma
import os
import re
import tempfile
import unicodedata
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

import constriction  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from spellonce import lexicon as lexicons
from spellonce import recipes, runtime
from spellonce.adaptive import Learning
from spellonce.errors import ConfigError, DataError, SpellOnceError
from spellonce.lexicon import BOUNDARY_SYMBOL, N_SCALAR_VALUES, OTHER, Alphabet
from spellonce.mixture import SpellingMixture, TextMixture
from spellonce.model import Model
from spellonce.speller import SpellingSteps
from spellonce.stepping import Stepper
from spellonce.systems import SYSTEMS
from spellonce.text import EOS, Reading, TextFormat, join_tokens, read, split_lines

MAGIC = b"\xabsp1\r\n"
VERSION = 1
BLOCK = 1 << 18
"""Bytes that are coded at a time."""
MAX_WORD = 1000
"""A block with a longer word is no text."""
_LONG_WORD = re.compile(rf"[^\W_]{{{MAX_WORD}}}")
MAX_OTHER = 0.3
"""Nor is one with a larger share of characters that the model does not know."""
_STORED, _LZMA, _MODELLED, _END = range(4)
_LZMA_FORMAT: dict[str, Any] = {
    "format": lzma.FORMAT_RAW,
    "filters": [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 18}],
}

Floats = NDArray[np.float64]
Progress = Callable[[int], None]
"""Hears how many bytes of the file are done."""


class Target(Protocol):
    """What bytes can be written to."""

    def write(self, data: bytes, /) -> Any:
        """Takes all of them."""


class CodecError(SpellOnceError):
    """A file that cannot be decompressed."""


# --- choices → bits -----------------------------------------------------------------------------


class _Coder(Protocol):
    """Writes choices, or reads them."""

    def choose(self, p: Floats, chosen: int | None) -> int:
        """One of the choices with probabilities p: `chosen`, or what is read."""

    def uniform(self, n: int, chosen: int | None) -> int:
        """The same among n that are equally likely."""


class _Writer:
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


class _Reader:
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


class _Others:
    """Which character a ◇ was: all that are not in the alphabet are equally likely.

    >>> others = _Others(Alphabet("ab"))
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


class _GapCoder:
    """White space that tokens leave open, as `LayoutCode` prices it."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, int]] = {}

    def gap(self, coder: _Coder, place: str, extra: int | None) -> int:
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


def _gamma(coder: _Coder, n: int | None) -> int:
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


class _Text:
    """Codes text with a model, block after block; it carries on what was read."""

    def __init__(self, stepper: Stepper, fmt: TextFormat) -> None:
        self._stepper, self._fmt = stepper, fmt
        self._others = _Others(stepper.lexicon.alphabet)
        self._gaps = _GapCoder()

    def state(self) -> tuple[dict[str, Any], _GapCoder]:
        """All that it carries on."""
        return self._stepper.state_dict(), copy.deepcopy(self._gaps)

    def restore(self, state: tuple[dict[str, Any], _GapCoder]) -> None:
        """What `state` gave."""
        self._stepper.restore(state[0])
        self._gaps = state[1]

    def token(self, coder: _Coder, token: str | None) -> str:
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

    def _spelled(self, coder: _Coder, steps: SpellingSteps, word: str | None) -> str:
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

    def _other(self, coder: _Coder, char: str | None) -> str:
        number = None if char is None else self._others.number(char)
        return self._others.char(coder.uniform(self._others.n, number))

    def encode(self, text: str) -> bytes | None:
        """A block of text; None if it is none that should be modelled."""
        reading = read(split_lines(text), self._fmt)
        tokens, alphabet = reading.tokens, self._stepper.lexicon.alphabet
        n_other = sum(alphabet.replace(t).count(OTHER) for t in tokens if t != EOS)
        if max(map(len, tokens), default=0) > MAX_WORD or n_other > MAX_OTHER * len(text):
            return None
        coder = _Writer()
        last = int(reading.end[-1]) if tokens else 0
        blanks = 0 if tokens and tokens[-1] != EOS else len(text) - last
        if self._run(coder, len(tokens), reading, len(text)) + " " * blanks != text:
            return None
        return _varint(len(tokens)) + _varint(blanks) + coder.bytes()

    def decode(self, payload: bytes, n_bytes: int) -> str:
        """The block of text, which has so many bytes."""
        file = io.BytesIO(payload)
        n, blanks = _read_varint(file), _read_varint(file)
        if max(n, blanks) > n_bytes:
            raise CodecError("a text that is too long")
        return self._run(_Reader(file.read()), n, None, n_bytes) + " " * blanks

    def _run(self, coder: _Coder, n: int, reading: Reading | None, most: int) -> str:
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
            n_chars += 1  # a token is at least one character
            if n_chars > most:
                raise CodecError("a text that is too long")
            if token == EOS or is_open:
                parts.append(self._surface(line))
                line = []
            before = token
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


# --- files --------------------------------------------------------------------------------------


def compress(
    model: Model,
    source: IO[bytes],
    target: Target,
    learning: Learning | None = None,
    progress: Progress = lambda n_bytes: None,
) -> None:
    """Compresses what `source` has to `target`, some of it at a time."""
    learning = learning or Learning()
    if learning.renormalise or learning.reset:
        raise ConfigError("compression has no --renormalise and no --reset")
    with runtime.one_thread():
        _compress(model, source, target, learning, progress)


def _compress(
    model: Model, source: IO[bytes], target: Target, learning: Learning, progress: Progress
) -> None:
    stepper = _stepper(model, learning)
    text = _Text(stepper, model.format)
    head = bytes([VERSION, learning.cache + 2 * learning.dynamic]) + fingerprint(model, stepper)
    made_by = _made_by().encode()
    head = MAGIC + head + bytes([len(made_by)]) + made_by
    target.write(head + _crc(head))
    digest, n_done = hashlib.sha256(), 0
    for raw in itertools.chain.from_iterable(map(_parts, _blocks(source))):
        digest.update(raw)
        kind, payload = _best(text, raw)
        block = bytes([kind]) + _varint(len(raw)) + _varint(len(payload)) + payload
        target.write(block + _crc(block))
        n_done += len(raw)
        progress(n_done)
    end = bytes([_END]) + _varint(n_done) + digest.digest()[:8]
    target.write(end + _crc(end))


def decompress(
    model: Model,
    source: IO[bytes],
    target: Target,
    progress: Progress = lambda n_bytes: None,
) -> None:
    """Writes to `target` what was compressed. What it wrote is good only if no error is raised."""
    with runtime.one_thread():
        _decompress(model, _Checked(source), target, progress)
    if source.read(1):
        raise CodecError("it is damaged: something follows its end")


def _decompress(model: Model, file: _Checked, target: Target, progress: Progress) -> None:
    if file.read(len(MAGIC)) != MAGIC:
        raise CodecError("it is no file that `spellonce compress` wrote")
    version, mode = file.read(2)
    if version != VERSION or mode > 3:
        raise CodecError(f"it has format version {version}, and this program reads {VERSION}")
    stamp = file.read(8)
    made_by = file.read(file.read(1)[0]).decode("utf-8", "replace")
    file.check()
    stepper = _stepper(model, Learning(cache=bool(mode & 1), dynamic=bool(mode & 2)))
    if stamp != fingerprint(model, stepper):
        raise CodecError(
            "it was compressed with another model, or with one tuned otherwise: -m RUN"
        )
    here = _made_by()
    other = "" if here == made_by else f"; it was made with {made_by}, and this is {here}"
    text = _Text(stepper, model.format)
    digest, n_done = hashlib.sha256(), 0
    while (kind := file.read(1)[0]) != _END:
        n, size = file.varint(), file.varint()
        if max(n, size) > 4 * BLOCK:
            raise CodecError("it is damaged: a block is too long")
        payload = file.read(size)
        file.check()
        raw = _unpacked(text, kind, payload, n, other)
        digest.update(raw)
        target.write(raw)
        n_done += n
        progress(n_done)
    n, checksum = file.varint(), file.read(8)
    file.check()
    if (n, checksum) != (n_done, digest.digest()[:8]):
        raise CodecError(f"what came out is not what was compressed{other}")


def _stepper(model: Model, learning: Learning) -> Stepper:
    if model.network.device.type != "cpu":
        raise ConfigError("compression computes on the CPU: load the model with device='cpu'")
    return model.stepper(learning)


def compress_file(
    model: Model,
    path: Path,
    out: Path,
    learning: Learning | None = None,
    *,
    verify: bool = True,
    progress: Progress = lambda n_bytes: None,
) -> tuple[int, int]:
    """Compresses a file and, unless told not to, decodes it again; (bytes before, bytes after)."""
    with _open(path) as source, _appearing(out) as target:
        if not source.seekable():
            raise DataError(f"{path} cannot be read twice: save what it holds, and name that")
        compress(model, source, target, learning, progress)
        sizes = source.tell(), target.tell()
        if verify:
            source.seek(0)
            target.seek(0)
            decompress(model, target, _Same(source), lambda n: progress(sizes[0] + n))
            target.seek(0, os.SEEK_END)
    return sizes


def decompress_file(
    model: Model, path: Path, out: Path, *, progress: Progress = lambda n_bytes: None
) -> int:
    """Decompresses a file; its size."""
    with _open(path) as source, _appearing(out) as target:
        try:
            decompress(model, source, target, progress)
        except CodecError as error:
            raise CodecError(f"{path} cannot be decompressed: {error}") from error
        return target.tell()


def fingerprint(model: Model, stepper: Stepper) -> bytes:
    """Eight bytes that stand for all that the probabilities depend on."""
    digest = hashlib.sha256(lexicons.to_tsv(model.lexicon).encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(model.network.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    for part in model.network.modules():
        if isinstance(part, TextMixture | SpellingMixture):
            for name, array in sorted(part.ngrams.arrays().items()):
                digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    recipe = recipes.to_json(model.recipe)
    parts = {part: recipe[part] for part in SYSTEMS[model.recipe.system].parts}
    about = [asdict(model.format), model.recipe.system, parts, stepper.adaptation.to_json()]
    digest.update(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted((stepper.scale or {}).items()):
        digest.update(name.encode() + tensor.float().cpu().numpy().tobytes())
    return digest.digest()[:8]


def _made_by() -> str:
    """What probabilities depend on beside the model."""
    versions = runtime.versions()
    parts = [f"{name} {versions[name]}" for name in ("spellonce", "torch", "numpy")]
    parts.append(f"constriction {importlib.metadata.version('constriction')}")
    return ", ".join([*parts, versions["cpu"], f"Unicode {unicodedata.unidata_version}"])


def _best(text: _Text, raw: bytes) -> tuple[int, bytes]:
    """(kind, payload) of a block, whichever is shortest."""
    packed = lzma.compress(raw, **_LZMA_FORMAT)
    kind, payload = min((_STORED, raw), (_LZMA, packed), key=lambda one: len(one[1]))
    before = text.state()
    try:
        modelled = text.encode(raw.decode("utf-8"))
    except ValueError:  # it is no UTF-8, or probabilities are none: weights went astray
        modelled = None
    if modelled is not None and len(modelled) < len(payload):
        return _MODELLED, modelled
    text.restore(before)
    return kind, payload


def _unpacked(text: _Text, kind: int, payload: bytes, n: int, other: str) -> bytes:
    """The block of a payload, which has n bytes."""
    try:
        if kind == _STORED:
            raw = payload
        elif kind == _LZMA:
            raw = lzma.LZMADecompressor(**_LZMA_FORMAT).decompress(payload, n + 1)
        elif kind == _MODELLED:
            raw = text.decode(payload, n).encode("utf-8")
        else:
            raise CodecError(f"a block of an unknown kind, {kind}")
    except (lzma.LZMAError, AssertionError, ValueError, OverflowError, SpellOnceError) as error:
        raise CodecError(f"it cannot be decoded ({error}){other}") from error
    if len(raw) != n:
        raise CodecError(f"what came out is not what was compressed{other}")
    return raw


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """About `BLOCK` bytes at a time, cut after a line break, or at least between characters."""
    rest = b""
    while raw := rest + source.read(BLOCK):
        cut = len(raw)
        if cut - len(rest) == BLOCK:  # there may be more
            cut = raw.rfind(b"\n") + 1 or _between_characters(raw)
        yield raw[:cut]
        rest = raw[cut:]


def _between_characters(raw: bytes) -> int:
    """The last place at which no character of UTF-8 is cut.

    >>> _between_characters("aé".encode()), _between_characters("aé".encode()[:2])
    (3, 1)
    """
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(raw) - back if size > back else len(raw)
    return len(raw)


def _parts(raw: bytes, least: int = 1000) -> Iterator[bytes]:
    r"""A block, parted where lines of text follow lines that are none, and the other way.

    >>> list(_parts(b"abc\nde\n\xff\n\xfe\nfg\n", least=4))
    [b'abc\nde\n', b'\xff\n\xfe\nfg\n']
    """
    if _is_text(raw):
        yield raw
        return
    runs = [
        (is_text, b"".join(lines))
        for is_text, lines in itertools.groupby(re.findall(rb"[^\n]*\n|[^\n]+", raw), _is_text)
    ]
    for _, group in itertools.groupby(runs, lambda run: run[0] and len(run[1]) >= least):
        yield b"".join(lines for _, lines in group)


def _is_text(raw: bytes) -> bool:
    """Whether it is UTF-8, and has no word that is too long."""
    try:
        return _LONG_WORD.search(raw.decode("utf-8")) is None
    except UnicodeDecodeError:
        return False


class _Bytes(Protocol):
    """What bytes can be read from."""

    def read(self, n: int, /) -> bytes:
        """Up to n of them."""


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def _varint(n: int) -> bytes:
    r"""A number from 0 on, seven bits a byte.

    >>> _varint(0), _varint(300), _read_varint(io.BytesIO(_varint(300)))
    (b'\x00', b'\xac\x02', 300)
    """
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def _read_varint(file: _Bytes) -> int:
    n = 0
    for shift in range(0, 63, 7):
        byte = file.read(1)
        if not byte:
            raise CodecError("it is cut short")
        n |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return n
    raise CodecError("it is damaged: a number is too large")


class _Checked:
    """Reads a container; what was read is checked part by part."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._sum = file, 0

    def read(self, n: int) -> bytes:
        """Exactly n bytes."""
        data = self._file.read(n)
        if len(data) < n:
            raise CodecError("it is cut short")
        self._sum = zlib.crc32(data, self._sum)
        return data

    def varint(self) -> int:
        """A number."""
        return _read_varint(self)

    def check(self) -> None:
        """Compares what was read since the last check with the checksum that follows."""
        expected = self._sum.to_bytes(4, "little")
        if self.read(4) != expected:
            raise CodecError("it is damaged: a checksum differs")
        self._sum = 0


class _Same:
    """Takes only what a file has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        """The next bytes, which are to be the file's."""
        if self._file.read(len(data)) != data:
            raise CodecError("decoding gives something else on this machine: nothing was written")


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def _appearing(path: Path) -> Iterator[IO[bytes]]:
    """A new file, which is there when all of it is; nothing is overwritten."""
    taken = DataError(f"{path} is there already: name another file, or remove it")
    if path.exists():
        raise taken
    try:
        handle, name = tempfile.mkstemp(prefix=".spellonce-", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    partial = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())
        try:
            os.link(partial, path)
        except FileExistsError:
            raise taken from None
        except OSError:  # a disk that knows no links
            if path.exists():
                raise taken from None
            partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    """What new files are not allowed to be; to read it is to set it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
