"""What goes wrong is said in one line and damages nothing; what is only odd works.

Bad input, damaged runs, full disks, locks, and texts that nobody writes.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spellonce
from spellonce import configuration, corpus, recipes, training
from spellonce.errors import RunError
from spellonce.evaluation import escape_token
from spellonce.trainer import Trainer

from .conftest import TINY, Start, call, make_text, snapshot, tiny


@pytest.fixture
def world(
    tmp_path: Path,
    tiny_text: Path,
    tiny_run: Path,
    stopped_run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A folder to work in, with things that a command can stumble over."""
    shutil.copytree(tiny_run, tmp_path / "run")
    shutil.copytree(stopped_run, tmp_path / "stopped")
    files = {
        "text.txt": tiny_text.read_bytes(),
        "empty.txt": b"",
        "blank.txt": b"  \n\t\n \r\n" * 50,
        "letter.txt": b"a",
        "latin1.txt": "Größe und Maß\n".encode("latin-1") * 50,
        "latin1-at-the-end.txt": tiny_text.read_bytes() + b"\xe9\n",
        "no-splits/other.md": b"text\n",
        "no-valid/train.txt": b"text\n",
        "bad-toml/train.txt": b"some text\n",
        "bad-toml/valid.txt": b"some text\n",
        "bad-toml/dataset.toml": b"tokenization = [",
        "mine/notes.txt": b"precious",
        "mine-inside/config.json": b"{}",
        "mine-inside/data/corpus.txt": b"precious",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPELLONCE_DATA", str(tmp_path))
    return tmp_path


def check_refused(world: Path, command: list[str], telling: str, *codes: int) -> None:
    before = snapshot(world)
    call(*command).refused(telling, *codes)
    after = snapshot(world)
    after.pop("out/lock", None)
    assert after.keys() == before.keys(), "no files come or go"
    assert after == before


WRONG_USAGE = [
    ("train text.txt", "--out"),
    ("train --out out", "nothing to train on"),
    ("train --out run --force", "nothing to train on"),
    ("train text.txt --out out --dataset no-valid", "not both"),
    (
        "train text.txt --out out --recipe huge",
        "unknown recipe 'huge': `spellonce recipes` lists them",
    ),
    ("train text.txt --out out --steps 0", "--steps must be at least 1"),
    ("train text.txt --out out --steps -3", "--steps must be at least 1"),
    ("train text.txt --out out --steps many", "--steps"),
    ("train text.txt --out out --steps 2 --budget 10s", "--steps or --budget, not both"),
    ("train text.txt --out out --budget soon", "'soon' is not a length of time"),
    ("train text.txt --out out --budget 0", "--budget must be more than nothing"),
    ("train text.txt --out out --budget -5m", "'-5m' is not a length of time"),
    ("train text.txt --out out --budget nan", "'nan' is not a length of time"),
    ("train text.txt --out out --seed -1", "--seed"),
    ("train text.txt --out out --seed 99999999999999999999999", "--seed"),
    ("train text.txt --out out --frobnicate", "--frobnicate"),
    ("frobnicate", "frobnicate"),
    ("train text.txt --out out --device abacus", "device 'abacus' cannot be used"),
    ("train text.txt --out out --device cuda:99", "device 'cuda:99' cannot be used"),
    ("train text.txt --out run --force --device abacus", "device 'abacus' cannot be used"),
    ("eval run --device abacus", "device 'abacus' cannot be used"),
    ("eval run --device meta", "device 'meta' cannot be used"),
    ("eval run --device hpu", "device 'hpu' cannot be used"),
    ("eval run --split holdout", "--split must be valid or test, not 'holdout'"),
    ("score -m run text.txt --format xml", "--format must be tsv or jsonl or html, not 'xml'"),
    ("sample -m run -n 0", "-n must be at least 1"),
    ("sample -m run -T -1", "temperature"),
    ("sample -m run -T nan", "temperature"),
    ("spell -m run", "--like"),
    ("spell -m run --like sel --context sel", "--like"),
    ("spell -m run sel", "--like"),
    ("spell -m run --like sel --min-length 9 --max-length 3", "lengths from 9 to 3"),
    ("spell -m run --like sel --min-length 0", "lengths from 0 to 30"),
    ("spell -m run --like sel -n 0", "-n must be at least 1"),
    ("recipes huge", "unknown recipe 'huge'"),
]
CANNOT_BE_DONE = [
    ("train missing.txt --out out", "missing.txt: No such file"),
    ("train empty.txt --out out", "empty.txt is empty"),
    ("train blank.txt --out out", "blank.txt has only white space"),
    ("train blank.txt --out out --set tokenization=spaces", "blank.txt has only white space"),
    ("train letter.txt --out out", "letter.txt is too short"),
    ("train latin1.txt --out out --set min_char_count=1", "latin1.txt is not valid UTF-8 (byte 2)"),
    ("train latin1-at-the-end.txt --out out --set min_char_count=1", "not valid UTF-8"),
    ("train no-splits --out out", "no-splits has neither train.txt nor any other"),
    ("train no-valid --out out", "no-valid has no valid.txt"),
    ("train bad-toml --out out", "dataset.toml"),
    ("train text.txt no-splits --out out", "no-splits is a folder"),
    ("train --dataset nowhere --out out", "no data set 'nowhere'"),
    ("train /dev/null --out out", "/dev/null"),
    ("train text.txt --out run", "run holds a run already: add --resume"),
    ("train text.txt --out stopped", "stopped holds a run already: add --resume"),
    ("train text.txt --out mine", "mine holds other things (notes.txt)"),
    ("train text.txt --out mine --force", "mine holds other things (notes.txt)"),
    ("train text.txt --out mine --resume", "mine holds other things (notes.txt)"),
    ("train text.txt --out mine-inside --force", "holds other things (data/corpus.txt)"),
    ("train text.txt --out text.txt", "text.txt is a file"),
    ("train text.txt --out text.txt/run", "cannot write text.txt/run"),
    (f"train text.txt --out {'long' * 100}", "File name too long"),
    # A run that was to be replaced comes back.
    ("train blank.txt --out run --force", "only white space"),
    ("train latin1-at-the-end.txt --out run --force --set min_char_count=1", "not valid UTF-8"),
    ("eval nowhere", "there is no run nowhere"),
    ("eval mine", "mine is not a run"),
    ("eval text.txt", "text.txt"),
    ("eval stopped", "stopped is not finished: continue it with train --resume"),
    (f"eval {'long' * 100}", "File name too long"),
    ("eval run --text missing.txt", "missing.txt: No such file"),
    ("eval run --text empty.txt", "empty.txt is empty"),
    ("eval run --text latin1.txt", "latin1.txt is not valid UTF-8"),
    ("score -m run latin1.txt", "latin1.txt is not valid UTF-8"),
    ("score -m run text.txt latin1.txt missing.txt", "missing.txt: No such file"),
    ("spell -m run --like sel --min-length 400 --max-length 500", "no word was found"),
]


@pytest.mark.parametrize(("command", "telling"), WRONG_USAGE)
def test_wrong_usage(world: Path, command: str, telling: str) -> None:
    check_refused(world, shlex.split(command), telling, 2)


@pytest.mark.parametrize(("command", "telling"), CANNOT_BE_DONE)
def test_what_cannot_be_done(world: Path, command: str, telling: str) -> None:
    check_refused(world, shlex.split(command), telling, 1)


@pytest.mark.parametrize(
    ("setting", "telling"),
    [
        ("vocab_sise=3", "vocab_sise: full-small has no such field; did you mean vocab_size?"),
        ("lm.vocab_size=3", "lm.vocab_size: full-small has no such field"),
        ("frobnicate=3", "frobnicate: full-small has no such field"),
        ("vocab_size", "write field=value"),
        ("n_hidden=3", "lm.n_hidden or speller.n_hidden"),
        ("vocab_size=abc", "'abc' is not a whole number"),
        ("vocab_size=2.5", "'2.5' is not a whole number"),
        ("vocab_size=-1", "vocab_size must not be negative"),
        ("learning_rate=fast", "'fast' is not a number"),
        ("learning_rate=0", "learning_rate must be a number above 0"),
        ("learning_rate=nan", "'nan' is not a number"),
        ("clip=inf", "'inf' is not a number"),
        ("proximal=perhaps", "'perhaps' is neither true nor false"),
        ("optimizer=foo", "optimizer must be sgd or adam, not 'foo'"),
        ("tokenization=bpe", "tokenization must be one of reversible, spaces"),
        ("lm.cuts=10,x", "'x' is not a whole number"),
        ("lm.cuts=1", "lm.cuts must be 2 or more"),
        ("lm.drop_input=nan", "'nan' is not a number"),
        ("speller.drop=1", "speller.drop must be at least 0 and below 1"),
        ("rails=0", "rails must be at least 1"),
        ("checkpoint_every=0", "checkpoint_every must be at least 1"),
        ("alpha=-1", "alpha must not be negative"),
        ("window_spread=nan", "window_spread"),
        ("window_spread=inf", "window_spread"),
        ("weight_decay=nan", "weight_decay"),
        ("nuclear_norm=nan", "nuclear_norm"),
        ("nuclear_norm=inf", "nuclear_norm"),
        ("alpha=nan", "alpha"),
        ("beta=inf", "beta"),
    ],
)
def test_wrong_settings(world: Path, setting: str, telling: str) -> None:
    command = ["train", "text.txt", "--out", "out", "--steps", "2", *tiny(setting)]
    check_refused(world, command, telling, 2)


def test_a_model_that_does_not_fit_into_memory(world: Path) -> None:
    command = ["train", "text.txt", "--out", "out", "--steps", 2, *tiny("n_embed=1000000000000")]
    call(*command).refused("out of memory", 1)


@pytest.mark.parametrize("command", ["tokenize", "detokenize"])
def test_invalid_utf8_on_stdin(command: str) -> None:
    call(command, stdin=b"caf\xe9\n").refused("not valid UTF-8 (line 1)", 1)


def test_invalid_utf8_to_be_scored(tiny_run: Path) -> None:
    call("score", "-m", tiny_run, stdin=b"fine\nfine\ncaf\xe9\n").refused("UTF-8 (line 3)", 1)


def test_a_text_that_has_changed_is_not_the_split_any_more(tmp_path: Path, tiny_text: Path) -> None:
    text = shutil.copy(tiny_text, tmp_path / "t.txt")
    call("train", text, "--out", tmp_path / "run", "--steps", 1, *tiny()).ok()
    text.write_bytes(tiny_text.read_bytes()[::-1])
    call("eval", tmp_path / "run").refused("its checksum differs", 1)
    text.unlink()
    call("eval", tmp_path / "run").refused("is gone: put it back", 1)


def test_a_folder_that_cannot_be_written(tmp_path: Path, tiny_text: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only for root")
    (tmp_path / "closed").mkdir(mode=0o500)
    command = ["train", tiny_text, "--out", tmp_path / "closed" / "run"]
    call(*command).refused("Permission denied", 1)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_folder_that_cannot_be_made(tiny_text: Path) -> None:
    call("train", tiny_text, "--out", "/proc/run").refused("cannot write /proc/run", 1)


# --- damage -----------------------------------------------------------------------------------


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def emptied(data: bytes) -> bytes:
    return b""


def from_the_future(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "format": 999}).encode()


def without_recipe(data: bytes) -> bytes:
    return json.dumps({k: v for k, v in json.loads(data).items() if k != "recipe"}).encode()


def not_json(data: bytes) -> bytes:
    return b"recipe: small\n"


def a_list(data: bytes) -> bytes:
    return b"[]"


Damage = Callable[[bytes], bytes]
TENSORS, STATE, SUMS = (
    f"checkpoint/step-00000010/{name}"
    for name in ("tensors.safetensors", "state.json", "checksums.json")
)


@pytest.mark.parametrize(
    ("part", "name"), [("lm", "n_hidden"), ("lm", "n_embed"), ("speller", "n_hidden")]
)
@pytest.mark.parametrize("size", [10**5, 10**9, 10**15, 10**30, -1, 0.5, "16", None])
def test_absurd_sizes_in_a_config_are_refused(
    world: Path, part: str, name: str, size: object
) -> None:
    path = world / "run" / "config.json"
    config = json.loads(path.read_text())
    assert name in config["recipe"][part]
    config["recipe"][part][name] = size
    path.write_text(json.dumps(config))
    check_refused(world, ["sample", "-m", "run", "-n", "3"], "", 1)


def changed_config(world: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = world / "run" / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "telling"),
    [
        (lambda c: c["recipe"].update(system="pure-char"), "needs its units.tsv"),
        (lambda c: c["recipe"].update(system="mixed", ngrams={}), "needs its ngrams.safetensors"),
        (lambda c: c["text"].update(unk=None), "the text in config.json is damaged"),
        (lambda c: c["text"].update(colour="red"), "the text in config.json is damaged"),
        (lambda c: c.update(seed=int("9" * 4000)), ""),
    ],
)
def test_odd_configs_are_refused(
    world: Path, change: Callable[[dict[str, Any]], object], telling: str
) -> None:
    changed_config(world, change)
    result = call("sample", "-m", world / "run", "-n", "3")
    if telling:
        result.refused(telling, 1)
    else:
        result.ok()


