"""What a run is trained on: encoded once, recorded in `config.json`, found again later."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spellonce import configuration, corpus, encoding, recipes, runtime
from spellonce import lexicon as lexicons
from spellonce import units as unit_sets
from spellonce.configuration import Recipe
from spellonce.corpus import Dataset, Segment, Source
from spellonce.encoding import Encoded
from spellonce.errors import ConfigError, DataError, RunError
from spellonce.files import write_atomically
from spellonce.lexicon import Lexicon
from spellonce.progress import Reporter
from spellonce.recipes import Means
from spellonce.runs import FORMAT, RunFolder
from spellonce.text import TextFormat
from spellonce.units import Units


@dataclass(frozen=True)
class Length:
    """How long to train: steps, or seconds of the whole call, or what the recipe says."""

    steps: int | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.budget is not None:
            raise ConfigError("give --steps or --budget, not both")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"--steps must be at least 1, got {self.steps}")
        if self.budget is not None and not self.budget > 0:
            raise ConfigError(f"--budget must be more than nothing, got {self.budget} seconds")

    def __str__(self) -> str:
        if self.steps is not None:
            return f"--steps {self.steps}"
        return "its recipe's" if self.budget is None else f"--budget {self.budget:g}s"


def means_of(dataset: Dataset | None, length: Length | None, device: str = "cpu") -> Means:
    """What a new run has to train with."""
    n_bytes = None if dataset is None else dataset.split("train").n_bytes()
    return Means(None if length is None else length.budget, n_bytes, runtime.has_bfloat16(device))


def means_of_run(run: RunFolder) -> Means:
    """What a run began with."""
    config = run.read_config()
    spans = config["data"]["splits"]["train"]["segments"]
    return Means(
        config["length"]["budget"],
        sum(stop - start for _, start, stop in spans),
        config["recipe"]["training"].get("precision") == "bfloat16",
    )


def prepare(
    run: RunFolder,
    dataset: Dataset,
    recipe: Recipe,
    seed: int,
    device: str,
    length: Length,
    reporter: Reporter,
    processes: int = 1,
) -> dict[str, Any]:
    """Encodes the text and writes all that is fixed before the first step."""
    fmt = recipe.data.apply(dataset.format)
    reporter.status(f"reading {dataset.name}")
    (run / "data").mkdir(exist_ok=True)
    total = dataset.split("train").n_bytes()
    encoded = encoding.encode(
        dataset.split("train"),
        fmt,
        run / "data" / "train.ids",
        vocab_size=recipe.data.vocab_size,
        min_count=recipe.data.min_count,
        min_char_count=recipe.data.min_char_count,
        progress=lambda n: reporter.status(f"reading {dataset.name}: {100 * n // total} %"),
    )
    lexicon = encoded.lexicon
    write_atomically(run / "lexicon.tsv", lexicons.to_tsv(lexicon).encode("utf-8"))
    n_ids = encoded.n_tokens
    units = recipes.make_units(recipe, lexicon)
    if units is not None:
        reporter.status(f"cutting {dataset.name} into units")
        write_atomically(run / "units.tsv", unit_sets.to_text(units).encode("utf-8"))
        n_ids = _to_units(run / "data" / "train.ids", units, lexicon)
    config = {
        "format": FORMAT,
        "recipe": configuration.to_json(recipe),
        "seed": seed,
        "length": asdict(length),
        "device": device,
        "threads": runtime.threads(),
        "processes": processes,
        "versions": runtime.versions() | {"machine": platform.machine()},
        "text": {
            "tokenization": fmt.tokenization, "articles": fmt.articles, "unk": fmt.unk,
        },
        "data": _about(dataset, encoded)
        | {"train_ids": n_ids, "units": None if units is None else len(units)},
    }  # fmt: skip
    run.write_json("config.json", config)
    _warn(encoded, recipe, reporter)
    return config


def _about(dataset: Dataset, encoded: Encoded) -> dict[str, Any]:
    """Where the text is, and what there is in it."""
    return {
        "name": dataset.name,
        "splits": {
            name: {
                "segments": [[str(s.path.resolve()), s.start, s.stop] for s in source.segments],
                "sha256": encoded.sha256 if name == "train" else source.sha256(),
            }
            for name, source in dataset.splits.items()
        },
        "train_tokens": encoded.n_tokens,
        "train_chars": encoded.n_chars,
        "train_bytes": encoded.n_bytes,
        "train_types": len(encoded.lexicon.types),
        "lexemes": encoded.lexicon.n_lexemes,
        "alphabet": len(encoded.lexicon.alphabet.chars),
        "other_chars": encoded.n_other,
        "missed": encoded.missed,
    }


def _warn(encoded: Encoded, recipe: Recipe, reporter: Reporter) -> None:
    """Says what of the text is lost."""
    if encoded.n_other > 0.01 * encoded.n_spelled and recipe.data.min_char_count > 1:
        reporter.warn(
            f"{encoded.n_other / encoded.n_spelled:.0%} of the characters are rare "
            f"(seen fewer than {recipe.data.min_char_count} times) and become ◇; "
            "--set min_char_count=1 keeps them all"
        )
    if encoded.missed:
        reporter.warn(
            f"more than {encoding.MOST_TYPES:,} different words: of those seen at most "
            f"{encoded.missed:,} times some have lost their spelling, as `<unk>` has"
        )


def _to_units(path: Path, units: Units, lexicon: Lexicon) -> int:
    """Replaces a file of type ids by one of unit ids; how many there are."""
    expanded = path.with_suffix(".partial")
    n_ids = unit_sets.expand(units, lexicon, encoding.open_ids(path), expanded)
    expanded.replace(path)
    return n_ids


def load_units(run: RunFolder) -> Units | None:
    """The units of a run whose system reads units."""
    path = run / "units.tsv"
    if not path.is_file():
        return None
    try:
        return unit_sets.from_text(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RunError) as error:
        raise RunError(f"cannot read {path}: {error}") from error


def check_agreement(
    run: RunFolder,
    config: dict[str, Any],
    dataset: Dataset | None,
    recipe: Recipe | None,
    seed: int | None,
    device: str | None,
    threads: int | None,
    length: Length | None,
) -> None:
    """Refuses to continue a run with anything else than it began with."""
    stored = configuration.from_json(config["recipe"])
    different = []
    if recipe is not None and recipe != stored:
        different.append(f"recipe or settings (it began as {stored.name})")
    for name, given in (("seed", seed), ("device", device), ("threads", threads)):
        if given is not None and given != config[name]:
            different.append(f"{name} (it began with {config[name]})")
    began = length_of(config)
    if length is not None and length != began:
        different.append(f"length (it began with {began})")
    if dataset is not None:
        segments = {
            name: [[str(s.path.resolve()), s.start, s.stop] for s in source.segments]
            for name, source in dataset.splits.items()
        }
        if segments != {name: s["segments"] for name, s in config["data"]["splits"].items()}:
            different.append(f"text (it began on {config['data']['name']})")
    if different:
        raise RunError(
            f"{run.path} cannot be resumed with another {' and '.join(different)}: "
            "leave it out, or give another --out"
        )


def source_of(config: dict[str, Any], split: str) -> Source:
    """A split of the data that a run was trained on, if it is still there and the same."""
    splits = config["data"]["splits"]
    if split not in splits:
        raise DataError(f"the run's data has no {split} split (it has {', '.join(splits)})")
    segments = tuple(Segment(Path(p), int(a), int(b)) for p, a, b in splits[split]["segments"])
    # A model that was packed to be given away has names of files, and no paths.
    if not all(segment.path.is_absolute() and segment.path.is_file() for segment in segments):
        try:
            segments = corpus.find_dataset(config["data"]["name"]).split(split).segments
        except DataError as error:
            gone = next((s.path for s in segments if not s.path.is_file()), segments[0].path)
            raise DataError(
                f"{gone}, which the run was trained with, is gone: put it back, "
                "set SPELLONCE_DATA to where its data set is, or score a text with --text"
                if gone.is_absolute()
                else "the model came without the texts that it was trained with: score yours with "
                f"--text FILE, or set SPELLONCE_DATA to where {config['data']['name']} is"
            ) from error
    source = Source(segments)
    if source.sha256() != splits[split]["sha256"]:
        raise DataError(
            f"{segments[0].path} is not what the run was trained with (its checksum differs): "
            "restore it, or score it with --text"
        )
    return source


def text_format(config: dict[str, Any]) -> TextFormat:
    """How a run reads text."""
    try:
        return TextFormat(**config["text"])
    except (TypeError, ConfigError) as error:
        raise RunError(f"the text in config.json is damaged: {error}") from error


def length_of(config: dict[str, Any]) -> Length:
    """How long a run was to train."""
    try:
        return Length(**config["length"])
    except (TypeError, ConfigError) as error:
        raise RunError(f"the length in config.json is damaged: {error}") from error
