"""The paper's tables and figures, one call each: what to train, on how much time, what to write.

An experiment is a list of trainings (`Job`) and a report on what came of them; `running` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from spellonce import configuration, corpus, recipes
from spellonce.adaptive import Learning
from spellonce.configuration import Recipe
from spellonce.errors import ConfigError
from spellonce.evaluations import evaluation_of
from spellonce.lexicon import N_SPECIAL
from spellonce.loading import load
from spellonce.paper import ngram_ranks, published, reports
from spellonce.paper.outcomes import Outcome, Report
from spellonce.preparation import Length
from spellonce.recipes import Means
from spellonce.runs import RunFolder
from spellonce.systems import SYSTEMS
from spellonce.tuning import tune_run

Size = Literal["small", "paper"]


@dataclass(frozen=True)
class Job:
    """One training of an experiment."""

    name: str
    system: str
    dataset: str
    settings: tuple[str, ...] = ()
    """Changes of the recipe, as for `--set`."""
    seed: int = 0
    length: Length | None = None
    """How long, where not all are as long."""

    def recipe(self, size: str, means: Means) -> Recipe:
        """What is trained."""
        is_sized = self.system != "cpu"
        name = self.system + ("-small" if size == "small" and is_sized else "")
        return configuration.override(recipes.get(name, means), self.settings)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    jobs: tuple[Job, ...]
    report: Callable[[Sequence[Outcome], float | None], Report]
    """What is written, from outcomes and the seconds of each."""
    look: Callable[[Path, str], dict[str, Any]] | None = None
    """What else is to be found out about a finished run, as JSON has it: `Outcome.seen`."""


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    datasets: tuple[str, ...] = ()
    size: str = "small"
    """Of the models: `small` or `paper`."""
    systems: tuple[str, ...] = ()
    """Instead of the experiment's own choice."""
    sizes: tuple[int, ...] = ()
    """Vocabulary sizes (lexemes, or merges), instead of the experiment's own choice."""
    seeds: int = 1
    """Seeds of the systems in `SEEDED`, in table1."""
    minutes: tuple[float, ...] = ()
    """Lengths of trainings, in the experiment of that name."""
    budget: float | None = None
    """Seconds for everything."""
    each: float | None = None
    """Seconds for each training instead."""
    steps: int | None = None
    """Steps of each training instead."""
    command: str = ""
    """How the user said it: printed in the report."""

    def __post_init__(self) -> None:
        if self.size not in get_args(Size):
            raise ConfigError(f"--size must be {' or '.join(get_args(Size))}, not {self.size!r}")
        if sum(x is not None for x in (self.budget, self.each, self.steps)) > 1:
            raise ConfigError("give one of --budget, --each and --steps")
        if any(not minutes > 0 for minutes in self.minutes):
            raise ConfigError("--minutes are above 0 each")
        if self.seeds < 1:
            raise ConfigError(f"--seeds must be at least 1, got {self.seeds}")
        for name in ("datasets", "systems", "sizes", "minutes"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        for system in self.systems:
            recipes.get(system)

    def check_used(self, name: str) -> None:
        """Refuses what the experiment would not heed."""
        given = {
            "--systems": self.systems, "--vocabulary": self.sizes, "--seeds": self.seeds != 1,
            "--minutes": self.minutes,
            "--budget": self.budget, "--each": self.each, "--steps": self.steps,
        }  # fmt: skip
        heeded = (*_HEEDED[name], *(() if name in _OWN_LENGTHS else _LENGTHS))
        unheeded = [option for option, value in given.items() if value and option not in heeded]
        if unheeded:
            raise ConfigError(f"{name} has no use for {' and '.join(unheeded)}: leave it out")
        if len(self.datasets) > 1 and name not in ("mwc", "minutes", "adaptive"):
            raise ConfigError(f"{name} is about one data set: leave the others out")
        if len(self.sizes) > 1 and name == "mwc":
            raise ConfigError("mwc is about one size of the vocabulary: leave the others out")


_LENGTHS = ("--budget", "--each", "--steps")
_OWN_LENGTHS = ("minutes", "adaptive", "types-tokens")
"""Experiments that heed only some of them: trainings have lengths of their own, there are none, or
most of the time is not training."""
_HEEDED = {
    "table1": ("--systems", "--seeds"),
    "vocabulary": ("--systems", "--vocabulary"),
    "mwc": ("--systems", "--vocabulary"),
    "samples": ("--vocabulary",),
    "asides": ("--systems",),
    "minutes": ("--systems", "--minutes"),
    "adaptive": ("--systems", "--minutes", "--each", "--steps"),
    "types-tokens": ("--budget",),
}
"""Options that an experiment heeds, beside the length of trainings."""
SEEDED = ("full", "no-reg", "pure-bpe")
"""The systems of which several seeds are compared."""
SIZES = {"small": (1_000, 5_000, 10_000, 20_000, 30_000), "paper": (5_000, 20_000, 40_000, 60_000)}
"""Vocabularies of the sweep."""
TEMPERATURES = (0.75, 1.0)
MINUTES = (5, 15, 30, 120)
COMPARED = ("pure-bpe", "pure-char", "hclm-cache")
"""What `cpu` is compared with, if nothing else is asked for,"""
COMPARED_TO = 30
"""and up to how many minutes."""


def table1(wish: Wish) -> Experiment:
    """All systems: bins, dev and test, significance (paper, table 1)."""
    dataset = wish.datasets[0] if wish.datasets else "wikitext-2"
    systems = wish.systems or tuple(published.WIKITEXT_2)
    jobs = [Job(system, system, dataset) for system in systems]
    jobs += [
        Job(f"{system}-seed{seed}", system, dataset, seed=seed)
        for seed in range(1, wish.seeds)
        for system in systems
        if system in SEEDED
    ]
    return Experiment(
        "table1", tuple(jobs), lambda found, each: reports.table1(found, wish.command, each)
    )


def vocabulary(wish: Wish) -> Experiment:
    """bpc against the size of the vocabulary (a figure of the paper)."""
    dataset = wish.datasets[0] if wish.datasets else "wikitext-2"
    jobs = [
        Job(f"{system}-{size}", system, dataset, (_size_setting(system, size),))
        for size in wish.sizes or SIZES[wish.size]
        for system in wish.systems or SEEDED
    ]
    return Experiment(
        "vocabulary",
        tuple(jobs),
        lambda found, each: reports.vocabulary(found, wish.command, each),
    )


def mwc(wish: Wish) -> Experiment:
    """Languages, split at spaces and tokenized (the MWC)."""
    datasets = wish.datasets or tuple(f"mwc-{code}" for code in published.LANGUAGES)
    jobs = [
        Job(
            f"{dataset}-{tokenization}-{system}",
            system,
            dataset,
            (f"tokenization={tokenization}", *_mwc_settings(system, wish)),
        )
        for dataset in datasets
        for tokenization in ("spaces", "reversible")
        for system in wish.systems or ("full", "pure-bpe")
    ]
    return Experiment(
        "mwc", tuple(jobs), lambda found, each: reports.languages(found, wish.command, each)
    )


def _mwc_settings(system: str, wish: Wish) -> tuple[str, ...]:
    """What the paper sets otherwise for the MWC: 60,000 lexemes or merges, a rarer factor (2)."""
    if wish.size != "paper" and not wish.sizes:
        return ()
    kind = SYSTEMS[recipes.get(system).system]
    found: tuple[str, ...] = ()
    if kind.sized_by is not None:
        found += (_size_setting(system, (wish.sizes or (60_000,))[0]),)
    if wish.size == "paper" and "objective.lexicon_interval" not in kind.unused:
        found += ("lexicon_interval=100",)
    return found


def samples(wish: Wish) -> Experiment:
    """What the speller makes of embeddings, and texts at several vocabularies and temperatures."""
    dataset = wish.datasets[0] if wish.datasets else "wikitext-2"
    sizes = wish.sizes or SIZES[wish.size][1::2]
    jobs = tuple(Job(f"full-{n}", "full", dataset, (f"vocab_size={n}",)) for n in sizes)

    def report(found: Sequence[Outcome], _: float | None) -> Report:
        texts = [text for outcome in found for text in outcome.seen["texts"]]
        return reports.samples(found[-1].seen["draws"] if found else [], texts, wish.command)

    return Experiment("samples", jobs, report, _samples)


def _samples(run: Path, device: str) -> dict[str, Any]:
    model = load(run, device=device)
    lexicon = model.lexicon
    texts = [
        {
            "vocabulary": lexicon.n_lexemes - N_SPECIAL + 1,
            "temperature": temperature,
            "pieces": [
                (piece.text, piece.is_novel)
                for piece in model.sample(120, temperature=temperature, seed=1).pieces
            ],
        }
        for temperature in TEMPERATURES
    ]
    words = lexicon.types[N_SPECIAL : lexicon.n_lexemes]
    good = [word for word in words if word.isalpha() and len(word) > 4]
    chosen = [w for w, _ in published.SPELLER_SAMPLES if w in set(words)]
    chosen += good[200 :: max(len(good) // 12, 1)][: 12 - len(chosen)]
    draws = [(w, model.spell(w, n=4, seed=i, novel_only=True)) for i, w in enumerate(chosen)]
    return {"texts": texts, "draws": draws}


def asides(wish: Wish) -> Experiment:
    """What the paper says by the way, tried: a line each."""
    dataset = wish.datasets[0] if wish.datasets else "wikitext-2"
    tried: list[tuple[str, str, tuple[str, ...]]] = [
        ("full", "full", ()),
        ("l2", "full", ("speller_norm=l2",)),
        ("strong-norm", "full-strong-norm", ()),
        ("feedback", "full-feedback", ()),
        ("transformer", "full-transformer", ()),
        ("only-unk", "full", ("vocab_size=1",)),
        ("all-types", "full", ("vocab_size=none",)),
        ("hapax", "full", ("vocab_size=none", "lexicon_types=hapax")),
        ("pure-bpe", "pure-bpe", ()),
    ]
    jobs = [
        Job(name, system, dataset, settings)
        for name, system, settings in tried
        if not wish.systems or system in wish.systems
    ]
    if not jobs:
        raise ConfigError(f"no aside is about {' or '.join(wish.systems)}")

    def report(found: Sequence[Outcome], each: float | None) -> Report:
        gains = {outcome.name: outcome.seen for outcome in found if outcome.seen}
        return reports.asides(found, gains, wish.command, each)

    return Experiment("asides", tuple(jobs), report, _segmentations)


def _segmentations(run: Path, device: str) -> dict[str, Any]:
    if run.name != "pure-bpe":
        return {}
    model = load(run, device=device)
    return model.segmentations(model.split_lines("valid"))


def minutes(wish: Wish) -> Experiment:
    """bpc against the minutes of training: `cpu`, and others in the same time."""
    datasets = wish.datasets or ("wikitext-2",)
    jobs = [
        _timed(system, dataset, time, len(datasets) > 1)
        for dataset in datasets
        for time in wish.minutes or MINUTES
        for system in wish.systems or ("cpu", *(COMPARED if time <= COMPARED_TO else ()))
    ]
    return Experiment("minutes", tuple(jobs), lambda found, _: reports.minutes(found, wish.command))


def _timed(system: str, dataset: str, time: float, named: bool) -> Job:
    """A training of so many minutes; its name is the same in all experiments, so that one folder
    does for them."""
    text = f"{dataset}-" if named else ""
    return Job(f"{system}-{text}{time:g}m", system, dataset, length=Length(budget=60 * time))


def adaptive(wish: Wish) -> Experiment:
    """What learning while reading is worth: `cpu` on each data set, tuned on its dev."""
    datasets = wish.datasets or ("wikitext-2",)
    for system in wish.systems:
        if SYSTEMS[recipes.get(system).system].sized_by != "vocab_size":
            raise ConfigError(f"{system} cannot learn while it reads: leave it out")
    if wish.minutes and (wish.each or wish.steps):
        raise ConfigError("give one of --minutes, --each and --steps")
    jobs = [
        Job(f"{system}-{dataset}", system, dataset)
        if time is None
        else _timed(system, dataset, time, len(datasets) > 1)
        for dataset in datasets
        for time in wish.minutes or (None,)
        for system in wish.systems or ("cpu",)
    ]
    return Experiment(
        "adaptive",
        tuple(jobs),
        lambda found, each: reports.adaptive(found, wish.command, each),
        _adapted,
    )


def _adapted(run: Path, device: str) -> dict[str, Any]:
    """A run in each mode; it is tuned if it was not yet.

    Dynamic evaluation is slow, and scores the test split alone, with the cache; `tune` has tried it
    on dev.
    """
    folder = RunFolder(run)
    if not (folder / "adaptive.json").is_file():
        tune_run(load(run, device=device))
    splits = [s for s in ("valid", "test") if s in folder.read_config()["data"]["splits"]]
    modes = {"static": None, "cache": Learning(cache=True)}
    tuned = folder.read_json("adaptive.json")
    if tuned["dynamic"] is not None:
        modes["cache+dynamic"] = Learning(cache=True, dynamic=True)
    return {
        "modes": {
            mode: {
                split: evaluation_of(run, split, learning=learning, device=device)
                for split in splits
                if split == "test" or learning is None or not learning.dynamic
            }
            for mode, learning in modes.items()
        },
        "tried": tuned.get("tried", []),
    }


def types_tokens(wish: Wish) -> Experiment:
    """Character n-grams counted over tokens and over types (paper, footnote)."""
    dataset = wish.datasets[0] if wish.datasets else "wikitext-2"

    def report(_: Sequence[Outcome], __: float | None) -> Report:
        found = corpus.find_dataset(dataset)
        words = ngram_ranks.count_words(found.split("train").lines(), found.format)
        ranks = [ngram_ranks.rank_ngrams(dataset, words, n) for n in (2, 3)]
        return reports.types_tokens(ranks, wish.command)

    return Experiment("types-tokens", (), report)


EXPERIMENTS: dict[str, Callable[[Wish], Experiment]] = {
    "table1": table1,
    "vocabulary": vocabulary,
    "mwc": mwc,
    "samples": samples,
    "asides": asides,
    "minutes": minutes,
    "adaptive": adaptive,
    "types-tokens": types_tokens,
}


def _size_setting(system: str, size: int) -> str:
    field = SYSTEMS[recipes.get(system).system].sized_by
    if field is None:
        raise ConfigError(f"{system} has no vocabulary whose size could be set: leave it out")
    return f"{field}={size}"