def test_numbers_of_any_length_in_a_config(world: Path) -> None:
    path = world / "run" / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": ' + "9" * 5000))
    check_refused(world, ["sample", "-m", "run", "-n", "3"], "config.json is damaged", 1)


def test_a_link_that_leads_to_itself(world: Path) -> None:
    (world / "run" / "loop").symlink_to(world / "run" / "loop")
    check_refused(world, ["eval", "run"], "leads out of the run", 1)


def test_a_pipe_in_a_run_is_not_waited_for(world: Path) -> None:
    (world / "run" / "units.tsv").unlink(missing_ok=True)
    os.mkfifo(world / "run" / "units.tsv")
    result = call("eval", world / "run")
    assert result.code == 1 and "units.tsv is neither a file nor a folder" in result.err


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b'{"step": "x", "seconds": "y"}\n', b"[]\n{"])
def test_a_log_with_something_else_in_it(world: Path, line: bytes) -> None:
    with (world / "stopped" / "log.jsonl").open("ab") as file:
        file.write(line)
    call("train", "--resume", "--out", world / "stopped").ok()
    ours = json.loads((world / "stopped" / "log.jsonl").read_text().splitlines()[-1])
    assert ours["final"]


@pytest.mark.parametrize("name", ["model.safetensors", "lexicon.tsv", "data"])
def test_nothing_outside_a_run_is_read(world: Path, name: str) -> None:
    """By a link, that is; links within it are as good as files."""
    path = (world / "run" / name).rename(world / "elsewhere")
    (world / "run" / name).symlink_to(path)
    check_refused(world, ["eval", "run"], f"{name} is a link that leads out of the run", 1)
    (world / "run" / name).unlink()
    (world / "run" / name).symlink_to(path.rename(world / "run" / f"real-{name}"))
    call("sample", "-m", world / "run", "-n", 3).ok()


