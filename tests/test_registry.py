"""Fetching data sets, from a server on this machine that can misbehave in every way we know of."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import filelock
import pytest

from spellonce import corpus, download, registry
from spellonce.errors import ConfigError, DataError
from spellonce.text import TextFormat

from .conftest import call, snapshot

TEXTS = {
    "train": b" \n = One = \n \n some words in a line \n",
    "valid": b" \n = Two = \n \n other words \n",
    "test": "Größe \n".encode(),
}
GOOD = {f"wikitext-2-raw/wiki.{name}.raw": text for name, text in TEXTS.items()}
FILES = {"train.txt", "valid.txt", "test.txt", "dataset.toml", "source.json"}


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)  # of no date: the same bytes every time
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ARCHIVE = zipped({**GOOD, "wikitext-2-raw/README": b"not wanted"})


class Server(ThreadingHTTPServer):
    """Answers each path with a function of the handler and of how often it was asked before."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Callable[[Handler, int], None]] = {}
        self.asked: Counter[str] = Counter()

    def serve(self, path: str, page: bytes | Callable[[Handler, int], None]) -> str:
        self.pages[path] = (lambda h, n: h.answer(page)) if isinstance(page, bytes) else page
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        before = self.server.asked[self.path]
        self.server.asked[self.path] += 1
        self.server.pages[self.path](self, before)

    def answer(
        self, body: bytes, code: int = 200, *, length: int | None = None, to: str | None = None
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if to is not None:
            self.send_header("Location", to)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, empty, and no waiting."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("SPELLONCE_DATA", raising=False)
    monkeypatch.setattr(download, "RETRY_WAITS", (0.0, 0.0))
    monkeypatch.chdir(tmp_path)
    (folder,) = corpus.data_folders()
    assert tmp_path in folder.parents
    return folder


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes WikiText-2 another archive, at other addresses."""

    def change(name: str = "wikitext-2", **changes: Any) -> None:
        changed = replace(registry.find(name), **changes)
        monkeypatch.setitem(registry._KNOWN, name, changed)

    return change


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def nothing_was_kept(cache: Path) -> None:
    assert {name for name in names(cache) if not name.endswith(".lock")} == set()


# --- what is known -----------------------------------------------------------------------------


def test_the_known_sets() -> None:
    languages = ("en", "fr", "de", "es", "cs", "fi", "ru")
    assert [known.name for known in registry.known()] == [
        "wikitext-2",
        *(f"mwc-{code}" for code in languages),
    ]
    for dataset in registry.known():
        assert dataset.members.keys() == set(corpus.SPLITS)
        assert dataset.urls and all(url.startswith("https://") for url in dataset.urls)
        assert dataset.sha256 is None or len(bytes.fromhex(dataset.sha256)) == 32
        assert dataset.crc32 is None or len(bytes.fromhex(dataset.crc32)) == 4
    assert registry.find("wikitext-2").format == TextFormat("spaces", "wikitext")


def test_an_unknown_name() -> None:
    call("data", "get", "wikitext2").refused("did you mean wikitext-2?", 2)
    call("data", "get", "zzz").refused("unknown data set 'zzz': there are wikitext-2, mwc-en", 2)


def test_a_known_set_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(DataError, match="get it with `spellonce data get mwc-fi`"):
        corpus.find_dataset("mwc-fi")
    with pytest.raises(DataError) as raised:
        corpus.find_dataset("mine")
    assert "data get" not in str(raised.value)


def test_list(server: Server, cache: Path, publish: Callable[..., None]) -> None:
    lines = call("data", "list").ok().splitlines()
    assert [line.split()[0] for line in lines] == [known.name for known in registry.known()]
    assert all(line.endswith("  not here") for line in lines)
    assert "CC BY-SA 3.0" in lines[0] and "4.7 MB" in lines[0] and "SHA-256 " in lines[0]
    assert "size unknown" in lines[1] and "no SHA-256 is published" in lines[1]
    registry.get("wikitext-2", url=server.serve("/a.zip", ARCHIVE), sha256=sha256(ARCHIVE))
    assert call("data", "list").ok().splitlines()[0].endswith(f"  {cache / 'wikitext-2'}")
    rows = json.loads(call("data", "list", "--json").ok())["datasets"]
    assert rows[0]["folder"] == str(cache / "wikitext-2") and rows[1]["folder"] is None
    assert rows[0]["n_bytes"] == 4_721_645 and rows[1]["sha256"] is None
    publish("mwc-en", crc32=None)
    assert "no checksum is published" in call("data", "list").ok().splitlines()[1]


# --- what works --------------------------------------------------------------------------------


def test_get(server: Server, cache: Path, publish: Callable[..., None]) -> None:
    url = server.serve("/a.zip", ARCHIVE)
    publish(urls=(url,), sha256=sha256(ARCHIVE))
    out = call("data", "get", "wikitext-2").ok()
    assert sha256(ARCHIVE) in out and "as it should be" in out and str(cache / "wikitext-2") in out
    assert names(cache / "wikitext-2") == FILES, "and nothing that was not wanted"
    dataset = corpus.find_dataset("wikitext-2")
    assert dataset.format == TextFormat("spaces", "wikitext")
    for name, text in TEXTS.items():
        assert "".join(dataset.split(name).lines()).encode() == text
    source = json.loads((cache / "wikitext-2/source.json").read_text())
    assert source == {
        "name": "wikitext-2", "url": url, "sha256": sha256(ARCHIVE), "n_bytes": len(ARCHIVE),
        "checked": "SHA-256",
        "members": {name: f"wikitext-2-raw/wiki.{name}.raw" for name in TEXTS},
    }  # fmt: skip

    before = snapshot(cache)
    again = call("data", "get", "wikitext-2").ok()
    assert again == f"wikitext-2 is there already: {cache / 'wikitext-2'}\n"
    assert snapshot(cache) == before and server.asked["/a.zip"] == 1
    got = json.loads(call("data", "get", "wikitext-2", "--json").ok())
    assert got["was_there"] and got["sha256"] == sha256(ARCHIVE) and got["url"] == url
    assert registry.get("wikitext-2", sha256=sha256(ARCHIVE)).was_there
    with pytest.raises(DataError, match=f"comes from {sha256(ARCHIVE)}, not 00.*: move"):
        registry.get("wikitext-2", sha256="0" * 64)


def test_the_progress_is_told(server: Server, publish: Callable[..., None]) -> None:
    large = zipped({**GOOD, "noise": os.urandom(300_000)})
    told: list[tuple[int, int | None]] = []
    registry.get(
        "wikitext-2", url=server.serve("/a.zip", large), sha256=sha256(large),
        progress=lambda n_bytes, total: told.append((n_bytes, total)),
    )  # fmt: skip
    assert told == sorted(told) and len(told) > 3 and told[-1] == (len(large), len(large))


MWC = zipped({
    f"mwc/wiki_{code}/{size}/wiki_{code}.{split}.raw{unk}":
        f"{code} {size} {split} {unk}\n".encode()
    for code in ("en", "fi") for size in ("ptb_format", "ptb_format_large")
    for split in ("tr", "va", "te") for unk in ("", ".unk")
})  # fmt: skip


def test_a_set_of_which_only_the_crc_is_published(
    server: Server, cache: Path, publish: Callable[..., None]
) -> None:
    publish("mwc-fi", urls=(server.serve("/a.zip", MWC),), crc32=f"{zlib.crc32(MWC):08x}")
    out = call("data", "get", "mwc-fi").ok()
    assert sha256(MWC) in out and "no SHA-256 is published, CRC-32 was checked" in out
    texts = {name: (cache / f"mwc-fi/{name}.txt").read_text() for name in corpus.SPLITS}
    short = {"train": "tr", "valid": "va", "test": "te"}
    assert texts == {name: f"fi ptb_format {short[name]} .unk\n" for name in corpus.SPLITS}
    assert corpus.find_dataset("mwc-fi").format == TextFormat()
    source = json.loads((cache / "mwc-fi/source.json").read_text())
    assert source["sha256"] == sha256(MWC) and source["checked"] == "CRC-32"

    publish("mwc-en", urls=(server.serve("/a.zip", MWC),), crc32="00000000")
    call("data", "get", "mwc-en").refused("wrong checksum, CRC-32", 1)
    call("data", "get", "mwc-en", "--sha256", sha256(MWC).upper()).ok()
    publish("mwc-en", crc32=None)
    shutil.rmtree(cache / "mwc-en")
    assert "nothing was checked" in call("data", "get", "mwc-en").ok()


def test_a_file_instead_of_an_address(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "fetched elsewhere.zip").write_bytes(ARCHIVE)
    command = ["data", "get", "wikitext-2", "--url", "fetched elsewhere.zip"]
    call(*command).refused("wrong checksum", 1)
    call(*command, "--sha256", sha256(ARCHIVE)).ok()
    assert (cache / "wikitext-2/train.txt").read_bytes() == TEXTS["train"]


def test_a_redirect(server: Server, cache: Path) -> None:
    target = server.serve("/b.zip", ARCHIVE)
    url = server.serve("/a.zip", lambda h, n: h.answer(b"", 302, to=target))
    registry.get("wikitext-2", url=url, sha256=sha256(ARCHIVE))
    assert (cache / "wikitext-2/test.txt").read_bytes() == TEXTS["test"]


def test_a_server_that_is_busy_for_a_moment(server: Server) -> None:
    url = server.serve(
        "/a.zip", lambda h, n: h.answer(b"busy", 503) if n < 2 else h.answer(ARCHIVE)
    )
    assert not registry.get("wikitext-2", url=url, sha256=sha256(ARCHIVE)).was_there
    assert server.asked["/a.zip"] == 3


def test_a_connection_that_breaks_once(server: Server, cache: Path) -> None:
    def page(handler: Handler, before: int) -> None:
        handler.answer(ARCHIVE if before else ARCHIVE[:100], length=len(ARCHIVE))

    registry.get("wikitext-2", url=server.serve("/a.zip", page), sha256=sha256(ARCHIVE))
    assert (cache / "wikitext-2/train.txt").read_bytes() == TEXTS["train"]


def test_addresses_are_tried_in_order(
    server: Server, cache: Path, publish: Callable[..., None]
) -> None:
    urls = (
        server.serve("/gone.zip", lambda h, n: h.answer(b"", 404)),
        server.serve("/forged.zip", zipped({**GOOD, "more": b""})),
        server.serve("/good.zip", ARCHIVE),
        server.serve("/never.zip", ARCHIVE),
    )
    publish(urls=urls, sha256=sha256(ARCHIVE))
    assert registry.get("wikitext-2").url == urls[2]
    assert dict(server.asked) == {"/gone.zip": 1, "/forged.zip": 1, "/good.zip": 1}
    assert names(cache / "wikitext-2") == FILES


# --- what does not work ------------------------------------------------------------------------


def truncated(handler: Handler, before: int) -> None:
    handler.answer(ARCHIVE[:100], length=len(ARCHIVE))


def hung_up(handler: Handler, before: int) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


BOMB = zipped({**GOOD, "wikitext-2-raw/wiki.test.raw": bytes(200_000)})
DAMAGED = ARCHIVE.replace(zlib.compress(TEXTS["train"], wbits=-15)[:8], b"\xff" * 8)
assert DAMAGED != ARCHIVE
ENCRYPTED = bytearray(ARCHIVE)
for _magic, _at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
    ENCRYPTED[ENCRYPTED.find(_magic) + _at] |= 1
WRONG_ANSWERS = {
    "404": (lambda h, n: h.answer(b"no", 404), "HTTP 404 Not Found", 1),
    "503": (lambda h, n: h.answer(b"busy", 503), "HTTP 503 Service Unavailable", 3),
    "truncated": (truncated, f"ended after 100 of {len(ARCHIVE):,} bytes", 3),
    "hung up": (hung_up, "the connection was broken off", 3),
    "a circle": (lambda h, n: h.answer(b"", 302, to="/a.zip"), "HTTP 302", None),
    "to a file": (lambda h, n: h.answer(b"", 302, to="file:///etc/passwd"), "HTTP 302", 1),
    "said to be huge": (lambda h, n: h.answer(b"", length=1 << 40), "larger than", 1),
    "a page": (b"<html>Please log in", "no zip archive", 1),
    "nothing": (b"", "no zip archive", 1),
    "leads up": (zipped({**GOOD, "../evil": b"!"}), "'../evil' that leads out of it", 1),
    "absolute": (zipped({**GOOD, "/evil": b"!"}), "'/evil' that leads out of it", 1),
    "other slashes": (zipped({**GOOD, "..\\evil": b"!"}), "leads out of it", 1),
    "a member less": (
        zipped({k: v for k, v in GOOD.items() if "valid" not in k}),
        "no wikitext-2-raw/wiki.valid.raw; it has wikitext-2-raw/wiki.train.raw, ",
        1,
    ),
    "a member twice": (
        zipped({**GOOD, "copy/wikitext-2-raw/wiki.test.raw": b"other"}), "more than once", 1
    ),
    "a bomb": (BOMB, "wiki.test.raw is larger than 100,000 bytes", 1),
    "damaged": (DAMAGED, "wiki.train.raw in the archive is damaged", 1),
    "encrypted": (bytes(ENCRYPTED), "wiki.train.raw in the archive is damaged", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_ANSWERS)
def test_what_a_server_may_do_wrong(
    case: str, server: Server, cache: Path, publish: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    page, telling, tries = WRONG_ANSWERS[case]
    monkeypatch.setattr(registry, "MAX_TEXT", 100_000)
    before = snapshot(cache.parents[2])
    publish(urls=(server.serve("/a.zip", page),), sha256=None)
    result = call("data", "get", "wikitext-2")
    result.refused(telling, 1)
    assert "--url FILE" in result.err and str(cache / "wikitext-2") in result.err
    assert "SPELLONCE_DATA" in result.err and "nothing was kept" in result.err
    nothing_was_kept(cache)
    after = snapshot(cache.parents[2])
    assert {name for name in after if not name.endswith(".lock")} == set(before)
    if tries is not None:
        assert server.asked["/a.zip"] == tries
    server.serve("/a.zip", ARCHIVE)
    assert not registry.get("wikitext-2").was_there, "a second try works"


def test_an_endless_answer(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(handler: Handler, before: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(bytes(1 << 16))
        except OSError:
            handler.close_connection = True

    monkeypatch.setattr(download, "MAX_DOWNLOAD", 1_000_000)
    with pytest.raises(DataError, match="larger than 1,000,000 bytes"):
        registry.get("wikitext-2", url=server.serve("/a.zip", page))
    nothing_was_kept(cache)


def test_a_wrong_checksum(server: Server, cache: Path) -> None:
    url = server.serve("/a.zip", ARCHIVE)
    known = registry.find("wikitext-2").sha256
    wrong = f"wrong checksum, SHA-256 is {sha256(ARCHIVE)} and not"
    call("data", "get", "wikitext-2", "--url", url).refused(f"{wrong} {known}", 1)
    zeros = "0" * 64
    call("data", "get", "mwc-en", "--url", url, "--sha256", zeros).refused(f"{wrong} {zeros}", 1)
    nothing_was_kept(cache)


def test_no_network(cache: Path, publish: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    publish(urls=(f"http://127.0.0.1:{port}/a.zip",))
    telling = f"127.0.0.1:{port}: the connection was refused"
    call("data", "get", "wikitext-2").refused(telling, 1)
    nothing_was_kept(cache)


def test_a_name_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    call("data", "get", "wikitext-2").refused(
        "(wikitext.smerity.com, s3.amazonaws.com, huggingface.co: "
        "the host's name cannot be looked up)", 1
    )  # fmt: skip


def test_a_silent_server(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    url = server.serve("/a.zip", lambda h, n: [done.wait(10), None][1])
    with pytest.raises(DataError, match=r"no answer for 0\.05 seconds"):
        registry.get("wikitext-2", url=url)
    done.set()
    nothing_was_kept(cache)


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        (("--sha256", "abc"), "'abc' is no SHA-256"),
        (("--url", "ftp://example.org/a.zip"), "neither an http(s) address nor a file"),
        (("--url", "missing.zip"), "neither an http(s) address nor a file"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], telling: str, cache: Path) -> None:
    call("data", "get", "wikitext-2", *options).refused(telling, 2)
    assert not cache.exists()


def test_a_file_that_has_gone(cache: Path) -> None:
    call("data", "get", "wikitext-2", "--url", "file:///missing.zip").refused("no such file", 1)


def test_a_full_disk(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    url = server.serve("/a.zip", ARCHIVE)
    telling = f"cannot write {cache / 'wikitext-2'}: No space left on device"
    with pytest.raises(DataError, match=telling):  # no fault of the network
        registry.get("wikitext-2", url=url, progress=full)
    assert server.asked["/a.zip"] == 1
    nothing_was_kept(cache)
    monkeypatch.setattr(registry, "_settle", full)
    command = ["data", "get", "wikitext-2", "--url", url, "--sha256", sha256(ARCHIVE)]
    call(*command).refused(telling, 1)
    nothing_was_kept(cache)


def test_a_cache_that_cannot_be_made(cache: Path) -> None:
    cache.parents[1].write_text("a file where the folder should be")
    call("data", "get", "wikitext-2").refused(f"cannot write {cache / 'wikitext-2'}", 1)


# --- what is there already ---------------------------------------------------------------------


def test_a_set_in_the_shared_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "shared/wikitext-2"
    mine.mkdir(parents=True)
    monkeypatch.setenv("SPELLONCE_DATA", str(mine.parent))
    call("data", "get", "wikitext-2").refused("has no train.txt", 1)
    for name, text in TEXTS.items():
        (mine / f"{name}.txt").write_bytes(text)
    assert call("data", "get", "wikitext-2").ok() == f"wikitext-2 is there already: {mine}\n"
    telling = f"{mine} is there already and comes from an archive that it does not name"
    call("data", "get", "wikitext-2", "--sha256", "0" * 64).refused(telling, 1)


def test_another_get_at_the_same_time(cache: Path) -> None:
    cache.mkdir(parents=True)
    with filelock.FileLock(cache / ".wikitext-2.lock"):
        call("data", "get", "wikitext-2").refused("is fetching wikitext-2: wait for it", 1)


KILLED = """
import os, signal, sys
from spellonce import registry

def watch(event, arguments):
    if event == "open" and str(arguments[0]).endswith(sys.argv[1]) or event == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
registry.get("wikitext-2", url=sys.argv[2], sha256=sys.argv[3])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("moment", ["archive.zip", "valid.txt", "os.rename"])
def test_killed_at_any_time(moment: str, server: Server, cache: Path) -> None:
    url = server.serve("/a.zip", ARCHIVE)
    command = [sys.executable, "-c", KILLED, moment, url, sha256(ARCHIVE)]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert registry.where("wikitext-2") is None
    (stale,) = cache.glob("*.partial")
    (stale / "stale.txt").write_text("of another time")
    assert not registry.get("wikitext-2", url=url, sha256=sha256(ARCHIVE)).was_there
    assert names(cache / "wikitext-2") == FILES
    assert not list(cache.glob("*.partial"))


def test_interrupted(server: Server, cache: Path) -> None:
    def interrupt(n_bytes: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.get("wikitext-2", url=server.serve("/a.zip", ARCHIVE), progress=interrupt)
    nothing_was_kept(cache)


def test_names_are_checked_before_anything_is_done(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown data set '\.\./x'"):
        registry.get("../x")
    assert not cache.exists()
