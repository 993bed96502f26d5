"""A run that was interrupted, however and however often, ends as if it had been left alone."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from spellonce import configuration, corpus, encoding, lexicon, recipes
from spellonce.files import to_bytes
from spellonce.plan import Plan
from spellonce.trainer import Trainer

from .conftest import TINY, Start, call, tiny

STEPS = 40
SETTINGS = {
    "adam": ["optimizer=adam", "report_every=1"],
    "sgd": [
        "optimizer=sgd", "learning_rate=40", "nonmonotone=1", "evaluate_every=3", "report_every=2",
    ],
}  # fmt: skip


def without_times(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in lines]


def check_same(run: Path, reference: Path) -> None:
    model, expected = (r / "model.safetensors" for r in (run, reference))
    assert model.read_bytes() == expected.read_bytes()
    assert without_times(run / "log.jsonl") == without_times(reference / "log.jsonl")
    assert [p.name for p in run.glob("checkpoint/*")] == [f"step-{STEPS:08d}"]
    assert {p.name for p in run.iterdir()} == {p.name for p in reference.iterdir()}


def train(text: Path, run: Path, optimizer: str) -> list[object]:
    return ["train", text, "--out", run, "--steps", STEPS, *tiny(*SETTINGS[optimizer])]


@pytest.fixture(scope="module")
def references(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were left alone."""
    runs = {}
    for optimizer in SETTINGS:
        runs[optimizer] = tmp_path_factory.mktemp("reference") / optimizer
        call(*train(tiny_text, runs[optimizer], optimizer)).ok()
    return runs


def test_the_references_are_what_they_should_be(references: dict[str, Path]) -> None:
    results = {name: json.loads((r / "result.json").read_text()) for name, r in references.items()}
    assert results["sgd"]["averaged"] and not results["adam"]["averaged"]
    assert results["adam"]["epochs"] > 1, "a new epoch begins on the way"
    lines = without_times(references["sgd"] / "log.jsonl")
    averaging = [line["averaging"] for line in lines if "averaging" in line]
    assert averaging[0] is False and averaging[-1] is True, "averaging begins on the way"


# --- killed processes -------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", SETTINGS)
def test_killed_and_stopped_again_and_again(
    optimizer: str, tiny_text: Path, tmp_path: Path, references: dict[str, Path], start: Start
) -> None:
    """kill -9, SIGTERM and SIGINT by turns, at moments that a generator chose."""
    run, rng = tmp_path / "run", random.Random(3)
    command = [*train(tiny_text, run, optimizer), "--resume"]
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        nth = rng.randint(17, 32)  # the first checkpoint of a process ends about there
        result = start(*command, signal_at=nth, number=number, folder=str(run)).wait()
        if number == signal.SIGKILL:
            assert (result.code, result.out, result.err) == (-number, "", "")
        else:
            result.refused(f"stopped by {number.name} at step ", 1)
        assert not (run / "result.json").exists(), "all of this happens on the way"
    call("train", "--resume", "--out", run).ok()
    check_same(run, references[optimizer])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves(
    number: signal.Signals,
    tiny_text: Path,
    tmp_path: Path,
    references: dict[str, Path],
    start: Start,
) -> None:
    """In the middle of nowhere, far from any checkpoint."""
    run = tmp_path / "run"
    command = [*train(tiny_text, run, "adam"), "--set", "checkpoint_every=1000"]
    result = start(*command, signal_at=30, number=number, folder=str(run)).wait()
    result.refused(f"stopped by {number.name} at step ", 1)
    assert f"and saved: continue with `spellonce train --resume --out {run}`" in result.err
    step = int(result.err.partition("at step ")[2].split()[0])
    assert [p.name for p in run.glob("checkpoint/*")] == [f"step-{step:08d}"]
    call("train", "--resume", "--out", run).ok()
    check_same(run, references["adam"])


@pytest.mark.parametrize("moment", [1, 4, 7, 10, 13, 16, 19, 22, 25, 28])
def test_killed_at_a_change_of_files(
    moment: int, tiny_text: Path, tmp_path: Path, references: dict[str, Path], start: Start
) -> None:
    """From the making of the folder to the first checkpoints."""
    check_killed_at(moment, "adam", tiny_text, tmp_path / "run", references, start)


@pytest.mark.parametrize("change", range(1, 8))
def test_killed_while_finishing(
    change: int, tmp_path: Path, references: dict[str, Path], start: Start
) -> None:
    """From the last checkpoint to `result.json`."""
    run = shutil.copytree(references["sgd"], tmp_path / "run")
    for name in ("result.json", "model.safetensors", "checksums.json"):
        (run / name).unlink()
    result = start("train", "--resume", "--out", run, signal_at=change, folder=str(run)).wait()
    assert result.code == -signal.SIGKILL, result
    call("train", "--resume", "--out", run).ok()
    check_same(run, references["sgd"])