@pytest.mark.parametrize(
    ("name", "damage", "telling"),
    [
        *[("model.safetensors", d, "model.safetensors is damaged") for d in (truncated, flipped)],
        *[("lexicon.tsv", d, "lexicon.tsv is damaged") for d in (truncated, flipped, emptied)],
        ("checksums.json", flipped, "is damaged"),
        ("checksums.json", emptied, "checksums.json is damaged"),
        ("config.json", from_the_future, "format version 999"),
        ("config.json", without_recipe, "config.json is damaged: its recipe is missing"),
        *[("config.json", d, "config.json is damaged") for d in (truncated, not_json, a_list)],
    ],
)
@pytest.mark.parametrize("command", ["eval run", "sample -m run -n 3"])
def test_damaged_runs_are_not_loaded(
    world: Path, name: str, damage: Damage, telling: str, command: str
) -> None:
    path = world / "run" / name
    path.write_bytes(damage(path.read_bytes()))
    check_refused(world, shlex.split(command), telling, 1)


@pytest.mark.parametrize(
    ("name", "damage", "telling"),
    [
        *[(TENSORS, d, "is damaged (tensors.safetensors)") for d in (truncated, flipped, emptied)],
        *[(STATE, d, "is damaged (state.json)") for d in (truncated, flipped, emptied)],
        *[(SUMS, d, "is damaged") for d in (truncated, flipped, emptied)],
        *[("lexicon.tsv", d, "lexicon.tsv is damaged") for d in (truncated, flipped)],
        *[("data/train.ids", d, "train.ids is damaged") for d in (truncated, flipped)],
        *[("plan.json", d, "plan.json is damaged") for d in (truncated, flipped)],
        *[("config.json", d, "config.json is damaged") for d in (truncated, not_json)],
        ("config.json", from_the_future, "format version 999"),
    ],
)
def test_damaged_runs_are_not_resumed(world: Path, name: str, damage: Damage, telling: str) -> None:
    path = world / "stopped" / name
    path.write_bytes(damage(path.read_bytes()))
    check_refused(world, ["train", "--out", "stopped", "--resume"], telling, 1)


