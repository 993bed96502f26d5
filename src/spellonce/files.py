"""Files that appear whole or not at all, and are read with a clear word when they are damaged.

JSON, tensors in the safetensors format, checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from spellonce.errors import RunError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: it does not hold a JSON object")
    return value


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors in the safetensors format; the same tensors give the same bytes."""
    plain: dict[str, Tensor] = {}
    stored: set[int] = set()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        # The format has no shared memory, and the h and c of a fresh state are one zero.
        plain[name] = tensor.clone() if place in stored else tensor
        stored.add(place)
    return safetensors.torch.save(plain)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            names = list(file.keys())
        return {name: _read_tensor(path, name) for name in names}
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def _read_tensor(path: Path, name: str) -> Tensor:
    # The file is mapped for each tensor anew: so no more than that of it is in memory at a time.
    with safetensors.safe_open(path, "pt") as file:
        return cast(Tensor, file.get_tensor(name)).clone()


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file so that it is there whole or not at all, whatever happens meanwhile."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_synced(partial, data)
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise disk_error(path, error) from error


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def disk_error(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror or error}; what was saved before is intact"
    )
