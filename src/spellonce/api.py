"""What the command line does, as functions: `import spellonce`.

spellonce.train("my-text.txt", "my-run", budget="20m")
spellonce.evaluate("my-run", "test", cache=True)
spellonce.compare(["my-run", "other-run"])
spellonce.report("my-run", "my-run.html")
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
    from spellonce import configuration, corpus, recipes, training
    from spellonce.configuration import Recipe
    from spellonce.preparation import Length, means_of, means_of_run
    from spellonce.recipes import Means
    from spellonce.runs import RunFolder

    run = RunFolder(Path(out))
    goes_on = resume and run.started

    def made(means: Means) -> Recipe:
        if goes_on and recipe is None:
            stored = configuration.from_json(run.read_config()["recipe"])
            return configuration.override(stored, settings)
        return configuration.override(recipes.get(recipe or "small", means), settings)

    made(Means())  # what is wrong is said at once
    data = None
    if dataset is not None:
        data = corpus.find_dataset(dataset)
    elif named:
        data = corpus.open_files([Path(name) for name in named])
    length = Length(steps, seconds) if (steps, seconds) != (None, None) else None
    chosen = None
    if recipe is not None or settings:
        chosen = made(means_of_run(run) if goes_on else means_of(data, length, device or "cpu"))
    return training.train(
        data, chosen, Path(out), seed=seed, length=length, resume=resume, force=force,
        device=device, threads=threads, tensorboard=tensorboard, reporter=reporter, started=started,
    )  # fmt: skip


def evaluate(
    run: str | PathLike[str] | None = None,
    split: str = "valid",
    *,
    text: str | PathLike[str] | None = None,
    cache: bool = False,
    dynamic: bool = False,
    renormalise: bool = False,
    reset: bool = False,
    segmentations: int = 0,
    device: str = "cpu",
) -> dict[str, Any]:
    """Bits per character of a split of the run's data, or of a text file: all figures of `eval`.

    `segmentations`: for pure-bpe, tokens on which what other segmentations are worth is estimated.
    """
    from spellonce import corpus
    from spellonce.adaptive import Learning
    from spellonce.evaluations import evaluate_and_store
    from spellonce.loading import load

    if text is None and split not in corpus.SPLITS:
        raise ConfigError(f"--split must be valid or test, not {split!r}")
    model = load(run if run is None else str(run), device=device)
    learning = Learning(cache, dynamic, renormalise, reset)
    lines = None if text is None else corpus.open_text(Path(text)).lines
    if lines is not None:
        result = model.evaluate(lines(), "text", learning)
    else:
        assert model.folder is not None
        result = evaluate_and_store(model, model.folder.path, split, learning)
    if segmentations:
        read = lines() if lines is not None else model.split_lines(split)
        result["segmentations"] = model.segmentations(read, n_tokens=segmentations)
    return result


def tune(run: str | PathLike[str], *, device: str = "cpu", **options: Any) -> dict[str, Any]:
    """Finds how a model best learns while it reads, and stores it with the run; all that was tried.

    The options are those of `tuning.tune_run`.
    """
    from spellonce.loading import load
    from spellonce.tuning import tune_run

    return tune_run(load(str(run), device=device), **options)


def compare(
    runs: Sequence[str | PathLike[str]],
    split: str = "test",
    *,
    cache: bool = False,
    dynamic: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """Runs side by side, with a paired permutation test over articles for each pair."""
    from spellonce import comparison
    from spellonce.adaptive import Learning
    from spellonce.loading import find_run

    learning = Learning(cache=cache, dynamic=dynamic)
    found = [find_run(str(run)) for run in runs]
    return comparison.compare(found, split, device=device, learning=learning)


def report(
    run: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    split: str = "valid",
    force: bool = False,
    device: str = "cpu",
) -> Path:
    """One page about a finished run, as an HTML file that needs nothing else; where it is.

    Without `out` it is `NAME.html` in the current folder. `force`: replaces a file that is there.
    """
    from spellonce import run_report

    path = None if out is None else Path(out)
    return run_report.write(str(run), path, split, force=force, device=device)


def compress(
    source: str | PathLike[str],
    out: str | PathLike[str],
    run: str | PathLike[str] | None = None,
    *,
    cache: bool = False,
    dynamic: bool = False,
    verify: bool = True,
) -> tuple[int, int]:
    """Compresses a file without loss; its size before and after."""
    from spellonce.adaptive import Learning
    from spellonce.codec import compress_file
    from spellonce.loading import load

    model = load(run if run is None else str(run))
    return compress_file(model, Path(source), Path(out), Learning(cache, dynamic), verify=verify)


def decompress(
    source: str | PathLike[str], out: str | PathLike[str], run: str | PathLike[str] | None = None
) -> int:
    """Undoes `compress`; the size of the file."""
    from spellonce.codec import decompress_file
    from spellonce.loading import load

    return decompress_file(load(run if run is None else str(run)), Path(source), Path(out))


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
    given = {
        "budget": budget, "each": each, "steps": steps, "datasets": list(datasets), "size": size,
        "systems": list(systems), "sizes": list(sizes), "seeds": seeds, "minutes": list(minutes),
    }  # fmt: skip
    from spellonce.paper.experiments import Wish
    from spellonce.paper.running import reproduce as run_experiment
    from spellonce.progress import Silent

    wish = Wish(
        datasets=tuple(datasets), size=size, systems=tuple(systems), sizes=tuple(sizes),
        seeds=seeds, minutes=tuple(minutes), budget=_seconds(budget),
        each=_seconds(each), steps=steps,
        command=_called("spellonce.reproduce", experiment, str(out), given),
    )  # fmt: skip
    return run_experiment(
        experiment, wish, Path(out), device=device, threads=threads, reporter=Silent()
    )


def _called(name: str, *arguments: Any) -> str:
    """A call as one would write it; of the options, those that were given.

    >>> _called("f", "a", {"b": 1, "c": None, "d": []})
    "f('a', b=1)"
    """
    *positional, options = arguments
    told = [repr(value) for value in positional]
    told += [f"{key}={value!r}" for key, value in options.items() if value not in (None, [])]
    return f"{name}({', '.join(told)})"


def get_data(name: str) -> Path:
    """Fetches a known data set into the user's cache, if it is not there; its folder."""
    from spellonce import registry

    return registry.get(name).folder