@pytest.mark.parametrize("name", [TENSORS, STATE, SUMS, "lexicon.tsv", "plan.json", "config.json"])
def test_runs_with_a_file_missing_are_not_resumed(world: Path, name: str) -> None:
    (world / "stopped" / name).unlink()
    telling = "checkpoint" if name.startswith("checkpoint") else name
    check_refused(world, ["train", "--out", "stopped", "--resume"], telling, 1)


# --- disks and pipes --------------------------------------------------------------------------


@pytest.mark.parametrize("largest_file", [1_000, 50_000])
def test_a_full_disk(
    tmp_path: Path, tiny_text: Path, tiny_run: Path, start: Start, largest_file: int
) -> None:
    """While preparing (train.ids) and at the first checkpoint; then there is space."""
    command = ["train", tiny_text, "--out", tmp_path / "run", "--steps", 30, *tiny()]
    result = start(*command, largest_file=largest_file).wait()
    result.refused("cannot write", 1)
    assert "too large" in result.err, "that is how a limit says that the disk is full"
    assert not [*tmp_path.rglob("*partial*")]
    call(*command, "--resume").ok()
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert model == (tiny_run / "model.safetensors").read_bytes()


def test_a_full_disk_at_a_later_checkpoint(
    tmp_path: Path, stopped_run: Path, tiny_run: Path, start: Start
) -> None:
    run = shutil.copytree(stopped_run, tmp_path / "run")
    before = snapshot(run / "checkpoint")
    result = start("train", "--resume", "--out", run, largest_file=50_000).wait()
    result.refused("cannot write", 1)
    assert snapshot(run / "checkpoint") == before
    call("train", "--resume", "--out", run).ok()
    assert snapshot(run)["model.safetensors"] == snapshot(tiny_run)["model.safetensors"]


