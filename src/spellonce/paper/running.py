"""Runs an experiment: trains what it needs, looks into it, and writes its report anew each time.

Runs stand in `OUT/runs/NAME`, so whatever was interrupted goes on where it stopped. What came of a
run, and what an experiment saw when it looked into it, is kept in `OUT/outcomes`, too: where that
stands and the run is gone, it is not trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spellonce import __version__, configuration, corpus, plots
from spellonce.configuration import Recipe
from spellonce.errors import ConfigError, InterruptedTrainingError, RunError, SpellOnceError
from spellonce.evaluations import evaluation_of
from spellonce.paper.experiments import EXPERIMENTS, Experiment, Job, Wish
from spellonce.paper.markdown import plural
from spellonce.paper.outcomes import Outcome, keep, kept
from spellonce.preparation import Length, check_agreement, means_of, means_of_run
from spellonce.progress import Reporter
from spellonce.runs import RunFolder
from spellonce.training import train

SCORING_SHARE = 0.15
"""Of the time of a job, what is kept for scoring the test split."""


def plan(experiment: Experiment, wish: Wish) -> Length | None:
    """How long each training is; None: as its recipe says."""
    if wish.steps is not None:
        return Length(steps=wish.steps)
    if wish.each is not None:
        return Length(budget=wish.each)
    if wish.budget is not None and experiment.jobs:
        return Length(budget=wish.budget / len(experiment.jobs) * (1 - SCORING_SHARE))
    return None


def reproduce(
    name: str,
    wish: Wish,
    out: Path,
    *,
    device: str | None = None,
    threads: int | None = None,
    reporter: Reporter,
    told: Callable[[str], None] = lambda message: None,
) -> list[Path]:
    """Runs an experiment, or goes on with it; the files that were written.

    `told` hears how the time is divided, and of each training that is done.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(f"unknown experiment {name!r}: there are {', '.join(EXPERIMENTS)}")
    wish.check_used(name)
    plots.check(Path("figure.svg"))
    experiment = EXPERIMENTS[name](wish)
    length = plan(experiment, wish)
    on = _Machine(device, threads)
    tasks = [_task(job, experiment, wish, length, out, on) for job in experiment.jobs]
    told(_division([task.length for task in tasks if task.earlier is None]))
    each = length.budget if length else None
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for number, task in enumerate(tasks, 1):
        begin = f"{number} of {len(tasks)}: {task.job.name}"
        if task.earlier is not None:
            outcomes.append(task.earlier)
            told(f"{begin}, of which the figures were kept")
            continue
        try:
            outcomes.append(_made(task, experiment, on, reporter))
        except InterruptedTrainingError:
            raise
        except SpellOnceError as error:  # the others can be trained all the same
            failed.append(task.job.name)
            told(f"{begin} cannot be trained: {error}")
            continue
        both = [figures for figures in (outcomes[-1].valid, outcomes[-1].test) if figures]
        found = [f"{figures['bpc']:.3f} bpc on {figures['split']}" for figures in both]
        told(f"{begin}, {', '.join(found)}")
        experiment.report(outcomes, each).write(out)
    if failed:
        raise RunError(
            f"{' and '.join(failed)} could not be trained, see above; "
            f"the report in {out} is about the others"
        )
    return experiment.report(outcomes, each).write(out)


@dataclass(frozen=True)
class _Machine:
    """Where is trained."""

    device: str | None
    threads: int | None

    @property
    def place(self) -> str:
        return self.device or "cpu"


@dataclass(frozen=True)
class _Task:
    """A training of an experiment, with all that it needs."""

    job: Job
    dataset: corpus.Dataset
    recipe: Recipe
    length: Length | None
    folder: Path
    asked: dict[str, Any]
    """All that its outcome follows from."""
    kept_at: Path
    earlier: Outcome | None
    """What came of it before, where its run is gone."""


