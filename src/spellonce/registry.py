"""The known data sets: where they are to be had, and fetching them with a checksum.

`get` downloads an archive, checks it, takes the three texts out of it and puts them under the
user's cache folder, where `corpus.find_dataset` looks. A folder appears whole or not at all.

What is written here about an archive was found in public, and nothing was made up: where nobody
has published a SHA-256, there is none here either.

No torch here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import filelock

from spellonce import corpus
from spellonce.download import Archive, FetchError, Progress, download
from spellonce.errors import ConfigError, DataError
from spellonce.text import TextFormat

MAX_TEXT = 1 << 30
"""… and the largest text that is unpacked from it: no known set comes near either."""
_CHUNK = 1 << 16
_SOURCE = "source.json"


@dataclass(frozen=True)
class KnownDataset:
    """A data set that `get` can fetch."""

    name: str
    """What `--dataset` calls it."""
    about: str
    """What it is, in a few words."""
    licence: str
    """The licence of its text."""
    urls: tuple[str, ...]
    """Addresses of the same archive (a zip), tried in order."""
    members: Mapping[str, tuple[str, ...]]
    """For each split the ends of the paths that it may have in the archive, the best first."""
    format: TextFormat
    """How its texts are to be read."""
    n_bytes: int | None = None
    """Size of the archive; None where nobody has said."""
    sha256: str | None = None
    """SHA-256 of the archive; None where nobody has published one."""
    crc32: str | None = None
    """CRC-32 of the archive, where only that is published: it shows damage, but no forgery."""

    @property
    def checksum(self) -> str:
        """What is known to check the archive with."""
        if self.sha256:
            return "SHA-256"
        return "CRC-32 only, no SHA-256 is published" if self.crc32 else "no checksum is published"


@dataclass(frozen=True)
class Obtained:
    """A data set that is on this machine."""

    name: str
    """What `--dataset` calls it."""
    folder: Path
    """Where its texts are."""
    was_there: bool
    """It was there before; nothing was fetched."""
    url: str | None
    """Where its archive came from; None if its folder does not say."""
    sha256: str | None
    """SHA-256 of that archive, computed from what came; None if its folder does not say."""
    checked: str | None
    """The checksum that the archive was held against: `SHA-256`, `CRC-32`, or None."""


# The archive of WikiText-2 is the same, byte for byte, at all three addresses: the second is where
# it was first published, the third is what llama.cpp fetches, at a fixed commit. SHA-256 and size
# stand in the `datasets` library, in Apple's mlx-data and in many other public programs.
_WIKITEXT_2 = KnownDataset(
    name="wikitext-2",
    about="WikiText-2 raw: English Wikipedia, tokenised",
    licence="CC BY-SA 3.0",
    urls=(
        "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
        "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-raw-v1.zip",
        "https://huggingface.co/datasets/ggml-org/ci/resolve/"
        "927b3642933080f1b0e811e2f916e14c292992f9/wikitext-2-raw-v1.zip",
    ),
    members={name: (f"wikitext-2-raw/wiki.{name}.raw",) for name in corpus.SPLITS},
    format=TextFormat(tokenization="spaces", articles="wikitext"),
    n_bytes=4_721_645,
    sha256="ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
)

_LANGUAGES = {
    "en": "English", "fr": "French", "de": "German", "es": "Spanish", "cs": "Czech",
    "fi": "Finnish", "ru": "Russian",
}  # fmt: skip
_MWC_SPLITS = {"train": "tr", "valid": "va", "test": "te"}


def _mwc(code: str, language: str) -> KnownDataset:
    """One language of the Multilingual Wikipedia Corpus (Kawakami, Dyer & Blunsom, ACL 2017).

    The archive is the attachment of their paper in the ACL Anthology, whose index (data/xml/P17.xml
    of acl-org/acl-anthology) has its CRC-32; their page, k-kawakami.com/research/mwc, named no
    checksum. `ptb_format` is the corpus of their results, 300/30/30 articles. In `.unk` files, on
    which results are reported, characters that are rare in training are one placeholder.
    """
    stem = f"wiki_{code}/ptb_format/wiki_{code}"
    return KnownDataset(
        name=f"mwc-{code}",
        about=f"Multilingual Wikipedia Corpus: {language}, 360 articles",
        licence="CC BY-SA 3.0, as Wikipedia",
        urls=("https://aclanthology.org/attachments/P17-1137.Datasets.zip",),
        members={
            split: (f"{stem}.{short}.raw.unk", f"{stem}.{short}.raw")
            for split, short in _MWC_SPLITS.items()
        },
        format=TextFormat(tokenization="reversible", articles="blank-line"),
        crc32="19a0faa9",
    )


_KNOWN: dict[str, KnownDataset] = {
    dataset.name: dataset
    for dataset in (_WIKITEXT_2, *(_mwc(code, name) for code, name in _LANGUAGES.items()))
}


def known() -> tuple[KnownDataset, ...]:
    """All data sets that `get` can fetch.

    >>> [dataset.name for dataset in known()][:3]
    ['wikitext-2', 'mwc-en', 'mwc-fr']
    """
    return tuple(_KNOWN.values())


def find(name: str) -> KnownDataset:
    """The known data set of that name."""
    if name in _KNOWN:
        return _KNOWN[name]
    close = difflib.get_close_matches(name, _KNOWN, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KNOWN)}"
    raise ConfigError(f"unknown data set {name!r}: {hint}")


def where(name: str) -> Path | None:
    """The folder that `--dataset NAME` means on this machine, if there is one."""
    return next((f / name for f in corpus.data_folders() if (f / name).is_dir()), None)


def hint(name: str) -> str:
    """What to do where `--dataset NAME` finds nothing."""
    elsewhere = "set SPELLONCE_DATA to where its folder is"
    return (
        f"get it with `spellonce data get {name}`, or {elsewhere}" if name in _KNOWN else elsewhere
    )


def get(
    name: str,
    *,
    url: str | None = None,
    sha256: str | None = None,
    progress: Progress = lambda n_bytes, total: None,
) -> Obtained:
    """Fetches a known data set into the user's cache folder, unless it is on this machine already.

    `url` is another address of its archive, or a file; `sha256` the checksum that the archive must
    have, instead of the one that is known.
    """
    dataset = find(name)
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ConfigError(f"{sha256!r} is no SHA-256: give its 64 hexadecimal digits")
    urls = dataset.urls if url is None else (_address(url),)
    if (there := where(name)) is not None:
        return _found(name, there, sha256)
    home = corpus.data_folders()[-1] / name
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(home.with_name(f".{name}.lock"), timeout=0):
            if home.is_dir():  # another `get` was quicker
                return _found(name, home, sha256)
            return _fetch(dataset, urls, home, sha256 and sha256.lower(), progress)
    except filelock.Timeout:
        raise DataError(f"another `spellonce data get` is fetching {name}: wait for it") from None
    except OSError as error:
        raise DataError(
            f"cannot write {home}: {error.strerror or error}: make room for it, or keep its texts "
            "elsewhere and set SPELLONCE_DATA"
        ) from error


def _address(url: str) -> str:
    """The address as it is, or that of a file."""
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme in ("http", "https", "file"):
        return url
    path = Path(url)
    if path.is_file():
        return path.resolve().as_uri()
    raise ConfigError(
        f"{url!r} is neither an http(s) address nor a file: give the one or the other"
    )


def _found(name: str, folder: Path, sha256: str | None) -> Obtained:
    """A data set that is there already, if it is one and comes from the archive that is wanted."""
    again = "move that folder away, then get it again"
    try:
        corpus.open_folder(folder)
    except DataError as error:
        raise DataError(f"{error} ({again})") from error
    try:
        source = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        source = None
    said = source if isinstance(source, dict) else {}
    if sha256 is not None and said.get("sha256") != sha256.lower():
        has = said.get("sha256") or "an archive that it does not name"
        raise DataError(f"{folder} is there already and comes from {has}, not {sha256}: {again}")
    return Obtained(
        name, folder, True, said.get("url"), said.get("sha256"), said.get("checked")
    )  # fmt: skip


# --- fetching ----------------------------------------------------------------------------------


def _fetch(
    dataset: KnownDataset, urls: Sequence[str], home: Path, sha256: str | None, progress: Progress
) -> Obtained:
    partial = home.with_name(f".{dataset.name}.partial")
    failures: dict[str, list[str]] = {}  # what went wrong → where
    try:
        for url in urls:
            # Nothing of a `get` that was killed, or of the address before, gets into this one.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                wanted = sha256 or dataset.sha256
                archive = download(url, partial / "archive.zip", wanted, dataset.crc32, progress)
                _unpack(dataset, archive, partial)
            except FetchError as error:
                failures.setdefault(str(error), []).append(urllib.parse.urlsplit(url).netloc or url)
                continue
            archive.path.unlink()
            corpus.open_folder(partial)  # an empty text is refused before it is called a data set
            partial.rename(home)
            return Obtained(dataset.name, home, False, url, archive.sha256, archive.checked)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    said = "; ".join(f"{', '.join(places)}: {what}" for what, places in failures.items())
    raise DataError(
        f"{dataset.name} could not be fetched, and nothing was kept ({said}): "
        f"fetch {dataset.urls[0]} elsewhere and run "
        f"`spellonce data get {dataset.name} --url FILE`, or put train.txt, valid.txt and test.txt "
        f"into {home}, or set SPELLONCE_DATA to a folder that has them in {dataset.name}/"
    )


# --- unpacking ---------------------------------------------------------------------------------


def _unpack(dataset: KnownDataset, archive: Archive, folder: Path) -> None:
    """Writes the texts of an archive, how they are to be read, and where they came from."""
    try:
        zipped = zipfile.ZipFile(archive.path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise FetchError("what came is no zip archive") from error
    with zipped:
        members = _members(dataset, zipped)
        for split, info in members.items():
            with (folder / f"{split}.txt").open("wb") as file:
                for chunk in _inflated(zipped, info):
                    file.write(chunk)
                _settle(file)
    source = {
        "name": dataset.name,
        "url": archive.url,
        "sha256": archive.sha256,
        "n_bytes": archive.n_bytes,
        "checked": archive.checked,
        "members": {split: info.filename for split, info in members.items()},
    }
    # Strings of JSON are strings of TOML.
    settings = {key: value for key, value in asdict(dataset.format).items() if value}
    toml = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    for name, text in (("dataset.toml", toml), (_SOURCE, json.dumps(source, indent=2) + "\n")):
        with (folder / name).open("wb") as file:
            file.write(text.encode())
            _settle(file)


def _settle(file: BinaryIO) -> None:
    """Waits for the disk, so that no folder is renamed before its files are in it."""
    file.flush()
    os.fsync(file.fileno())


def _members(dataset: KnownDataset, zipped: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The member for each split. We name the files ourselves, so that none can lead elsewhere;
    but an archive that tries is not the one we want.
    """
    infos = [info for info in zipped.infolist() if not info.is_dir()]
    for info in infos:
        path = PurePosixPath(info.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in info.filename:
            raise FetchError(f"the archive has a file {info.filename!r} that leads out of it")
    found: dict[str, zipfile.ZipInfo] = {}
    for split, ends in dataset.members.items():
        for end in ends:
            matches = [i for i in infos if f"/{i.filename}".endswith(f"/{end}")]
            if len(matches) > 1:
                raise FetchError(f"the archive has {end} more than once")
            if matches:
                found[split] = matches[0]
                break
        else:
            near = str(PurePosixPath(ends[0]).parent)
            has = [i.filename for i in infos if f"/{near}/" in f"/{i.filename}"] or [
                i.filename for i in infos
            ]
            listed = ", ".join(has[:4]) + (" …" if len(has) > 4 else "")
            raise FetchError(
                f"the archive has no {' or '.join(ends)}; it has {listed or 'nothing'}"
            )
    return found


def _inflated(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of a member, never more than `MAX_TEXT`, whatever the archive says its size is."""
    n_bytes = 0
    try:
        with zipped.open(info) as member:
            while chunk := member.read(_CHUNK):
                n_bytes += len(chunk)
                if n_bytes > MAX_TEXT:
                    raise FetchError(f"{info.filename} is larger than {MAX_TEXT:,} bytes")
                yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise FetchError(f"{info.filename} in the archive is damaged") from error