def spellonce_process(*arguments: str, **pipes: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spellonce", *arguments]
    return subprocess.Popen(command, **pipes)  # type: ignore[call-overload, no-any-return]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("command", "n_lines"),
    [("tokenize", 1), ("tokenize", 10_000), ("detokenize", 1), ("--help", 0), ("recipes full", 0)],
)
def test_stdout_that_is_full(command: str, n_lines: int) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        process = spellonce_process(
            *command.split(), stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE
        )
        _, err = process.communicate(b"some words, in lines\n" * n_lines)
    assert process.returncode == 1
    assert err == b"spellonce: cannot write: No space left on device\n"


def test_a_reader_that_goes_away() -> None:
    process = spellonce_process(
        "tokenize", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"line\n")
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


# --- folders and locks ------------------------------------------------------------------------


def test_one_training_at_a_time(tmp_path: Path, tiny_text: Path, start: Start) -> None:
    run = tmp_path / "run"
    command = ["train", tiny_text, "--out", run, *tiny("checkpoint_every=1")]
    first = start(*command, "--steps", 100_000)
    first.wait_for(lambda: any(run.glob("checkpoint/step-*")))
    for more in ([], ["--resume"], ["--force"]):
        call(*command, *more).refused("another training is writing to", 1)
    first.kill(signal.SIGKILL)
    assert first.wait().code == -signal.SIGKILL
    assert (run / "checkpoint").exists()
    call(*command, "--steps", 2, "--force").ok()


