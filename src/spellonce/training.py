"""From text to a finished run folder: prepare, plan, train, evaluate, save.

    text → ids and lexicon → plan of steps → steps with checkpoints → validation → model.safetensors

A budget is the time of the whole call. Speed is measured first, on a trainer that is thrown away,
and the plan that follows from it is corrected on the way (see `plan`); checkpoints hold the
corrections.
"""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import Any

from spellonce import configuration, encoding, evaluations, recipes, runtime
from spellonce import lexicon as lexicons
from spellonce.configuration import Recipe
from spellonce.corpus import Dataset
from spellonce.errors import ConfigError, DataError, InterruptedTrainingError, RunError
from spellonce.evaluation import figures
from spellonce.lexicon import Lexicon
from spellonce.mixture import Counted, count_all
from spellonce.model import Model
from spellonce.network import Network
from spellonce.parallel import Team, joined
from spellonce.plan import Budget, Plan
from spellonce.preparation import (
    Length,
    check_agreement,
    length_of,
    load_units,
    prepare,
    source_of,
    text_format,
)
from spellonce.progress import Reporter, Silent
from spellonce.runs import RunFolder
from spellonce.scoring import score_reading
from spellonce.speed import Speed, measure_speed
from spellonce.speller import Speller
from spellonce.systems import SYSTEMS
from spellonce.text import Reading, read
from spellonce.trainer import Trainer
from spellonce.two_level import TwoLevel


