"""A run folder: what it holds, how it is written so that nothing is ever lost or half there.

    config.json         format version, recipe, seed, versions, data and their checksums
    lexicon.tsv         alphabet and types
    units.tsv           the units of a model over pieces of words
    model.safetensors   the weights
    ngrams.safetensors  the counts of a model that has any
    gradients.safetensors   how large its gradients were: what dynamic evaluation needs
    adaptive.json       what `tune` found: how the model learns while it reads
    checksums.json      of all that a loaded model depends on
    plan.json           how long the training is
    log.jsonl           one line per report
    result.json         what `train --json` prints; there when the run is finished
    checkpoint/         all that --resume needs
    data/               the encoded training text
    evaluations/        figures of splits, so that nobody need score them again

JSON and safetensors only: loading a run executes nothing from it, and reads nothing outside it.
Files appear whole or not at all; checksums tell when a disk has changed them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import filelock
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce import small_weights
from spellonce.errors import RunError
from spellonce.files import (
    disk_error,
    read_json,
    read_tensors,
    sha256,
    sync_folder,
    to_bytes,
    write_atomically,
    write_synced,
)

FORMAT = 3
"""Version of the run folder's format."""
_OURS = {
    "config.json", "lexicon.tsv", "model.safetensors", "log.jsonl", "result.json", "checksums.json",
    "plan.json", "checkpoint", "data", "lock", "tensorboard", "evaluations", "units.tsv",
    "ngrams.safetensors", "gradients.safetensors", "adaptive.json",
}  # fmt: skip
_INSIDE = {
    "data": r"train\.(ids|partial|eras)", "checkpoint": r"(step|partial)-\d+",
    "tensorboard": r"events\..+", "evaluations": r"[\w+]+\.json|\.[\w+]+\.json\.partial",
}  # fmt: skip
_FIXED = ("config.json", "plan.json", "lexicon.tsv", "units.tsv", "data/train.ids")
"""What a run is made of before its first step, and never changes."""
_CONFIG = {"recipe": dict, "seed": int, "threads": int, "device": str, "length": dict,
           "text": dict, "data": dict}  # fmt: skip