def test_resume_without_a_run_starts_afresh(
    tmp_path: Path, tiny_text: Path, tiny_run: Path
) -> None:
    command = ["train", tiny_text, "--out", tmp_path / "run", "--steps", 30, "--resume", *tiny()]
    call(*command).ok()
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert model == (tiny_run / "model.safetensors").read_bytes()


def test_resume_of_a_finished_run_changes_nothing(world: Path) -> None:
    before = snapshot(world / "run")
    out = call("train", "--out", "run", "--resume", "--json").ok()
    assert json.loads(out) == json.loads(before["result.json"])
    assert snapshot(world / "run") == before


def test_force_replaces(world: Path) -> None:
    before = snapshot(world / "run")
    call("train", "text.txt", "--out", "run", "--force", "--steps", 7, *tiny()).ok()
    after = snapshot(world / "run")
    assert json.loads(after["result.json"])["steps"] == 7
    assert [name for name in after if name.startswith("checkpoint/step-") and "30" in name] == []
    assert after["model.safetensors"] != before["model.safetensors"]
    trained = {name for name in before if name != "evaluations/test.json"}
    assert after.keys() == {name.replace("-00000030", "-00000007") for name in trained}


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        (["--seed", "1"], "another seed (it began with 0)"),
        (["--recipe", "full"], "another recipe or settings (it began as full-small)"),
        (["--set", "vocab_size=61"], "another recipe or settings"),
        (["text.txt"], "another text (it began on tiny)"),
        (["text.txt", "--seed", "1"], "seed (it began with 0) and text"),
    ],
)
def test_resume_with_something_else(world: Path, options: list[str], telling: str) -> None:
    check_refused(world, ["train", "--out", "stopped", "--resume", *options], telling, 1)


def test_resume_with_the_same_again(world: Path, tiny_text: Path) -> None:
    command = ["train", tiny_text, "--out", "stopped", "--resume", "--seed", 0, *tiny()]
    assert json.loads(call(*command, "--json").ok())["steps"] == 30


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=[] if moment % 3 == 1 else pytest.mark.slow)
        for moment in range(1, 40)
    ],
)
def test_a_replacement_that_is_killed(
    world: Path, start: Start, tiny_text: Path, moment: int
) -> None:
    """Afterwards there is the old run or the new one, whole."""
    run = world / "run"
    old = snapshot(run)
    command = ["train", tiny_text, "--out", run, *tiny("vocab_size=50"), "--steps", 3]
    killed = start(*command, "--force", signal_at=moment, folder=str(run)).wait()
    assert killed.code == -signal.SIGKILL, killed
    result = call("train", "--resume", "--out", run, "--steps", 3)
    config = json.loads((run / "config.json").read_bytes())
    if config["recipe"]["data"]["vocab_size"] == 60:
        assert snapshot(run) == old
    else:
        result.ok()
        assert json.loads((run / "result.json").read_bytes())["steps"] == 3
        assert not [*run.rglob("*partial*")]


# --- odd texts --------------------------------------------------------------------------------

