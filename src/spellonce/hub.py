"""Models on the Hugging Face Hub, or in a folder that looks like one of its repositories.

A run folder is what is stored there, without what only `--resume` needs; loading it executes
nothing from it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, snapshot_download

from spellonce import small_weights
from spellonce.errors import RunError
from spellonce.runs import RunFolder

FILES = (
    "config.json", "lexicon.tsv", "units.tsv", "model.safetensors", "ngrams.safetensors",
    "gradients.safetensors", "adaptive.json", "checksums.json", "result.json", "log.jsonl",
)  # fmt: skip
"""What a model is made of, where it has all of it."""
_CARD = """---
{{ card_data }}
---

# {{ name }}

A two-level open-vocabulary language model (Mielke & Eisner, *Spell Once, Summon Anywhere*, AAAI
2019), trained with spellonce: recipe `{{ recipe }}` on
`{{ data }}`, {{ bpc }} bits per character on its validation split.

```
spellonce score -m {{ name }} my-text.txt
```
"""


def is_id(name: str) -> bool:
    """Whether a name may be that of a repository on the Hub.

    >>> [is_id(name) for name in ("me/model", "runs/a/b", "model", "../x", "me/model.")]
    [True, False, False, False, False]
    """
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<![.-])", name) is not None


class Pretrained(
    ModelHubMixin,
    library_name="spellonce",
    tags=["open-vocabulary", "language-model", "surprisal"],
    paper_url="https://arxiv.org/abs/1804.08205",
    model_card_template=_CARD,
):
    """A run folder, as huggingface_hub knows models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _save_pretrained(self, save_directory: Path) -> None:
        pack(RunFolder(self.folder), save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **_: Any,
    ) -> Pretrained:
        if Path(model_id).is_dir():
            return cls(Path(model_id))
        found = snapshot_download(
            model_id, revision=revision, cache_dir=cache_dir, force_download=force_download,
            local_files_only=local_files_only, token=token, allow_patterns=list(FILES),
        )  # fmt: skip
        return cls(Path(found))


def pack(folder: RunFolder, target: Path, *, small: bool = False, dynamic: bool = True) -> None:
    """Copies a run without what only training needs, and without the paths of its maker's disk.

    `small`: weights in small integers. Not `dynamic`: without what dynamic evaluation needs.
    """
    folder.check_model()
    config, tensors = folder.read_config(), folder.read_weights()
    ngrams, gradients = folder.read_ngrams(), folder.read_gradients() if dynamic else None
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:  # of a model that was here before
        (target / name).unlink(missing_ok=True)
    copy = RunFolder(target)
    for split in config["data"]["splits"].values():
        split["segments"] = [[Path(path).name, *span] for path, *span in split["segments"]]
    copy.write_json("config.json", config)
    if folder.finished:
        copy.write_json("result.json", {**folder.read_json("result.json"), "run": target.name})
    for name in ("lexicon.tsv", "units.tsv", "adaptive.json", "log.jsonl"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    copy.write_model(small_weights.shrunk(tensors) if small else tensors, ngrams, gradients)
    if (target / "adaptive.json").is_file():
        adaptive = copy.read_json("adaptive.json")
        copy.write_json("adaptive.json", {**adaptive, "model": copy.model_sum})


def _refuse_what_is_not_ours(target: Path) -> None:
    """Only a model that was packed may be replaced."""
    there = [name for name in ("README.md", *FILES) if (target / name).exists()]
    is_packed = RunFolder(target).started and (target / "model.safetensors").is_file()
    if there and (not is_packed or any((target / x).exists() for x in ("checkpoint", "plan.json"))):
        raise RunError(f"{target} has a {there[0]} that `save` did not write: name another folder")


def fetch(name: str, **options: Any) -> Path:
    """The folder of a model on the Hub, which is downloaded if it is not here yet.

    The options are those of huggingface_hub: `revision`, `token`, `cache_dir`, `local_files_only`.
    """
    try:
        return Path(Pretrained.from_pretrained(name, **options).folder)
    except Exception as error:  # of the network, of the Hub, or of what is there
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RunError(
            f"there is no run {name} here, and the Hub did not give it ({told}): "
            "name a folder that `train` wrote"
        ) from error


def save(folder: RunFolder, target: Path, **options: Any) -> str | None:
    """Writes a model as the Hub has it; with `push_to_hub=True` also to the Hub."""
    if target.resolve() == folder.path.resolve():
        raise RunError(f"{target} is the run itself: name another folder")
    card = _card(folder, options.get("repo_id") or target.name)
    folder.check_model()  # nothing is removed before it is known to be good
    _refuse_what_is_not_ours(target)
    (target / "README.md").unlink(missing_ok=True)  # the card of what was here before
    saved = Pretrained(folder.path).save_pretrained(target, model_card_kwargs=card, **options)
    return None if saved is None else str(saved)


def push(folder: RunFolder, repo_id: str, **options: Any) -> str:
    """Writes a model to a repository on the Hub; where it is then."""
    card = _card(folder, repo_id)
    return str(Pretrained(folder.path).push_to_hub(repo_id, model_card_kwargs=card, **options))


def _card(folder: RunFolder, name: str) -> dict[str, str]:
    """What the card of a model tells."""
    folder.check_has_model()
    config = folder.read_config()
    about = folder.read_json("result.json") if folder.finished else {}
    return {
        "name": name,
        "recipe": config["recipe"]["name"],
        "data": config["data"]["name"],
        "bpc": f"{about['valid_bpc']:.3f}" if "valid_bpc" in about else "unknown",
    }
