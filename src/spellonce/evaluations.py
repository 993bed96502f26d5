"""Evaluations stored with the run that they belong to.

Scoring is slow. So the figures of a run's split are kept in its folder together with the checksums
of all that they follow from, and used again for as long as those fit.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spellonce import __version__
from spellonce.errors import RunError
from spellonce.files import sha256
from spellonce.runs import RunFolder

if TYPE_CHECKING:
    from spellonce.adaptive import Learning
    from spellonce.model import Model


def evaluation_of(
    run: Path, split: str, *, device: str = "cpu", learning: Learning | None = None
) -> dict[str, Any]:
    """The figures of `eval` for a split of the run's data: the stored ones if they still fit,
    otherwise the model is loaded and the text scored.
    """
    kept = stored(RunFolder(run), split, learning)
    if kept is not None:
        return kept
    from spellonce.loading import load

    return evaluate_and_store(load(run, device=device), run, split, learning)


def evaluate_and_store(
    model: Model, run: Path, split: str, learning: Learning | None = None
) -> dict[str, Any]:
    """Scores a split with the model that was just loaded from a run, and stores the figures there.

    A folder that cannot be written to is no error: then they are only returned.
    """
    folder = RunFolder(run)
    before = _origin(folder, split, learning)
    result = model.evaluate_split(split, *([learning] if learning else []))
    # The run may have been replaced while its text was scored.
    if before == _origin(folder, split, learning):
        store(folder, split, result, learning)
    return result


def store(
    folder: RunFolder, split: str, result: dict[str, Any], learning: Learning | None = None
) -> None:
    """Keeps the figures of the model that is in the folder now."""
    origin = _origin(folder, split, learning)
    if origin is not None:
        value = {"origin": origin, "sha256": _checksum(result), "result": result}
        folder.write_evaluation(_name(split, learning), value)


def _name(split: str, learning: Learning | None) -> str:
    return f"{split}+{learning.name}" if learning else split


def stored(
    folder: RunFolder, split: str, learning: Learning | None = None
) -> dict[str, Any] | None:
    """The figures that are kept with a run, if there are any and they still fit."""
    value = folder.read_evaluation(_name(split, learning))
    if value is None or not isinstance(result := value.get("result"), dict):
        return None
    if value.get("sha256") != _checksum(result):
        return None
    return result if value.get("origin") == _origin(folder, split, learning) else None


def _origin(folder: RunFolder, split: str, learning: Learning | None) -> dict[str, Any] | None:
    """All that the figures of a split follow from; None where there is no such split or model."""
    try:
        config = folder.read_config()
        # The model, its lexicon, and whatever else was recorded with them: as they are now.
        names = [name for name in folder.read_json("checksums.json") if Path(name).name == name]
        if learning and (folder / "adaptive.json").is_file():
            names.append("adaptive.json")
        sums = {name: sha256(folder / name) for name in names}
    except (OSError, RunError):
        return None
    recorded = config["data"].get("splits", {}).get(split)
    if recorded is None:
        return None
    return {
        "files": sums,
        "split": recorded["sha256"],
        "recipe": config["recipe"],
        "text": config["text"],
        "spellonce": __version__,
    }


def _checksum(result: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