_MOVING, _REPLACED = ".moving.partial", ".replaced.partial"


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sums: dict[str, str] | None = None

    @cached_property
    def _lock(self) -> filelock.FileLock:
        """Only for those who write. Whoever has it can take it again."""
        return filelock.FileLock(self.path / "lock")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    @property
    def started(self) -> bool:
        """Whether there is a run that can be continued."""
        return (self / "config.json").is_file()

    @property
    def finished(self) -> bool:
        """Whether training has ended."""
        return (self / "result.json").is_file()

    @contextmanager
    def opened_for_training(self, *, resume: bool, force: bool) -> Iterator[None]:
        """Makes the folder ready, or refuses; nobody else can train into it meanwhile.

        What --force replaces comes back if the new run fails before it has a plan, or is killed
        before it has a config.
        """
        try:
            if self.path.exists() and not self.path.is_dir():
                raise RunError(f"{self.path} is a file: give another --out")
            self._refuse_what_is_not_ours()
            self.path.mkdir(parents=True, exist_ok=True)
            # Whoever stores an evaluation has the lock for a moment.
            with self._lock.acquire(timeout=0.5):
                self._settle(begun=self.started)
                try:
                    self._make_ready(resume, force)
                    yield
                finally:
                    self._settle(begun=(self / "plan.json").exists())
        except filelock.Timeout:
            raise RunError(f"another training is writing to {self.path}: wait for it") from None
        except OSError as error:
            raise disk_error(self.path, error) from error

    def _refuse_what_is_not_ours(self) -> None:
        inside = {p.name: p for p in self.path.iterdir()} if self.path.is_dir() else {}
        others = [n for n in inside if n not in _OURS and not n.endswith(".partial")]
        for name, pattern in _INSIDE.items():
            if name in inside:
                names = [p.name for p in inside[name].iterdir()] if inside[name].is_dir() else [""]
                others += [f"{name}/{n}" for n in names if not re.fullmatch(pattern, n)]
        if others:
            raise RunError(
                f"{self.path} holds other things ({', '.join(sorted(others)[:3])}): "
                "give --out a new or empty folder"
            )

    def _make_ready(self, resume: bool, force: bool) -> None:
        occupied = any(p.name != "lock" for p in self.path.iterdir())
        if occupied and not (resume or force):
            raise RunError(
                f"{self.path} holds a run already: add --resume to continue it, "
                "--force to replace it, or give another --out"
            )
        if resume and self.started:
            if not self.finished:
                self.read_config()
                self._verify_fixed()
            return
        if not force and (self._checkpoints() or (self / "model.safetensors").exists()):
            raise RunError(
                f"{self.path} has no config.json: restore it, or start again with --force"
            )
        self._set_aside()

    # What was there before a new run waits in a folder whose name says how much of it is there:
    # in `_MOVING` some of it is, and what stands outside belongs to it; in `_REPLACED` all of it
    # is, and what stands outside is the new run's. So a kill at any moment leaves the old run or
    # the new one, and nothing in between.

    def _set_aside(self) -> None:
        moving = self / _MOVING
        moving.mkdir()
        for path in self._entries():
            path.rename(moving / path.name)
        moving.rename(self / _REPLACED)

    def _settle(self, *, begun: bool) -> None:
        """Ends a replacement: deletes the old run if the new one has begun, else restores it."""
        moving, replaced = self / _MOVING, self / _REPLACED
        if begun and not moving.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            return
        if replaced.exists():
            # The config first: without it nothing takes what is left for a run that has begun.
            (self / "config.json").unlink(missing_ok=True)
            for path in self._entries():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            replaced.rename(moving)
        if moving.exists():
            for path in moving.iterdir():
                path.rename(self / path.name)
            moving.rmdir()

    def _entries(self) -> list[Path]:
        return [p for p in self.path.iterdir() if p.name not in ("lock", _MOVING, _REPLACED)]

    # --- JSON ---------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Writes one of the JSON files, atomically. With its plan a run has begun."""
        write_atomically(self / name, (json.dumps(value, indent=2) + "\n").encode())
        if name == "plan.json":
            self._settle(begun=True)

    def read_json(self, name: str) -> dict[str, Any]:
        """Reads one of the JSON files."""
        return read_json(self / name)

    def read_config(self) -> dict[str, Any]:
        """`config.json`, if this is a run of a format that we know."""
        if not self.path.is_dir():
            raise RunError(f"there is no run {self.path}: name a folder that `train` wrote")
        if not self.started:
            raise RunError(f"{self.path} is not a run: it has no config.json")
        self._check_links()
        config = self.read_json("config.json")
        version = config.get("format")
        if version != FORMAT:
            raise RunError(
                f"{self.path} has format version {version}, and this program reads {FORMAT}: "
                "use the version of spellonce that wrote it, or train it again"
            )
        for key, kind in _CONFIG.items():
            if not isinstance(config.get(key), kind):
                raise RunError(f"{self / 'config.json'} is damaged: its {key} is missing or wrong")
        return config

    def _check_links(self) -> None:
        """Refuses a run that leads out of its folder: whoever made it would choose what is read.

        And one with pipes or devices in it, which may have no end.
        """
        root = self.path.resolve()
        inside = [root]
        if root.parent.name == "snapshots":  # a cache of the Hub has links to what lies beside
            inside.append(root.parent.parent / "blobs")
        for folder, *names in os.walk(self.path):
            for entry in (Path(folder) / name for name in itertools.chain(*names)):
                if entry.is_symlink() and not _leads_into(entry, inside):
                    raise RunError(
                        f"{entry} is a link that leads out of the run: put the file there"
                    )
                if entry.exists() and not (entry.is_file() or entry.is_dir()):
                    raise RunError(f"{entry} is neither a file nor a folder: remove it")

    # --- weights ------------------------------------------------------------------------------

    def write_model(
        self,
        tensors: Mapping[str, Tensor],
        ngrams: Mapping[str, NDArray[Any]] | None = None,
        gradients: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Writes `model.safetensors`, and `ngrams.safetensors` and `gradients.safetensors` where
        there are any, and the checksums of all that a loaded model depends on."""
        if ngrams is not None:
            arrays = {name: torch.from_numpy(array) for name, array in ngrams.items()}
            write_atomically(self / "ngrams.safetensors", to_bytes(arrays))
        if gradients is not None:
            rounded = {name: tensor.bfloat16() for name, tensor in gradients.items()}
            write_atomically(self / "gradients.safetensors", to_bytes(rounded))
        write_atomically(self / "model.safetensors", to_bytes(tensors))
        names = ("model.safetensors", "lexicon.tsv", "units.tsv", "ngrams.safetensors",
                 "gradients.safetensors")  # fmt: skip
        sums = {name: sha256(self / name) for name in names if (self / name).is_file()}
        self.write_json("checksums.json", sums)

    def check_model(self) -> None:
        """Refuses a run that has no model yet, or whose files are not what was written."""
        self.check_has_model()
        for name, expected in self.read_json("checksums.json").items():
            if Path(name).name != name or not (self / name).is_file():
                raise RunError(f"{self.path} has no {name}: restore it, or train again")
            if sha256(self / name) != expected:
                raise RunError(f"{self / name} is damaged: its checksum is not the one recorded")

    def read_weights(self) -> dict[str, Tensor]:
        """Reads `model.safetensors`."""
        return small_weights.whole(read_tensors(self / "model.safetensors"))

    @property
    def model_sum(self) -> str:
        """The checksum of the weights: what was made for them is for no others."""
        return str(self.read_json("checksums.json").get("model.safetensors"))

    def read_ngrams(self) -> dict[str, NDArray[Any]] | None:
        """Reads `ngrams.safetensors`, if the model has n-grams."""
        path = self / "ngrams.safetensors"
        if not path.is_file():
            return None
        return {name: tensor.numpy() for name, tensor in read_tensors(path).items()}

    def read_gradients(self) -> dict[str, Tensor] | None:
        """Reads `gradients.safetensors`, if it is there."""
        path = self / "gradients.safetensors"
        if not path.is_file():
            return None
        return {name: tensor.float() for name, tensor in read_tensors(path).items()}

    def check_has_model(self) -> None:
        """Refuses a run that has no model yet."""
        if not (self / "model.safetensors").is_file() or not (self / "checksums.json").is_file():
            raise RunError(f"{self.path} is not finished: continue it with train --resume")

    # --- evaluations --------------------------------------------------------------------------

    def write_evaluation(self, name: str, value: Mapping[str, Any]) -> bool:
        """Writes `evaluations/<name>.json`. Whether it could: a run may be read-only, or be
        trained anew just now, and that is no error.
        """
        try:
            with self._lock.acquire(timeout=0):
                if (self / _MOVING).exists() or (self / _REPLACED).exists():
                    return False  # what stands here is not yet, or not any more, the run
                self.check_has_model()
                (self / "evaluations").mkdir(exist_ok=True)
                self.write_json(f"evaluations/{name}.json", value)
        except (OSError, RunError, NotImplementedError):  # the last: no locks on this disk
            return False
        return True

    def read_evaluation(self, name: str) -> dict[str, Any] | None:
        """`evaluations/<name>.json`, if there is one that can be read."""
        try:
            return self.read_json(f"evaluations/{name}.json")
        except RunError:
            return None

    # --- checkpoints --------------------------------------------------------------------------

    def write_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: Any) -> None:
        """Writes a checkpoint beside the last one, then removes that."""
        folder = self / "checkpoint"
        folder.mkdir(exist_ok=True)
        for leftover in folder.glob("partial-*"):
            shutil.rmtree(leftover)
        partial, final = folder / f"partial-{step:08d}", folder / f"step-{step:08d}"
        partial.mkdir()
        payload = {
            "tensors.safetensors": to_bytes(tensors),
            "state.json": (json.dumps(state, indent=1) + "\n").encode(),
        }
        try:
            for name, data in payload.items():
                write_synced(partial / name, data)
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in payload.items()}
            sums |= self._fixed_sums()
            write_synced(partial / "checksums.json", json.dumps(sums).encode())
            sync_folder(partial)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise disk_error(self.path, error) from error
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        sync_folder(folder)
        for old in self._checkpoints()[:-1]:
            shutil.rmtree(old)

    def read_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint, or None where there is none."""
        found = self._checkpoints()
        if not found:
            return None
        folder = found[-1]
        sums = read_json(folder / "checksums.json")
        for name in ("tensors.safetensors", "state.json"):
            if not (folder / name).is_file() or sha256(folder / name) != sums.get(name):
                raise RunError(
                    f"the checkpoint {folder} is damaged ({name}): restore it from a copy, "
                    "or start again with --force"
                )
        return read_tensors(folder / "tensors.safetensors"), read_json(folder / "state.json")

    def _checkpoints(self) -> list[Path]:
        found = (self / "checkpoint").glob("step-*")
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def _fixed_sums(self) -> dict[str, str]:
        """Checksums of what never changes, read once."""
        if self._sums is None:
            self._sums = {name: sha256(self / name) for name in _FIXED if (self / name).is_file()}
        return self._sums

    def _verify_fixed(self) -> None:
        """Refuses to continue a run whose files are not those that the checkpoint knew."""
        for folder in self._checkpoints()[-1:]:
            sums = read_json(folder / "checksums.json")
            for name in _FIXED:
                path = self / name
                if name in sums and not (path.is_file() and sha256(path) == sums[name]):
                    raise RunError(
                        f"{path} is damaged: restore it from a copy, or start again with --force"
                    )

    # --- the log ------------------------------------------------------------------------------

    def append_log(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to `log.jsonl`."""
        try:
            with (self / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise disk_error(self.path, error) from error

    def read_log(self) -> list[dict[str, Any]]:
        """The lines of `log.jsonl` that can be read: one may be being written still."""
        if not (self / "log.jsonl").is_file():
            return []
        rows = []
        for line in (self / "log.jsonl").read_text("utf-8", "replace").split("\n"):
            with suppress(ValueError):
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict)]

    def rewind_log(self, step: int) -> None:
        """Takes back the lines of steps that a resumed run will take again."""
        path = self / "log.jsonl"
        if not path.is_file():
            return
        kept = []
        for entry in self.read_log():
            at = entry.get("step", 0)
            if isinstance(at, int) and at <= step and not entry.get("final"):
                kept.append(json.dumps(entry) + "\n")
        write_atomically(path, "".join(kept).encode())


def _leads_into(link: Path, folders: list[Path]) -> bool:
    try:
        return any(link.resolve().is_relative_to(folder) for folder in folders)
    except (OSError, RuntimeError):  # it leads to itself
        return False