ODD_TEXTS = {
    "NUL": "a\0b and \0 stand here\n" * 30,
    "no line break at the end": make_text(20) + "and then",
    "literal <unk> and ⇹": "the <unk> sat ⇹ on the ⇹21F9 mat <unk>ed ⇹\n" * 30,
    "CRLF": "one two, three\r\n\r\n" * 40,
    "other line ends": "one\rtwo\x85three\u2028four\x0cfive\n" * 30,
    "one word": "hello",
    "one word a line": "hello\n" * 30,
    "two letters": "ab",
    "one line": "all in one line " * 50,
    "spaces everywhere": "  two  spaces \t and\u00a0more   \n   \n" * 30,
    "◇ and \\": "it is \\ and \\n and\t" * 90 + "◇ ◇◇\n",
    "no ASCII": "日本語のテキスト。😀é́\n" * 30,
    "one script, no space": "日本語" * 40,
    "a long word": "a " * 50 + "x" * 100_000 + " b" * 8_000,
    "a long line": "abcdefghij" * 100_000,
}


def train_on(text: str, folder: Path, *more: str) -> Path:
    """A few steps; the run."""
    (folder / "odd.txt").write_bytes(text.encode())
    command = ["train", folder / "odd.txt", "--out", folder / "run", "--steps", 3]
    result = json.loads(call(*command, "--json", *tiny(*more)).ok())
    assert math.isfinite(result["valid_bpc"])
    assert result["steps"] == 3
    return folder / "run"


def check_scores(run: Path, text: str, folder: Path) -> None:
    """What `score` and `eval` say about a text fits the text and each other."""
    path = folder / "scored.txt"
    path.write_bytes(text.encode())
    figures = json.loads(call("eval", run, "--text", path, "--json").ok())
    rows = [json.loads(line) for line in call("score", "-m", run, path, "--format", "jsonl").ok()
            .split("\n")[:-1]]  # fmt: skip
    assert figures["n_chars"] == len(text)
    assert figures["n_bytes"] == len(text.encode())
    assert figures["n_tokens"] == len(rows)
    assert math.isfinite(figures["bits_strict"]) and figures["bits_strict"] >= figures["bits"] > 0
    assert sum(row["bits"] for row in rows) == pytest.approx(figures["bits"], abs=1e-6)
    place = 0
    for row in rows:
        assert row["token"] == escape_token(text[row["start"] : row["end"]])
        assert text[place : row["start"]].strip(" ") == "", "only spaces are between tokens"
        assert row["line"] == text.count("\n", 0, row["start"])
        place = row["end"]
    assert text[place:].strip(" ") == ""
    assert sum(row["token"] == "\\n" for row in rows) == text.count("\n")


@pytest.mark.parametrize("tokenization", ["reversible", "spaces"])
@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_texts(name: str, tokenization: str, tmp_path: Path) -> None:
    text = ODD_TEXTS[name]
    run = train_on(text, tmp_path, f"tokenization={tokenization}")
    json.loads(call("eval", run, "--json").ok())
    check_scores(run, text[:5_000] + text[-5_000:], tmp_path)


@pytest.mark.parametrize("name", [n for n, text in ODD_TEXTS.items() if len(text) < 10_000])
def test_odd_texts_to_be_scored(name: str, tiny_run: Path, tmp_path: Path) -> None:
    check_scores(tiny_run, ODD_TEXTS[name], tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from(list("ab.<⇹ \n\r\t\0\\\u2028日𝔘◇")) | st.characters(codec="utf-8"))
)
def test_any_text_is_cut_into_its_tokens(text: str, tiny_run: Path) -> None:
    scores = spellonce.load(tiny_run).score(text)
    assert scores.tokens == [text[a:b] for a, b in zip(scores.start, scores.end, strict=True)]
    assert scores.text_chars == len(text) == scores.n_chars.sum()
    assert all(math.isfinite(bits) and bits > 0 for bits in scores.bits)


@pytest.mark.parametrize("size", ["0", "1", "2", "1000000", "none"])
def test_any_size_of_the_vocabulary(size: str, tiny_text: Path, tmp_path: Path) -> None:
    run = train_on(tiny_text.read_text(), tmp_path, f"vocab_size={size}")
    check_scores(run, make_text(5, seed=2), tmp_path)
    assert call("sample", "-m", run, "-n", 5).ok()
    assert call("spell", "-m", run, "--context", "the", "-n", 3).ok().count("\n") == 3


