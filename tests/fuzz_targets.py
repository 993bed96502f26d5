"""What must withstand any bytes, as functions of bytes.

`benchmarks/soak_fuzz.py` looks for bytes that it does not withstand; what it finds is kept under
`fuzz_cases/`, and `test_fuzz.py` tries it again and again. A target fails by any error that is not
one of ours: those are answers.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spellonce import codec, coding, lexicon, loading, tokenizer
from spellonce.adaptive import Learning
from spellonce.errors import SpellOnceError

Target = Callable[[bytes], None]

FILES = (
    "config.json", "lexicon.tsv", "model.safetensors", "checksums.json", "adaptive.json",
    "gradients.safetensors", "ngrams.safetensors",
)  # fmt: skip
_MOST = 1 << 20
"""No container that was made here can be of more bytes."""


def of_tokenizer(data: bytes) -> None:
    """Every text comes back, at once and line by line, and any tokens can be joined."""
    text = data.decode("utf-8", "replace")
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text
    lines = tokenizer.tokenize_stream(io.StringIO(text, newline="\n"))
    assert "".join(tokenizer.detokenize_stream(lines)) == text
    tokenizer.detokenize(text)


def of_lexicon(data: bytes) -> None:
    """A lexicon that is read is one: each type once, and the same when it is written and read."""
    try:
        read = lexicon.from_tsv(data.decode("utf-8"))
    except (SpellOnceError, UnicodeDecodeError):
        return
    assert len(set(read.types)) == len(read.types) == len(read.counts)
    assert (read.counts >= 0).all()
    again = lexicon.from_tsv(lexicon.to_tsv(read))
    assert again.types == read.types and again.n_lexemes == read.n_lexemes
    read.spellings()


def of_run(run: Path) -> Target:
    """A run in which one file was changed, by somebody who can compute checksums."""
    own = {name: (run / name).read_bytes() for name in FILES}

    def target(data: bytes) -> None:
        if len(data) < 4:
            return
        name = FILES[data[0] % len(FILES)]
        changed = data[4:]
        if data[1] % 2:
            place = int.from_bytes(data[2:4], "little") % (len(own[name]) + 1)
            changed = own[name][:place] + changed + own[name][place + len(changed) :]
        try:
            (run / name).write_bytes(changed)
            _sign(run, own, name)
            loaded = loading.load(run)
            loaded.score("The cat sat.\n")
            loaded.score("The wug sat.\n", learning=Learning(cache=True, dynamic=True))
        except SpellOnceError:
            pass
        finally:
            for other, content in own.items():
                (run / other).write_bytes(content)

    return target


def _sign(run: Path, own: dict[str, bytes], changed: str) -> None:
    sums = json.loads(own["checksums.json"])
    if changed in sums:
        sums[changed] = hashlib.sha256((run / changed).read_bytes()).hexdigest()
        (run / "checksums.json").write_text(json.dumps(sums), encoding="utf-8")


def of_container(run: Path) -> Target:
    """A container with the right beginning and the right checksums, and any blocks in it."""
    loaded = loading.load(run)
    begin = io.BytesIO()
    codec.compress(loaded, io.BytesIO(b""), begin)
    head = begin.getvalue()[: -(1 + 1 + 8 + 4)]  # without its end

    def target(data: bytes) -> None:
        out = io.BytesIO()
        for container in (data, head + data, head + b"".join(_blocks(data))):
            out.seek(0)
            out.truncate()
            with suppress(SpellOnceError):
                codec.decompress(loaded, io.BytesIO(container), out)
            assert out.tell() <= _MOST * (1 + len(data))

    return target


def _blocks(data: bytes) -> Iterator[bytes]:
    while len(data) >= 3:
        kind, n, size = data[0] % 3, data[1], data[2]  # short: a long one takes long to decode
        payload, data = data[3 : 3 + size], data[3 + size :]
        block = bytes([kind]) + coding.varint(n) + coding.varint(len(payload)) + payload
        yield block + zlib.crc32(block).to_bytes(4, "little")


@contextmanager
def targets(tiny_run: Path) -> Iterator[dict[str, Target]]:
    """All of them, by name, given a run with counts that was tuned; it is copied, not touched."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(shutil.copytree(tiny_run, Path(scratch) / "run"))
        yield {
            "tokenizer": of_tokenizer, "lexicon": of_lexicon, "run": of_run(run),
            "container": of_container(tiny_run),
        }  # fmt: skip
