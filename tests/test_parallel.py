"""Several processes train as one does: the same losses, the same checkpoints, one voice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch

from spellonce import recipes

from .conftest import TINY, Process, Start, call, make_text, tiny

NOISY = (
    "drop_embed=0.1", "drop_input=0.3", "drop_hidden=0.2", "drop_output=0.2", "drop_recurrent=0.3",
    "report_every=1", "lexicon_interval=3",
)  # fmt: skip
SPELLED = ("speller.drop=0.2", "speller.drop_vector=0.3", "alpha=1", "beta=1")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(make_text(300), encoding="utf-8")
    return path


def together(start: Start, n: int, *arguments: object) -> list[Process]:
    """A command in n processes that form a team, as torchrun would start them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n)}
    return [
        start(*arguments, env={**meeting, "RANK": str(i), "LOCAL_RANK": str(i)}) for i in range(n)
    ]


def curve(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line[key] for line in lines for key in ("train_bpc", "valid_bpc") if key in line]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "model.safetensors")


def check_same(run: Path, reference: Path) -> None:
    assert curve(run) == pytest.approx(curve(reference), rel=1e-4)
    found, expected = weights(run), weights(reference)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-2, atol=2e-4, msg=name)


@pytest.mark.parametrize(
    ("recipe", "n", "settings"),
    [
        ("full-small", 2, (*NOISY, *SPELLED)),
        ("full-small", 3, (*NOISY, "lexicon_batch=2", "lexicon_interval=1")),
        ("full-small", 2, (*NOISY, "lm.cuts=5,10,15,20,25,30,35,40,45,50,55", "lexicon_interval=1",
                           "window=4")),  # tails of which some rows are read, and no more
        ("full-small", 3, (*NOISY, *SPELLED, "optimizer=sgd", "learning_rate=3", "evaluate_every=6",
                           "nonmonotone=1", "clip_separately=no", "window_spread=3")),
        ("mixed-composed-small", 2, (*NOISY, *SPELLED, "nuclear_norm=0", "reach=9")),
        ("full-feedback-small", 2, (*NOISY, *SPELLED)),
        ("hclm-cache-small", 2, tuple(s for s in NOISY if "lexicon" not in s and "embed" not in s)),
        ("pure-char-small", 4, tuple(s for s in NOISY if "lexicon" not in s)),
        ("full-transformer-small", 2, ("transformer.drop=0.2", "report_every=1", "n_heads=4")),
    ],
)  # fmt: skip
def test_the_same_losses(
    text: Path, tmp_path: Path, start: Start, recipe: str, n: int, settings: tuple[str, ...]
) -> None:
    fields = recipes.get(recipe).fields()
    options = [
        part
        for setting in (*TINY, *settings)
        for name in [setting.partition("=")[0].rpartition(".")]
        if any(field == name[2] and name[0] in ("", part) for part, field in fields)
        for part in ("--set", setting)
    ]
    asked = ["train", text, "--recipe", recipe, "--steps", 12, *options]
    call(*asked, "--out", tmp_path / "one").ok()
    team = together(start, n, *asked, "--out", tmp_path / "team", "--json")
    results = [process.wait() for process in team]
    assert [(r.code, r.err) for r in results] == [(0, "")] * n
    assert json.loads(results[0].out)["steps"] == 12
    assert [r.out for r in results[1:]] == [""] * (n - 1), "one of them speaks"
    check_same(tmp_path / "team", tmp_path / "one")


def test_another_number_goes_on(text: Path, tmp_path: Path, start: Start) -> None:
    asked = ["train", text, "--steps", 25, *tiny(*NOISY, *SPELLED)]
    call(*asked, "--out", tmp_path / "one").ok()
    run = tmp_path / "run"
    for n in (2, 3, 1):
        team = together(start, n, *asked, "--out", run, "--resume") if n > 1 else []
        if n == 1:
            call("train", "--resume", "--out", run).ok()
            break
        steps = 5 if n == 2 else 12
        team[-1].wait_for(lambda: _steps_in(run) >= steps)  # noqa: B023
        team[1].kill(signal.SIGTERM)
        results = [process.wait() for process in team]
        if all(r.code == 0 for r in results):  # it was quicker
            break
        assert all(r.code == 1 for r in results), results
        assert "and saved" in results[0].err and results[0].err.count("\n") == 1
        assert [r.err for r in results[1:]] == [""] * (n - 1)
    check_same(run, tmp_path / "one")


