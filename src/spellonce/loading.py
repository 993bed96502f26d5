"""Trained models, loaded: from a run folder, from the Hugging Face Hub, from the package itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spellonce import configuration, recipes, runtime
from spellonce import lexicon as lexicons
from spellonce.errors import ConfigError, RunError
from spellonce.lexicon import Lexicon
from spellonce.mixture import Counted
from spellonce.model import Model
from spellonce.network import load_weights
from spellonce.preparation import load_units, text_format
from spellonce.runs import RunFolder

BOX = Path(__file__).parent / "box"
"""The model that comes with the package, if one does."""


def find_run(run: str | Path | None, **options: Any) -> Path:
    """The folder of a run, which may be on the Hugging Face Hub; None: the one in the package."""
    if run is None:
        if not RunFolder(BOX).started:
            raise ConfigError("which model? name a run folder that `train` wrote with -m RUN")
        return BOX
    if not Path(run).exists():
        from spellonce import hub

        if hub.is_id(str(run)):
            return hub.fetch(str(run), **options)
    return Path(run)


def load(run: str | Path | None = None, *, device: str = "cpu") -> Model:
    """Loads the model of a run folder that `spellonce train` wrote, or of the Hugging Face Hub.

    Without a name: the model that comes with the package.
    """
    chosen = runtime.prepare(device)
    runtime.give_memory_back()
    folder = RunFolder(find_run(run))
    config = folder.read_config()
    folder.check_model()
    recipe = configuration.from_json(config["recipe"])
    lexicon = lexicons.load(folder / "lexicon.tsv")
    # Counts first: to take them from the disk needs more memory for a moment than to have them.
    counted = _load_counts(folder, lexicon)
    network = recipes.build_model(recipe, lexicon, load_units(folder), counted)
    load_weights(dict(network.named_parameters()), folder.read_weights())
    network.requires_grad_(False).to(chosen)
    return Model(network, lexicon, recipe, text_format(config), config, folder)


def _load_counts(folder: RunFolder, lexicon: Lexicon) -> Counted | None:
    """The counts of a model that has any."""
    arrays = folder.read_ngrams()
    if arrays is None:
        return None
    try:
        counted = Counted.of_arrays(arrays)
        counted.check_fits(lexicon)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'ngrams.safetensors'} is damaged: {error}") from error
    return counted