def check_killed_at(
    moment: int,
    optimizer: str,
    text: Path,
    run: Path,
    references: dict[str, Path],
    start: Start,
) -> bool:
    """Whether there was such a moment before the run was over."""
    command = train(text, run, optimizer)
    result = start(*command, signal_at=moment, folder=str(run)).wait()
    if result.code != 0:
        assert result.code == -signal.SIGKILL, result
        # What was asked for is known from the config on, and need not be said again.
        known = (run / "config.json").exists()
        call(*(["train", "--resume", "--out", run] if known else [*command, "--resume"])).ok()
    check_same(run, references[optimizer])
    return result.code != 0


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_killed_at_every_change_of_files(
    optimizer: str, tiny_text: Path, tmp_path: Path, references: dict[str, Path], start: Start
) -> None:
    moment = 1
    while check_killed_at(moment, optimizer, tiny_text, tmp_path / str(moment), references, start):
        shutil.rmtree(tmp_path / str(moment))
        moment += 1
    assert moment > 80, "so many changes does a run make"


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_time(
    optimizer: str,
    seed: int,
    tiny_text: Path,
    tmp_path: Path,
    references: dict[str, Path],
    start: Start,
) -> None:
    """By the clock, not by what the process is doing."""
    run, rng = tmp_path / "run", random.Random(seed)
    command = [*train(tiny_text, run, optimizer), "--resume"]
    for _ in range(100):
        process = start(*command)
        time.sleep(rng.uniform(0, 0.6))
        process.kill(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        if process.wait().code == 0:
            break
    call(*command).ok()
    check_same(run, references[optimizer])


# --- the trainer itself -----------------------------------------------------------------------


@pytest.fixture(params=[*SETTINGS, "bfloat16"])
def make_trainer(request: pytest.FixtureRequest, tiny_text: Path, tmp_path: Path) -> Any:
    own = SETTINGS.get(request.param, ["optimizer=adam", "precision=bfloat16"])
    settings = [*TINY, *own, "rails=8", "window=20"]
    recipe = configuration.override(recipes.get("full"), settings)
    source = corpus.open_files([tiny_text]).split("train")
    fmt = recipe.data.apply(corpus.TextFormat())
    words = encoding.encode(source, fmt, tmp_path / "ids", vocab_size=60, min_char_count=1).lexicon
    ids = encoding.open_ids(tmp_path / "ids")

    def make() -> Trainer:
        network = recipes.build_model(recipe, words)
        network.initialise(0, words)
        return Trainer(recipe, network, words, ids, 0, Plan.of(16))

    return make


def advance(trainer: Trainer, n_steps: int) -> None:
    """Steps, with validation figures that only get worse (so SGD begins to average)."""
    for _ in range(n_steps):
        trainer.step()
        if trainer.evaluation_due():
            trainer.note_validation(100.0 + trainer.cursor.step)


def frozen(trainer: Trainer) -> tuple[bytes, str]:
    """A checkpoint as it is on disk."""
    return to_bytes(trainer.tensors()), json.dumps(trainer.state_dict())


def thawed(trainer: Trainer, checkpoint: tuple[bytes, str]) -> Trainer:
    trainer.restore(safetensors.torch.load(checkpoint[0]), json.loads(checkpoint[1]))
    return trainer


def test_every_step_can_be_continued(make_trainer: Any) -> None:
    trainer, checkpoints = make_trainer(), []
    for _ in range(16):
        checkpoints.append(frozen(trainer))
        advance(trainer, 1)
    assert trainer.cursor.epoch >= 1, "an epoch ends on the way"
    expected = frozen(trainer)
    for step, checkpoint in enumerate(checkpoints):
        again = thawed(make_trainer(), checkpoint)
        assert again.cursor.step == step
        assert frozen(again) == checkpoint, "what was read is what was written"
        advance(again, 16 - step)
        assert frozen(again) == expected, f"continued after {step} steps"


def test_averages_are_part_of_a_checkpoint(make_trainer: Any) -> None:
    trainer = make_trainer()
    advance(trainer, 10)
    active = trainer.recipe.training.optimizer == "sgd"
    assert trainer.averages.active is active
    again = thawed(make_trainer(), frozen(trainer))
    assert again.averages.n == trainer.averages.n and again.averages.active is active
    with trainer.averages.swapped_in(), again.averages.swapped_in():
        for name, parameter in trainer.parameters.items():
            assert torch.equal(parameter, again.parameters[name])


def test_a_checkpoint_at_the_beginning_of_an_epoch(make_trainer: Any) -> None:
    """There, all hidden states are one and the same zero."""
    trainer = make_trainer()
    while trainer.cursor.epoch == 0:
        advance(trainer, 1)
    assert trainer.cursor.window == 0
    again = thawed(make_trainer(), frozen(trainer))
    assert all(not part.any() for layer in again.state for part in layer)


def test_the_lexicon_of_a_run_is_the_one_it_began_with(references: dict[str, Path]) -> None:
    run = references["adam"]
    words = lexicon.load(run / "lexicon.tsv")
    assert lexicon.to_tsv(words).encode() == (run / "lexicon.tsv").read_bytes()