def test_another_number_has_other_threads(text: Path, tmp_path: Path, start: Start) -> None:
    """What one process began on two threads goes on in two processes with one each."""
    run = tmp_path / "run"
    asked = ["train", text, "--steps", 30, *tiny(), "--out", run]
    alone = start(*asked, "--threads", 2)
    alone.wait_for(lambda: _steps_in(run) >= 5)
    alone.kill(signal.SIGTERM)
    if alone.wait().code == 0:  # it was quicker
        return
    call("train", "--resume", "--out", run, "--threads", 1).refused("another threads", 1)
    team = together(start, 2, "train", "--resume", "--out", run, "--threads", 1)
    assert [process.wait().code for process in team] == [0, 0]


def _steps_in(run: Path) -> int:
    log = run / "log.jsonl"
    return len(log.read_text().splitlines()) if log.is_file() else 0


def test_a_process_that_dies_ends_all_and_damages_nothing(
    text: Path, tmp_path: Path, start: Start
) -> None:
    asked = ["train", text, "--steps", 400, *tiny("report_every=1")]
    run = tmp_path / "run"
    team = together(start, 2, *asked, "--out", run)
    team[0].wait_for(lambda: _steps_in(run) >= 12)
    team[1].kill()
    result = team[0].wait()
    assert result.code == 1 and result.err.count("\n") == 1
    assert "another process of this training has ended" in result.err
    call("train", "--resume", "--out", run).ok()
    assert json.loads((run / "result.json").read_text())["steps"] == 400


def test_what_cannot_be_is_said_once(text: Path, tmp_path: Path, start: Start) -> None:
    for wrong, told in (
        (["--set", "n_embed=0"], "at least 1"),
        (tiny("rails=1"), "cannot share 1 rails"),
    ):
        asked = ["train", text, *wrong, "--steps", 2, "--out", tmp_path / "run"]
        team = together(start, 2, *asked)
        results = [process.wait() for process in team]
        assert all(r.code for r in results)
        assert told in results[0].err
    assert results[1].err == "", "of what all of them meet, one of them tells"


def test_a_budget_is_kept_by_all(text: Path, tmp_path: Path, start: Start) -> None:
    team = together(
        start, 2, "train", text, "--budget", "8s", *tiny(), "--out", tmp_path / "run", "--json"
    )
    results = [process.wait() for process in team]
    assert [r.code for r in results] == [0, 0], results
    assert 2 < json.loads(results[0].out)["seconds_in_all"] < 30


@pytest.mark.slow
def test_torchrun(text: Path, tmp_path: Path) -> None:
    asked = ["train", str(text), "--steps", "12", *tiny(*NOISY, *SPELLED)]
    call(*asked, "--out", tmp_path / "one").ok()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "spellonce",
         *asked, "--out", str(tmp_path / "team"), "--json"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 12
    check_same(tmp_path / "team", tmp_path / "one")


@pytest.fixture
def hosts() -> Iterator[list[tuple[str, str, str]]]:
    """(name, address, interface) of two hosts: name spaces with a cable between them."""
    names = [f"spellonce-{os.getpid()}-{i}" for i in (0, 1)]
    ends = [f"sp{os.getpid() % 100_000}{i}" for i in "ab"]
    made = [
        *[["ip", "netns", "add", name] for name in names],
        ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]],
        *[["ip", "link", "set", end, "netns", name] for end, name in zip(ends, names, strict=True)],
        *[
            ["ip", "-n", name, *command]
            for i, (end, name) in enumerate(zip(ends, names, strict=True))
            for command in (
                ["addr", "add", f"10.213.7.{i + 1}/24", "dev", end],
                ["link", "set", end, "up"],
                ["link", "set", "lo", "up"],
            )
        ],
    ]
    try:
        for command in made:
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no hosts can be made here: {error}")
        yield [
            (name, f"10.213.7.{i + 1}", end)
            for i, (name, end) in enumerate(zip(names, ends, strict=True))
        ]
    finally:
        for name in names:
            with suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
def test_two_hosts(hosts: list[tuple[str, str, str]], text: Path, tmp_path: Path) -> None:
    """A process on each, a disk that they share, and nothing else in common."""
    asked = ["train", str(text), "--steps", "12", *tiny(*NOISY, *SPELLED)]
    call(*asked, "--out", tmp_path / "one").ok()
    team = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run",
             "--nnodes", "2", "--node-rank", str(i), "--nproc-per-node", "1",
             "--master-addr", hosts[0][1], "--master-port", "29417", "-m", "spellonce", *asked,
             "--out", str(tmp_path / "team"), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": end},
        )
        for i, (name, _, end) in enumerate(hosts)
    ]  # fmt: skip
    told = [process.communicate(timeout=240) for process in team]
    assert [process.returncode for process in team] == [0, 0], told
    assert json.loads(told[0][0])["steps"] == 12 and told[1][0] == ""
    check_same(tmp_path / "team", tmp_path / "one")
