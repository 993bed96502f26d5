"""A file from an address, held against its checksum; every fault has its word.

No torch here.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spellonce import __version__

TIMEOUT = 30.0
"""Seconds that a server may be silent."""


RETRY_WAITS = (1.0, 3.0)
"""Seconds before an address is tried again after a fault that may pass."""


MAX_DOWNLOAD = 1 << 30
"""The largest archive, in bytes, that is taken from anyone …"""


Progress = Callable[[int, int | None], None]
"""Told the bytes that have come, and of how many, if the server says so."""


_CHUNK = 1 << 16


class FetchError(Exception):
    """An address that did not give the archive."""

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


@dataclass(frozen=True)
class Archive:
    """A download that was held against its checksum."""

    path: Path
    url: str
    n_bytes: int
    sha256: str
    checked: str | None


def download(
    url: str, path: Path, sha256: str | None, crc32: str | None, progress: Progress
) -> Archive:
    """Fetches a file, and checks it with SHA-256, or with CRC-32 where there is nothing better."""
    for wait in (*RETRY_WAITS, None):
        try:
            return _download_once(url, path, sha256, crc32, progress)
        except FetchError as error:
            if wait is None or not error.may_pass:
                raise
            time.sleep(wait)
    raise AssertionError("the last try either returns or raises")


def _download_once(
    url: str, path: Path, sha256: str | None, crc32: str | None, progress: Progress
) -> Archive:
    digest, crc, n_bytes = hashlib.sha256(), 0, 0
    with path.open("wb") as file:
        for chunk, total in _network(url):
            file.write(chunk)
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            n_bytes += len(chunk)
            progress(n_bytes, total)
    if wanted := sha256:
        checked, came = "SHA-256", digest.hexdigest()
    elif wanted := crc32:
        checked, came = "CRC-32", f"{crc:08x}"
    else:
        return Archive(path, url, n_bytes, digest.hexdigest(), None)
    if came != wanted:
        raise FetchError(f"wrong checksum, {checked} is {came} and not {wanted}")
    return Archive(path, url, n_bytes, digest.hexdigest(), checked)


def _network(url: str) -> Iterator[tuple[bytes, int | None]]:
    """The bytes at an address, with how many there will be; every fault is a `FetchError`.

    A generator, so that errors of the disk, which are `OSError` too, stay apart from these.
    """
    request = urllib.request.Request(url, headers={"User-Agent": f"spellonce/{__version__}"})
    n_bytes = 0
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            while True:
                if max(n_bytes, total or 0) > MAX_DOWNLOAD:
                    raise FetchError(f"larger than {MAX_DOWNLOAD:,} bytes, which no data set is")
                chunk = response.read(_CHUNK)
                if not chunk:
                    break
                n_bytes += len(chunk)
                yield chunk, total
    except urllib.error.HTTPError as error:
        error.close()
        may_pass = error.code >= 500 or error.code in (408, 425, 429)
        raise FetchError(f"HTTP {error.code} {error.reason}", may_pass=may_pass) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _explained(error) from error
    if total is not None and n_bytes < total:
        message = f"the connection ended after {n_bytes:,} of {total:,} bytes"
        raise FetchError(message, may_pass=True)


def _explained(error: Exception) -> FetchError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case socket.gaierror():
            return FetchError("the host's name cannot be looked up")
        case ConnectionRefusedError():
            return FetchError("the connection was refused")
        case TimeoutError():
            return FetchError(f"no answer for {TIMEOUT:g} seconds", may_pass=True)
        case ssl.SSLCertVerificationError():
            return FetchError(f"its certificate cannot be trusted ({reason.verify_message})")
        case ConnectionError() | http.client.IncompleteRead() | http.client.BadStatusLine():
            return FetchError("the connection was broken off", may_pass=True)
        case OSError():
            return FetchError(reason.strerror or str(reason))
        case _:
            return FetchError(str(reason) or type(reason).__name__)