def train(
    dataset: Dataset | None,
    recipe: Recipe | None,
    out: Path,
    *,
    seed: int | None = None,
    length: Length | None = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    threads: int | None = None,
    tensorboard: bool = False,
    reporter: Reporter | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Trains a run, or continues one, and returns what `result.json` holds.

    With `resume`, the run's own data, recipe, seed, length and device are used where they are not
    given, and must agree where they are. `started` (on `time.monotonic`) is when the budget began
    to run.
    """
    started = time.monotonic() if started is None else started
    reporter = reporter or Silent()
    run = RunFolder(out)
    board = _board_maker() if tensorboard else None
    with joined(lambda: device or _device_of(run, resume)) as team, ExitStack() as opened:
        reporter = reporter if team.leads else Silent()

        def begin() -> dict[str, Any]:
            opened.enter_context(run.opened_for_training(resume=resume, force=force))
            if run.started:
                config = run.read_config()
                same = threads if config.get("processes", 1) == team.size else None
                check_agreement(run, config, dataset, recipe, seed, device, same, length)
                return config
            if dataset is None:
                raise ConfigError("nothing to train on: name text files or a --dataset")
            runtime.prepare(device or "cpu", threads)
            return prepare(
                run, dataset, recipe or recipes.full_small(), seed or 0, device or "cpu",
                length or Length(), reporter, team.size,
            )  # fmt: skip

        config = team.led(begin)
        if team.led(lambda: run.finished):
            reporter.status(f"{out} is finished already")
            return team.led(lambda: _stored_result(run))
        # Another number of processes wants other threads, and does not give the same bytes anyway.
        if config.get("processes", 1) == team.size:
            threads = int(config["threads"])
        return _Training(run, config, length, threads, board, reporter, started, team).go()


def _device_of(run: RunFolder, resume: bool) -> str:
    """Where a run computes that goes on, or a new one."""
    return str(run.read_config()["device"]) if resume and run.started else "cpu"


@contextmanager
def _signals(patience: float) -> Iterator[list[str]]:
    """Collects Ctrl-C and SIGTERM instead of dying from them; a second one kills.

    It must come later than after so many seconds: torchrun passes on what its processes have got.
    """
    caught: list[str] = []
    since = 0.0
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if not caught:
            caught.append(signal.Signals(number).name)
            since = time.monotonic()
        elif time.monotonic() >= since + patience:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Training:
    """One call of `train` on a prepared run."""

    def __init__(
        self,
        run: RunFolder,
        config: dict[str, Any],
        length: Length | None,
        threads: int | None,
        board: Any,
        reporter: Reporter,
        started: float,
        team: Team,
    ) -> None:
        self.run, self.config, self.started, self.team = run, config, started, team
        self.reporter = reporter
        self.length = length or length_of(config)
        self.make_board = board
        self.device = runtime.prepare(config["device"], threads)
        runtime.keep_memory()
        self.recipe = configuration.from_json(config["recipe"])
        self.seed = int(config["seed"])
        self.lexicon: Lexicon = lexicons.load(run / "lexicon.tsv")
        ids_path = run / "data" / "train.ids"
        n_ids = config["data"]["train_ids"]
        if not ids_path.is_file() or ids_path.stat().st_size != 4 * n_ids:
            raise RunError(f"{ids_path} is damaged: start again with --force")
        self.ids = encoding.open_ids(ids_path)
        self.units = load_units(run)
        self.counted: Counted | None = None
        if SYSTEMS[self.recipe.system].is_counted:
            reporter.status("counting")
            self.counted = count_all(
                self.ids, self.lexicon, self.recipe.ngrams, self.recipe.objective.unspelled
            )
        self.chars_per_id = config["data"]["train_chars"] / n_ids
        self.tokens_per_id = config["data"]["train_tokens"] / n_ids
        self._valid: Reading | None = None
        self.seconds = self.seconds_in_all = 0.0
        self.resumed = team.led((run / "plan.json").is_file)

    def go(self) -> dict[str, Any]:
        """Plans, trains, evaluates, saves; the result."""
        # What can fail comes before the plan, with which a run has begun.
        self.team.led(lambda: len(self._valid_reading()))
        network = recipes.build_model(self.recipe, self.lexicon, self.units, self.counted)
        network.initialise(self.seed, self.lexicon)
        network.to(self.device)
        self.team.spread(network.parameters())
        trainer = self._trainer(network, Plan.of(1))
        trainer.plan = self._plan(trainer)
        checkpoint = self.run.read_checkpoint()
        if checkpoint is not None:
            trainer.restore(*checkpoint)
        if self.team.led(lambda: trainer.cursor.step) != trainer.cursor.step:
            raise RunError(
                f"{self.run.path} does not have the same checkpoint everywhere: "
                "are all processes on one disk?"
            )
        self.team.led(lambda: self.run.rewind_log(trainer.cursor.step))
        self.seconds = _last_in_log(self.run, "seconds")
        self.seconds_in_all = _last_in_log(self.run, "seconds_in_all")
        board = None
        if self.make_board and self.team.leads:
            board = self.make_board(self.run / "tensorboard")
        try:
            with _signals(patience=2.0 if self.team.size > 1 else 0.0) as caught:
                self._steps(trainer, caught, board)
        finally:
            if board is not None:
                board.close()
        return self.team.led(lambda: self._finish(trainer))

    def _trainer(self, network: Network, plan: Plan) -> Trainer:
        return Trainer(self.recipe, network, self.lexicon, self.ids, self.seed, plan, self.team)

    # --- the plan -----------------------------------------------------------------------------

    def _plan(self, trainer: Trainer) -> Plan:
        """The number of steps, stored once; a budget may correct it on the way."""
        plan: dict[str, Any]
        if self.resumed:
            plan = self.run.read_json("plan.json")
        else:
            if self.length.budget is not None:
                plan = self._plan_for(self.length.budget, copy.deepcopy(trainer.network))
            elif self.length.steps is not None:
                plan = {"steps": self.length.steps}
            else:
                plan = {"steps": trainer.steps_of(self.recipe.training.epochs)}
            self.team.led(lambda: self.run.write_json("plan.json", plan))
        return Plan.of(int(plan["steps"]))

    def _plan_for(self, seconds: float, network: Network) -> dict[str, Any]:
        """Measures the speed of this machine and says how many steps fit into the budget.

        The network is spent afterwards. A rough measure will do: it is planned again on the way.
        """
        self.reporter.status("measuring speed")
        trainer = self._trainer(network, Plan.of(10**9))
        speed = measure_speed(trainer, min(max(0.02 * seconds, 1.0), 10.0))
        return self.team.led(lambda: self._plan_from(speed, trainer, seconds))

    def _plan_from(self, speed: Speed, trainer: Trainer, seconds: float) -> dict[str, Any]:
        per_step = speed.per_step(self.recipe.objective.lexicon_interval)
        evaluation, saving = self._seconds_after(trainer, seconds)
        if trainer.recipe.training.optimizer == "sgd" or trainer.recipe.training.evaluate_every:
            every = trainer.recipe.training.evaluate_every or len(trainer.rails.cuts(0)) - 1
            per_step += evaluation / every
        per_step += saving / 3 / self.recipe.training.checkpoint_every
        spent = time.monotonic() - self.started
        budget = Budget(seconds, per_step, after=evaluation + saving, step=0, spent=spent)
        if budget.steps() < 1:
            raise ConfigError(
                f"a budget of {seconds:.0f} s is too short: preparing and scoring alone take "
                f"{spent + budget.after:.0f} s here; give more, or --steps"
            )
        return {"steps": budget.steps(), **asdict(budget)}

    def _seconds_after(self, trainer: Trainer, budget: float) -> tuple[float, float]:
        """How long scoring the validation split will take, from a sample of it; and saving."""
        scored = self._valid_reading()
        seconds, sample = 0.0, 500
        for _ in range(2):
            begin = time.perf_counter()
            self._validate(trainer.network, scored.head(sample))
            seconds = (time.perf_counter() - begin) / min(sample, len(scored))
            sample = max(sample, int(min(0.01 * budget, 2.0) / seconds))
        saving = 0.5 + trainer.n_bytes / 100e6
        return seconds * len(scored), saving

    def _budget(self) -> Budget | None:
        """The budget that this call must keep: a resumed run keeps the plan it has."""
        plan = self.run.read_json("plan.json")
        if self.resumed or "seconds" not in plan:
            return None
        return Budget(**{f.name: plan[f.name] for f in fields(Budget)})

    # --- the steps ----------------------------------------------------------------------------

    def _steps(self, trainer: Trainer, caught: list[str], board: Any) -> None:
        """Takes the steps that are left."""
        config, cursor = self.recipe.training, trainer.cursor
        clock = time.monotonic() - self.seconds
        budget = self._budget()
        self.reporter.status("training")
        self.reporter.progress(cursor.step, trainer.plan.total, None)
        while cursor.step < (total := trainer.plan.total):
            trainer.step()
            bpc = None
            if trainer.evaluation_due():
                nats, valid_bpc = self.team.led(lambda: self._evaluate(trainer))
                trainer.note_validation(nats)
                if board is not None:
                    board.add_scalar("valid_bpc", valid_bpc, cursor.step)
            if budget and cursor.step < total and budget.is_due(trainer.plan, cursor.step):
                trainer.plan = self.team.led(lambda: self._revised(trainer, budget))
                budget.step, total = cursor.step, trainer.plan.total
            if cursor.step % config.report_every == 0 or cursor.step == total:
                line = trainer.report(self.chars_per_id)
                self.seconds = line["seconds"] = round(time.monotonic() - clock, 3)
                line["seconds_in_all"] = self._in_all()
                bpc = line["train_bpc"]
                if self.team.leads:
                    self.run.append_log(line)
                if board is not None:
                    for key, value in line.items():
                        if isinstance(value, float):
                            board.add_scalar(key, value, cursor.step)
            stopped = bool(self.team.sum([bool(caught)])[0])
            if stopped or cursor.step % config.checkpoint_every == 0 or cursor.step == total:
                self._save(trainer)
            self.reporter.progress(cursor.step, total, bpc)
            if stopped and cursor.step < total:
                by = caught[0] if caught else "a signal to another process"
                raise self.team.one_voice(InterruptedTrainingError(
                    f"stopped by {by} at step {cursor.step} of {total}, and saved: "
                    f"continue with `spellonce train --resume --out {self.run}`"
                ))  # fmt: skip
        self.seconds = round(time.monotonic() - clock, 3)

    def _save(self, trainer: Trainer) -> None:
        """Writes a checkpoint."""
        tensors, state = trainer.tensors(), trainer.state_dict()
        step = trainer.cursor.step
        self.team.led(lambda: self.run.write_checkpoint(step, tensors, state))

    def _evaluate(self, trainer: Trainer) -> tuple[float, float]:
        """(nats, bpc) of the validation split on the way."""
        self.reporter.status("validating")
        with trainer.averages.swapped_in():
            nats, valid = self._validate(trainer.network, self._valid_reading())
        self.run.append_log({"step": trainer.cursor.step, "valid_bpc": valid["bpc"]})
        self.reporter.status("training")
        return nats, float(valid["bpc"])

    def _revised(self, trainer: Trainer, budget: Budget) -> Plan:
        """The plan as it must be to keep the budget."""
        step = trainer.cursor.step
        if trainer.plan.place(step) > 0.75:  # before, it would not change much
            budget.after = sum(self._seconds_after(trainer, budget.seconds))
        return budget.revise(trainer.plan, step, time.monotonic() - self.started)

    def _in_all(self) -> float:
        """Seconds since the budget began to run, those of earlier calls included."""
        return round(self.seconds_in_all + time.monotonic() - self.started, 3)

    # --- the end ------------------------------------------------------------------------------

    def _finish(self, trainer: Trainer) -> dict[str, Any]:
        """Validates the final weights, and writes them, their figures and the result."""
        self.reporter.status("validating")
        fmt = text_format(self.config)
        model = Model(trainer.network, self.lexicon, self.recipe, fmt, self.config)
        with trainer.averages.swapped_in():
            trainer.settle()
            begin = time.perf_counter()
            scores = score_reading(trainer.network, self.lexicon, self._valid_reading())
            valid = model.report(scores, "valid", time.perf_counter() - begin)
            trainer.check_finite(valid["bpc"])
            arrays = None if self.counted is None else self.counted.arrays()
            scale = None
            if isinstance(trainer.network, TwoLevel):
                scale = trainer.gradient_scale()
            self.run.write_model(trainer.parameters, arrays, scale)
            ranks = [s.ranks() for s in trainer.network.spellers if isinstance(s, Speller)]
        cursor = trainer.cursor
        result = {
            "recipe": self.recipe.name,
            "steps": cursor.step,
            "plan": trainer.plan.marks,
            "tokens": round(cursor.tokens * self.tokens_per_id),
            "epochs": round(trainer.epochs_done(), 3),
            "seconds": self.seconds,
            "tokens_per_second": round(
                cursor.tokens * self.tokens_per_id / max(self.seconds, 1e-3), 1
            ),
            "valid_bpc": valid["bpc"],
            "valid": {k: v for k, v in figures(scores).items() if k != "bpc"},
            "speller_ranks": ranks,
            "averaged": trainer.averages.active,
            "peak_rss_mb": runtime.peak_rss_mb(),
            "seconds_in_all": self._in_all(),
            "run": str(self.run),
        }
        self.run.append_log({"step": cursor.step, "valid_bpc": valid["bpc"], "final": True})
        evaluations.store(self.run, "valid", valid)
        self.run.write_json("result.json", result)  # the last of all: now the run is finished
        return result

    def _valid_reading(self) -> Reading:
        if self._valid is None:
            fmt = text_format(self.config)
            self._valid = read(source_of(self.config, "valid").lines(), fmt)
            if not len(self._valid):
                raise DataError("the validation split has no tokens")
        return self._valid

    def _validate(self, network: Network, reading: Reading) -> tuple[float, dict[str, Any]]:
        scores = score_reading(network, self.lexicon, reading)
        return float(scores.nats.sum()), figures(scores)


def _board_maker() -> Any:
    """What makes a TensorBoard writer, if that is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "TensorBoard is not installed: pip install 'spellonce[tensorboard]'"
        ) from None
    return lambda folder: SummaryWriter(str(folder))


def _stored_result(run: RunFolder) -> dict[str, Any]:
    result = run.read_json("result.json")
    expected = {"recipe", "steps", "epochs", "seconds", "tokens_per_second", "valid_bpc", "run"}
    if not expected <= result.keys():
        raise RunError(f"{run / 'result.json'} is damaged: remove it, and --resume makes it again")
    return result


def _last_in_log(run: RunFolder, name: str) -> float:
    """The latest figure of that name in the log of a run; 0 where there is none."""
    figures = (line.get(name) for line in run.read_log())
    return float(max((f for f in figures if isinstance(f, int | float)), default=0.0))
