"""What the command line does, as functions: `import spellonce`.

spellonce.train("my-text.txt", "my-run", budget="20m")
spellonce.compare(["my-run", "other-run"])
spellonce.reproduce("table1", "results", each="8m", datasets=["wikitext-2"])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spellonce.errors import ConfigError

if TYPE_CHECKING:
    from spellonce.progress import Reporter

Duration = str | float
"""Seconds, or a text like `90s`, `30m`, `1h30m`."""


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `30m`, `1h30m`, `2h`, or a plain number.

    >>> parse_duration("1h30m"), parse_duration("90")
    (5400.0, 90.0)
    """
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text.strip())
    try:
        if match and any(match.groups()):
            hours, minutes, seconds = (float(part or 0) for part in match.groups())
            return 3600 * hours + 60 * minutes + seconds
    except ValueError:
        pass
    raise ConfigError(f"{text!r} is not a length of time: write 90s, 30m or 2h")


def _seconds(duration: Duration | None) -> float | None:
    return parse_duration(duration) if isinstance(duration, str) else duration


def train(
    files: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    out: str | PathLike[str] | None = None,
    *,
    dataset: str | None = None,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    budget: Duration | None = None,
    steps: int | None = None,
    resume: bool = False,
    force: bool = False,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    reporter: Reporter | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Trains a model on text files, a folder or a named data set, and returns what came of it.

    `settings` are changes of the recipe, `field=value`; `started` (on `time.monotonic`) is when the
    budget began to run.
    """
    named = [files] if isinstance(files, str | PathLike) else list(files)
    if out is None:
        raise ConfigError("where to? give the run a folder: --out RUN")
    if named and dataset:
        raise ConfigError("give files or a --dataset, not both")
    if not (named or dataset or resume):
        raise ConfigError("nothing to train on: name text files or a --dataset")
    seconds = _seconds(budget)
    from spellonce import corpus, recipes, training
    from spellonce.preparation import Length, means_of, means_of_run
    from spellonce.runs import RunFolder

    recipes.override(recipes.get(recipe or "small"), settings)  # what is wrong is said at once
    data = None
    if dataset is not None:
        data = corpus.find_dataset(dataset)
    elif named:
        data = corpus.open_files([Path(name) for name in named])
    length = Length(steps, seconds) if (steps, seconds) != (None, None) else None
    chosen = None
    if recipe is not None or settings:
        run = RunFolder(Path(out))
        means = means_of_run(run) if resume and run.started else means_of(data, length)
        chosen = recipes.override(recipes.get(recipe or "small", means), settings)
    return training.train(
        data, chosen, Path(out), seed=seed, length=length, resume=resume, force=force,
        device=device, threads=threads, tensorboard=tensorboard, reporter=reporter, started=started,
    )  # fmt: skip


def compare(
    runs: Sequence[str | PathLike[str]], split: str = "test", *, device: str = "cpu"
) -> dict[str, Any]:
    """Runs side by side, with a paired permutation test over articles for each pair."""
    from spellonce import comparison

    return comparison.compare([Path(run) for run in runs], split, device=device)


def reproduce(
    experiment: str,
    out: str | PathLike[str],
    *,
    budget: Duration | None = None,
    each: Duration | None = None,
    steps: int | None = None,
    datasets: Sequence[str] = (),
    size: str = "small",
    systems: Sequence[str] = (),
    sizes: Sequence[int] = (),
    seeds: int = 1,
    minutes: Sequence[float] = (),
    device: str | None = None,
    threads: int | None = None,
) -> list[Path]:
    """A table or figure of the paper; the files that were written."""
    from spellonce.paper.experiments import Wish
    from spellonce.paper.experiments import reproduce as run_experiment
    from spellonce.progress import Silent

    wish = Wish(
        datasets=tuple(datasets), size=size, systems=tuple(systems), sizes=tuple(sizes),
        seeds=seeds, minutes=tuple(minutes), budget=_seconds(budget),
        each=_seconds(each), steps=steps,
        command=f"spellonce.reproduce({experiment!r}, …)",
    )  # fmt: skip
    return run_experiment(
        experiment, wish, Path(out), device=device, threads=threads, reporter=Silent()
    )


def get_data(name: str) -> Path:
    """Fetches a known data set into the user's cache, if it is not there; its folder."""
    from spellonce import registry

    return registry.get(name).folder