def _task(
    job: Job, experiment: Experiment, wish: Wish, length: Length | None, out: Path, on: _Machine
) -> _Task:
    dataset, length = corpus.find_dataset(job.dataset), job.length or length
    run = RunFolder(out / "runs" / job.name)
    means = means_of(dataset, length, on.place)
    if run.started:
        means = replace(means, bfloat16=means_of_run(run).bfloat16)
    recipe = job.recipe(wish.size, means)
    if run.started:  # what stands there already must be of the same kind
        check_agreement(
            run, run.read_config(), dataset, recipe, job.seed, on.device, on.threads, length
        )
    asked, kept_at = _asked(job, recipe, length, dataset), _kept_at(out, experiment, job)
    earlier = None if run.started else kept(asked, kept_at)
    return _Task(job, dataset, recipe, length, run.path, asked, kept_at, earlier)


def _made(task: _Task, experiment: Experiment, on: _Machine, reporter: Reporter) -> Outcome:
    """Trains, scores, looks into what came of it, and keeps that."""
    job = task.job
    try:
        result = train(
            task.dataset, task.recipe, task.folder, seed=job.seed, length=task.length, resume=True,
            device=on.device, threads=on.threads, reporter=reporter,
        )  # fmt: skip
    except InterruptedTrainingError:
        raise InterruptedTrainingError(
            f"stopped while {job.name} was trained, and saved: give the same command again to go on"
        ) from None
    reporter.status(f"scoring the test split with {job.name}")
    outcome = _outcome(job, task.recipe, task.folder, result, on.place)
    if experiment.look is not None:
        reporter.status(f"looking into {job.name}")
        outcome = replace(outcome, seen=experiment.look(task.folder, on.place))
    keep(outcome, task.asked, task.kept_at)
    return outcome


def _asked(job: Job, recipe: Recipe, length: Length | None, data: corpus.Dataset) -> dict[str, Any]:
    """All that an outcome follows from, but for the machine and how busy it was."""
    return {
        "recipe": configuration.to_json(recipe),
        "seed": job.seed,
        "length": None if length is None else asdict(length),
        "text": asdict(recipe.data.apply(data.format)),
        "spellonce": __version__,
        "data": {name: source.sha256() for name, source in data.splits.items()},
    }


def _kept_at(out: Path, experiment: Experiment, job: Job) -> Path:
    seen = f"-{experiment.name}" if experiment.look is not None else ""
    return out / "outcomes" / f"{job.name}{seen}.json"


def _outcome(
    job: Job, recipe: Recipe, folder: Path, result: dict[str, Any], device: str
) -> Outcome:
    config = RunFolder(folder).read_config()
    return Outcome(
        name=job.name,
        system=job.system,
        recipe=recipe.name,
        dataset=job.dataset,
        seed=job.seed,
        settings=job.settings,
        train={name: value for name, value in result.items() if name != "run"},
        data={name: value for name, value in config["data"].items() if name != "splits"},
        valid=evaluation_of(folder, "valid", device=device),
        test=evaluation_of(folder, "test", device=device)
        if "test" in config["data"]["splits"]
        else {},
        budget=config["length"]["budget"],
    )


def _division(lengths: Sequence[Length | None]) -> str:
    """How the time is divided."""
    if not lengths:
        return "nothing is trained for this"
    trainings = plural(len(lengths), "training")
    budgets = [length.budget for length in lengths if length and length.budget is not None]
    if budgets:
        each = " or ".join(_minutes(budget) for budget in sorted(set(budgets)))
        return (
            f"{trainings} of {each} each, validation included, and scoring the test split after "
            f"each: about {_minutes(sum(budgets) / (1 - SCORING_SHARE))} in all"
        )
    steps = {length.steps for length in lengths if length and length.steps is not None}
    if not steps:
        return f"{trainings}, each as long as its recipe says"
    return f"{trainings} of {plural(steps.pop(), 'step')} each, and scoring"


def _minutes(seconds: float) -> str:
    """
    >>> _minutes(75), _minutes(7300)
    ('1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h {whole % 3600 // 60} min"