def test_removed_words_in_training_and_literal_ones_in_scoring(tmp_path: Path) -> None:
    """`<unk>` declared in the data set has no spelling; in a text to be scored it is a string."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid", "test"):
        (data / f"{split}.txt").write_text("the <unk> sat on the <unk> mat\n" * 40)
    (data / "dataset.toml").write_text('tokenization = "spaces"\nunk = "<unk>"\n')
    run = tmp_path / "run"
    call("train", data, "--out", run, "--steps", 3, *tiny()).ok()
    assert "<unk>" not in (run / "lexicon.tsv").read_text()
    rows = [
        row.split("\t") for row in call("score", "-m", run, stdin=b"the <unk>\n").ok().split("\n")
    ]
    header, the, unk = rows[0], rows[1], rows[2]
    assert (the[2], unk[2]) == ("the", "<unk>")
    novel, spelling = header.index("novel"), header.index("bits_spelling")
    assert (the[novel], float(the[spelling])) == ("0", 0.0)
    assert unk[novel] == "1" and float(unk[spelling]) > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "score_all"),
    [("abcdefghij" * 1_000_000, False), ("ab,c.d-e!f" * 1_000_000, False),
     ("x" * 100_000 + " yes\n" + "a b\n" * 10_000, True)],
    ids=["10 MB word", "10 MB of words and points", "100,000 letters"],
)  # fmt: skip
def test_long_lines_in_bounded_memory(
    text: str, score_all: bool, tmp_path: Path, start: Start
) -> None:
    (tmp_path / "long.txt").write_text(text)
    run = tmp_path / "run"
    train = ["train", tmp_path / "long.txt", "--out", run, "--steps", 3, "--json", *tiny()]
    commands = [train, ["eval", run, "--json"]]
    if score_all:
        commands.append(["eval", run, "--json", "--text", tmp_path / "long.txt"])
    for command in commands:
        figures = json.loads(start(*command).wait().ok())
        assert figures["peak_rss_mb"] < 1_500
        assert math.isfinite(figures["valid_bpc" if command is train else "bpc"])


# --- training that goes wrong -------------------------------------------------------------------


def train_for(steps: int, text: Path, run: Path, *settings: str) -> dict[str, Any]:
    recipe = configuration.override(recipes.get("small"), (*TINY, *settings))
    length = training.Length(steps)
    return training.train(corpus.open_files([text]), recipe, run, length=length, resume=True)


def test_a_gradient_that_is_no_number_reaches_no_weight(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that would be saved next is refused, and the run goes on from the one before."""
    whole, broken = Trainer._clip, tmp_path / "broken"

    def spoilt(self: Trainer) -> None:
        if self.cursor.step == 9:  # the tenth step, after which there is a checkpoint
            next(p for p in self.parameters.values() if p.grad is not None).grad.fill_(math.nan)
        whole(self)

    with monkeypatch.context() as patched, pytest.raises(RunError, match="diverged at step 9"):
        patched.setattr(Trainer, "_clip", spoilt)
        train_for(20, tiny_text, broken)
    assert [p.name for p in (broken / "checkpoint").iterdir()] == ["step-00000005"]
    train_for(20, tiny_text, broken)
    train_for(20, tiny_text, tmp_path / "whole")
    files = [run / "model.safetensors" for run in (broken, tmp_path / "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_training_that_becomes_worse_and_worse_is_stopped(tiny_text: Path, tmp_path: Path) -> None:
    settings = ("optimizer=adam", "learning_rate=9", "clip=1000", "report_every=10")
    with pytest.raises(RunError, match=r"diverged at step \d+.*learning_rate=3") as told:
        train_for(400, tiny_text, tmp_path / "run", *settings)
    assert "bpc on the training text" in str(told.value) or "not finite" in str(told.value)
