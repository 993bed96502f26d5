"""Lossless compression: a file costs the bits that `eval` announces (strict, in the same mode).

A container is

    magic, version, mode, fingerprint of the model, what computed it, checksum
    blocks: kind, size, payload, checksum     text is modelled; what is no text is not
    end: kind, length and checksum of the file

What decodes must compute the same probabilities as what coded (see `coding`), and another version
of torch or another kind of processor may not: the container names both, and `compress` decodes what
it wrote before it says that it is done.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import lzma
import os
import re
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from spellonce import configuration, runtime
from spellonce import lexicon as lexicons
from spellonce.adaptive import Learning
from spellonce.coding import MAX_WORD, CodecError, TextCoder, read_varint, varint
from spellonce.errors import ConfigError, DataError, SpellOnceError
from spellonce.model import Model
from spellonce.network import fingerprint as network_fingerprint
from spellonce.stepping import Stepper
from spellonce.systems import SYSTEMS

MAGIC = b"\xabsp1\r\n"
VERSION = 1
BLOCK = 1 << 18
"""Bytes that are coded at a time."""
_LONG_WORD = {
    "reversible": re.compile(rf"[^\W_]{{{MAX_WORD}}}"),
    "spaces": re.compile(rf"[^ \n]{{{MAX_WORD + 1}}}"),
}
"""Where there is a token that is too long to be modelled, by tokenization."""
_STORED, _LZMA, _MODELLED, _END = range(4)
_LZMA_FORMAT: dict[str, Any] = {
    "format": lzma.FORMAT_RAW,
    "filters": [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 18}],
}

Progress = Callable[[int], None]
"""Hears how many bytes of the file are done."""


class Target(Protocol):
    """What bytes can be written to."""

    def write(self, data: bytes, /) -> Any:
        """Takes all of them."""


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
    n_done = 0
    text = TextCoder(stepper, model.format, lambda n_chars: progress(n_done + n_chars))
    head = bytes([VERSION, learning.cache + 2 * learning.dynamic]) + fingerprint(model, stepper)
    made_by = _made_by().encode()
    head = MAGIC + head + bytes([len(made_by)]) + made_by
    target.write(head + _crc(head))
    digest = hashlib.sha256()
    is_text = partial(_is_text, model.format.tokenization)
    for raw in (part for block in _blocks(source) for part in _parts(block, is_text)):
        digest.update(raw)
        kind, payload = _best(text, raw)
        block = bytes([kind]) + varint(len(raw)) + varint(len(payload)) + payload
        target.write(block + _crc(block))
        n_done += len(raw)
        progress(n_done)
    end = bytes([_END]) + varint(n_done) + digest.digest()[:8]
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
    n_done = 0
    text = TextCoder(stepper, model.format, lambda n_chars: progress(n_done + n_chars))
    digest = hashlib.sha256()
    while (kind := file.read(1)[0]) != _END:
        n, size = file.varint(), file.varint()
        if max(n, size) > 4 * BLOCK:
            raise CodecError("it is damaged: a block is too long")
        payload = file.read(size)
        file.check()
        text.state()  # what coded it may have had to go back: this puts memory in the same place
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
    digest.update(network_fingerprint(model.network).encode())
    recipe = configuration.to_json(model.recipe)
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


def _best(text: TextCoder, raw: bytes) -> tuple[int, bytes]:
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


def _unpacked(text: TextCoder, kind: int, payload: bytes, n: int, other: str) -> bytes:
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


def _parts(raw: bytes, is_text: Callable[[bytes], bool], least: int = 1000) -> Iterator[bytes]:
    r"""A block, parted where lines of text follow lines that are none, and the other way.

    >>> list(_parts(b"abc\nde\n\xff\n\xfe\nfg\n", partial(_is_text, "spaces"), least=4))
    [b'abc\nde\n', b'\xff\n\xfe\nfg\n']
    """
    if is_text(raw):
        yield raw
        return
    runs = [
        (is_one, b"".join(lines))
        for is_one, lines in itertools.groupby(re.findall(rb"[^\n]*\n|[^\n]+", raw), is_text)
    ]
    for _, group in itertools.groupby(runs, lambda run: run[0] and len(run[1]) >= least):
        yield b"".join(lines for _, lines in group)


def _is_text(tokenization: str, raw: bytes) -> bool:
    """Whether it is UTF-8, and has no word that is too long."""
    try:
        return _LONG_WORD[tokenization].search(raw.decode("utf-8")) is None
    except UnicodeDecodeError:
        return False


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


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
        return read_varint(self)

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
