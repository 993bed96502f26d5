"""Where a reader is in a text, on disk: what it carries from piece to piece, to go on another day.

One safetensors file: arrays as they are, and all else as JSON in its header. Nothing in it is
executed. It fits the model and the settings that it was made with, and no others.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from spellonce.adaptive import Reader
from spellonce.errors import RunError
from spellonce.files import write_atomically
from spellonce.lexicon import to_tsv
from spellonce.network import fingerprint

_UNSIGNED = "uint64"
_WRONG = (SafetensorError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError,
          RuntimeError)  # fmt: skip
"""What a file that is no bookmark may lead to."""


def save(reader: Reader, path: Path) -> None:
    """Writes down where a reader is."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_plain(reader.state_dict(), tensors))
    header = {"reader": tree, "of": _fingerprint(reader)}
    write_atomically(path, safetensors.torch.save(tensors, header))


def restore(reader: Reader, path: Path) -> None:
    """Puts a reader where another was."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["of"] != _fingerprint(reader):
            raise RunError(f"{path} is of another model, or of other settings: begin anew")
        reader.restore(_lively(json.loads(header["reader"]), tensors))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except _WRONG as error:
        raise RunError(f"{path} is damaged, or no bookmark: {error}") from error


def _fingerprint(reader: Reader) -> str:
    """Of all that scores follow from, but for what was read."""
    digest = hashlib.sha256(json.dumps(reader.adaptation.to_json(), sort_keys=True).encode())
    digest.update(to_tsv(reader.lexicon).encode("utf-8", "surrogatepass"))
    digest.update(fingerprint(reader.trained).encode())
    for name, scale in sorted((reader.scale or {}).items()):
        digest.update(name.encode() + scale.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON, its arrays aside."""
    if isinstance(value, np.ndarray):
        kind = str(value.dtype)
        signed = value.view(np.int64) if kind == _UNSIGNED else value
        return {"array": _aside(torch.from_numpy(signed), tensors), "kind": kind}
    if isinstance(value, Tensor):
        return {"tensor": _aside(value, tensors)}
    if isinstance(value, dict):
        return {"keys": list(value), "values": [_plain(v, tensors) for v in value.values()]}
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_plain(v, tensors) for v in value]}
    return value


def _aside(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor.detach().cpu().contiguous().clone()
    return name


def _lively(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Undoes `_plain`."""
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = tensors[value["array"]].numpy()
        return array.view(np.uint64) if value["kind"] == _UNSIGNED else array
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "keys" in value:
        found = [_lively(v, tensors) for v in value["values"]]
        return dict(zip(value["keys"], found, strict=True))
    if "tuple" in value:
        return tuple(_lively(v, tensors) for v in value["tuple"])
    return [_lively(v, tensors) for v in value["list"]]
