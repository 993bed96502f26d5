"""Data sets on disk: where they are, how they are split, and the lines of their texts.

A data set is a folder with `train.txt`, `valid.txt` and `test.txt`, or any text files, or a folder
of them, which are then split here.

No torch here.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from spellonce.errors import ConfigError, DataError
from spellonce.text import TextFormat, split_lines

SPLITS = ("train", "valid", "test")
BLOCK = 1 << 22
"""Bytes that are read at a time."""
HELD_OUT = 0.05
"""The part of a text that is kept for validation, and as much again for the test …"""
MAX_HELD_OUT = 5_000_000
"""… but no more than so many bytes of each: they are read into memory."""


@dataclass(frozen=True)
class Segment:
    """Bytes `start` to `stop` of a file."""

    path: Path
    start: int
    stop: int


@dataclass(frozen=True)
class Source:
    """The text of one split: segments of files, one after another."""

    segments: tuple[Segment, ...]

    def blocks(self, digest: Any = None) -> Iterator[str]:
        """The text in blocks of whole lines, about a `BLOCK` each. `digest` is fed their bytes.

        Where a file does not end in a line break and another follows, one is put between them.
        """
        for number, segment in enumerate(self.segments):
            is_last = number + 1 == len(self.segments)
            try:
                yield from _segment_blocks(segment, digest, close=not is_last)
            except OSError as error:
                raise DataError(f"cannot read {segment.path}: {error.strerror}") from error

    def lines(self) -> Iterator[str]:
        """The lines, each with its `\\n` but perhaps the last."""
        for block in self.blocks():
            yield from split_lines(block)

    def n_bytes(self) -> int:
        """Size in bytes."""
        return sum(segment.stop - segment.start for segment in self.segments)

    def sha256(self) -> str:
        """Checksum of the text."""
        digest = hashlib.sha256()
        for _ in self.blocks(digest):
            pass
        return digest.hexdigest()


def _segment_blocks(segment: Segment, digest: Any, *, close: bool) -> Iterator[str]:
    with segment.path.open("rb") as file:
        place = file.seek(segment.start)
        while place < segment.stop:
            raw = file.read(min(BLOCK, segment.stop - place))
            raw += b"" if raw.endswith(b"\n") else file.readline(segment.stop - place - len(raw))
            if not raw:
                raise DataError(f"{segment.path} has become shorter while it was read")
            try:
                block = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{segment.path} is not valid UTF-8 (byte {place + error.start}): "
                    "convert it first, e.g. with iconv -t utf-8"
                ) from error
            place += len(raw)
            if place == segment.stop and close and not block.endswith("\n"):
                block, raw = block + "\n", raw + b"\n"
            if digest is not None:
                digest.update(raw)
            yield block


@dataclass(frozen=True)
class Dataset:
    """Three splits of text and the way to read them."""

    name: str
    splits: dict[str, Source]
    format: TextFormat

    def split(self, name: str) -> Source:
        """One of the splits."""
        if name not in self.splits:
            has = ", ".join(self.splits) or "none"
            raise DataError(f"{self.name} has no {name} split (it has {has})")
        return self.splits[name]


def data_folders() -> list[Path]:
    """Where `--dataset NAME` looks for a folder NAME."""
    shared = os.environ.get("SPELLONCE_DATA")
    return [*([Path(shared)] if shared else []), platformdirs.user_cache_path("spellonce") / "data"]


def find_dataset(name: str) -> Dataset:
    """The data set of that name."""
    folders = data_folders()
    for folder in folders:
        if (folder / name).is_dir():
            return open_folder(folder / name)
    from spellonce import registry  # which is made of this module

    looked = " or ".join(str(folder) for folder in folders)
    raise DataError(f"no data set {name!r} in {looked}: {registry.hint(name)}")


def open_folder(folder: Path) -> Dataset:
    """A data set from a folder with `train.txt` and, if they are there, the other splits."""
    splits = {name: folder / f"{name}.txt" for name in SPLITS if (folder / f"{name}.txt").is_file()}
    if "train" not in splits:
        raise DataError(f"{folder} has no train.txt: a data set has train.txt, valid.txt, test.txt")
    sources = {name: Source((_whole(path),)) for name, path in splits.items()}
    if "valid" not in sources:
        raise DataError(f"{folder} has no valid.txt: to have one text split, name the file itself")
    return Dataset(folder.name, sources, _read_format(folder / "dataset.toml"))


def open_files(paths: Sequence[Path]) -> Dataset:
    """A data set from text files: the end of each is held out. Or from one folder: if it has no
    `train.txt`, it is the texts in it, and in folders in it, in the order of their names.
    """
    if len(paths) == 1 and paths[0].is_dir():
        (folder,) = paths
        if (folder / "train.txt").exists():
            return open_folder(folder)
        found = open_files(_texts_in(folder))
        how = _read_format(folder / "dataset.toml")
        return replace(found, name=folder.resolve().name, format=how)
    wholes = [_whole(path) for path in paths]
    for split in (_split_segment, _split_short):
        parts = [split(whole) for whole in wholes]
        sources = {
            name: Source(tuple(part[i] for part in parts if part[i].stop > part[i].start))
            for i, name in enumerate(SPLITS)
        }
        if sources["train"].segments and sources["valid"].segments:
            return Dataset(paths[0].stem, sources, TextFormat())
    raise DataError(f"{paths[0]} is too short to be split: one character cannot be held out")


def _texts_in(folder: Path) -> list[Path]:
    """The text files in a folder that have anything in them."""
    found = [p for p in sorted(folder.rglob("*.txt")) if p.is_file() and p.stat().st_size]
    if not found:
        raise DataError(f"{folder} has neither train.txt nor any other .txt file with text in it")
    return found


def open_text(path: Path, *, may_be_empty: bool = False) -> Source:
    """One text file as it is."""
    return Source((_whole(path, may_be_empty=may_be_empty),))


def _whole(path: Path, *, may_be_empty: bool = False) -> Segment:
    if path.is_dir():
        raise DataError(f"{path} is a folder: give files, or one folder and nothing else")
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not path.is_file():
        raise DataError(f"{path} is no ordinary file: save what it holds, and name that")
    if size == 0 and not may_be_empty:
        raise DataError(f"{path} is empty: there is nothing to read")
    return Segment(path, 0, size)


def _split_segment(whole: Segment) -> list[Segment]:
    """Train, valid and test as contiguous parts, cut after a line break if one is near."""
    size = whole.stop
    try:
        with whole.path.open("rb") as file:
            cuts = [0]
            held_out = min(size * HELD_OUT, MAX_HELD_OUT)
            for want in (int(size - 2 * held_out), int(size - held_out)):
                file.seek(want)
                # Up to a fifth of what is held out may go to find the end of a line, or a space;
                # four bytes are enough to find the end of a character.
                ahead = file.read(max(int(held_out / 5), 4))
                cut = next((want + i + 1 for c in b"\n " if (i := ahead.find(c)) >= 0), None)
                if cut is None:
                    begins = (i for i, byte in enumerate(ahead) if byte & 0xC0 != 0x80)
                    cut = want + next(begins, len(ahead))
                cuts.append(max(cut, cuts[-1]))
    except OSError as error:
        raise DataError(f"cannot read {whole.path}: {error.strerror}") from error
    return [Segment(whole.path, a, b) for a, b in zip(cuts, [*cuts[1:], size], strict=True)]


def _split_short(whole: Segment) -> list[Segment]:
    """The same for a word or two: the last character is for the test, the one before for valid."""
    try:
        data = whole.path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {whole.path}: {error.strerror}") from error
    begins = [i for i, byte in enumerate(data) if byte & 0xC0 != 0x80] or [0]
    valid, test = begins[-2:] if len(begins) > 2 else (begins[-1], whole.stop)
    return [Segment(whole.path, a, b) for a, b in ((0, valid), (valid, test), (test, whole.stop))]


def _read_format(path: Path) -> TextFormat:
    if not path.is_file():
        return TextFormat()
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    unknown = set(settings) - {field.name for field in fields(TextFormat)}
    if unknown:
        raise ConfigError(f"{path}: unknown setting {', '.join(sorted(unknown))}")
    for name, value in settings.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {name} must be a string, not {value!r}")
    return replace(TextFormat(), **settings)
