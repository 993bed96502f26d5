"""A tiny text, a tiny run, and two ways to call the command line: here, and in a real process.

Importing torch takes seconds, so a real process is forked from a *zygote* that has imported it
already (this file, run as a script). It can be limited and killed like any other, and also at a
moment that is the same every time: right before the nth change that it makes to files.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: the same figures everywhere
os.environ.pop("PYTHONUNBUFFERED", None)  # or pipes would stream by themselves

TINY = (
    "n_embed=16", "lm.n_hidden=24", "speller.n_hidden=16", "rails=4", "window=12", "vocab_size=60",
    "min_char_count=1", "lexicon_batch=20", "lexicon_interval=5", "checkpoint_every=5",
    "report_every=5", "lm.cuts=20",
)  # fmt: skip
"""Settings that make any recipe a matter of milliseconds."""


def tiny(*more: str) -> list[str]:
    """The options that set them, and others after them."""
    return [part for setting in (*TINY, *more) for part in ("--set", setting)]


def make_text(n_lines: int, seed: int = 1) -> str:
    """Sentences of invented words whose frequencies fall as those of words do."""
    rng = random.Random(seed)
    syllables = ["ba", "ke", "lo", "mi", "tu", "ran", "sel", "dor", "wi", "an", "the", "ing"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(120)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    lines = []
    for _ in range(n_lines):
        sentence = " ".join(rng.choices(words, weights, k=rng.randint(4, 14)))
        lines.append(f"{sentence.capitalize()}.\n" + "\n" * (rng.random() < 0.1))
    return "".join(lines)


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    def ok(self) -> str:
        """It worked and had nothing to say about it; its output."""
        assert (self.code, self.err) == (0, ""), self
        return self.out

    def refused(self, telling: str, *codes: int) -> None:
        """It failed as commands must: an exit code, one line that tells why, and no output."""
        assert self.code in (codes or (1, 2)), self
        assert self.err.startswith("spellonce: ") and self.err.endswith("\n"), self
        assert self.err.count("\n") == 1 and "internal error" not in self.err, self
        assert telling.lower() in self.err.lower(), self
        assert self.out == "", self


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- processes --------------------------------------------------------------------------------


class Process:
    """A command in a process of its own."""

    def __init__(self, zygote: subprocess.Popen[str], folder: Path, job: dict[str, Any]) -> None:
        self._zygote = zygote
        self._out, self._err = folder / "stdout", folder / "stderr"
        self._out.touch()
        self._err.touch()
        self._code: int | None = None
        self.pid: int = self._ask({**job, "out": str(self._out), "err": str(self._err)})

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._zygote.stdin and self._zygote.stdout
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        return json.loads(self._zygote.stdout.readline())

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends it a signal, if it is still there."""
        if self._code is None:
            os.kill(self.pid, number)

    def wait(self) -> Result:
        """Waits for its end; a negative code is the signal that ended it."""
        if self._code is None:
            self._code = self._ask({"wait": self.pid})
        return Result(self._code, self._out.read_text("utf-8"), self._err.read_text("utf-8"))

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Waits until it has done something."""
        end = time.monotonic() + 60
        while not there():
            assert time.monotonic() < end, self._err.read_text("utf-8")
            time.sleep(0.002)


def _serve() -> None:
    """The zygote: forks a child for each job on stdin, and says how they end."""
    import torch._dynamo  # noqa: F401  (the first step of an optimiser imports it)

    import spellonce.cli
    import spellonce.show
    import spellonce.training  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid, end = request["wait"], time.monotonic() + 300
            while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.002)
            answer = os.waitstatus_to_exitcode(ended[1])
        elif not (answer := os.fork()):
            _be_the_command(request)
        print(json.dumps(answer), flush=True)


def _be_the_command(job: dict[str, Any]) -> None:
    import resource

    from spellonce import cli
    from spellonce.commands import shared

    code: object = 99
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(job["out"], flags, 0o600), 1)
        os.dup2(os.open(job["err"], flags, 0o600), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if job.get("largest_file"):
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], hard))
        if job.get("signal_at"):
            _signal_at_change(job["signal_at"], job.get("number", signal.SIGKILL), job["folder"])
        os.environ.update(job.get("env", {}))
        shared.STARTED = time.monotonic()
        sys.argv = ["spellonce", *job["args"]]
        cli.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def _signal_at_change(nth: int, number: int, folder: str) -> None:
    """Sends this process a signal right before the nth change that it makes to files there."""
    left = nth

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open":
            path, mode, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else mode[0] in "wax"
            counts = bool(writes) and str(path).startswith(folder)
        else:
            counts = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
        if counts:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    sys.addaudithook(watch)


if __name__ == "__main__":
    _serve()
    sys.exit()

# --- fixtures ---------------------------------------------------------------------------------

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

Cli = Callable[..., Result]
Start = Callable[..., Process]


class _Terminal(io.TextIOWrapper):
    """A stream whose bytes are kept."""

    def __init__(self, errors: str) -> None:
        super().__init__(io.BytesIO(), "utf-8", errors, newline="", write_through=True)

    def text(self) -> str:
        buffer: Any = self.buffer
        return str(buffer.getvalue().decode("utf-8", "surrogateescape"))


def call(*arguments: object, stdin: bytes = b"") -> Result:
    """The command line in this process."""
    from spellonce import cli
    from spellonce.commands import shared

    out, err = _Terminal("strict"), _Terminal("backslashreplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["spellonce", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(shared, "STARTED", time.monotonic())
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return Result(int(ended.value.code or 0), out.text(), err.text())


def tune(run: Path) -> dict[str, Any]:
    """Tunes a tiny run, which then knows dynamic evaluation, be it of use to it or not."""
    found: dict[str, Any] = json.loads(call("tune", run, "--tokens", 100, "--json").ok())
    path = run / "adaptive.json"
    kept = json.loads(path.read_text())
    if kept["dynamic"] is None:
        kept["dynamic"] = {"segment": 35, "rate": 1e-4, "decay": 1e-3, "epsilon": 1e-2}
        path.write_text(json.dumps(kept))
    return found


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    command: list[str] = [sys.executable, __file__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        yield process
        pipe: IO[str] | None = process.stdin
        assert pipe
        pipe.close()


@pytest.fixture
def start(
    zygote: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Starts commands in processes of their own; none of them outlives the test."""
    started: list[Process] = []

    def begin(*arguments: object, **limits: object) -> Process:
        job = {"args": [*map(str, arguments)], **limits}
        started.append(Process(zygote, tmp_path_factory.mktemp("process"), job))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few kilobytes of text."""
    path = tmp_path_factory.mktemp("text") / "tiny.txt"
    path.write_text(make_text(100), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def stopped_run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, interrupted after 12 of its 30 steps. Tests only read it."""
    from spellonce import configuration, corpus, recipes, training

    class Impatient(training.Silent):
        def progress(self, step: int, total: int, bpc: float | None) -> None:
            if step == 12:
                raise KeyboardInterrupt

    out = tmp_path_factory.mktemp("runs") / "stopped"
    recipe = configuration.override(recipes.get("small"), TINY)
    with pytest.raises(KeyboardInterrupt):
        training.train(
            corpus.open_files([tiny_text]), recipe, out, length=training.Length(30),
            reporter=Impatient(),
        )  # fmt: skip
    return out


@pytest.fixture(scope="session")
def tiny_run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Tests only read it."""
    out = tmp_path_factory.mktemp("runs") / "tiny"
    call("train", tiny_text, "--out", out, "--steps", 30, *tiny()).ok()
    return out


@pytest.fixture(scope="session")
def tuned_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can remember words while it reads. Tests only read it."""
    run = tmp_path_factory.mktemp("tuned") / "run"
    shutil.copytree(tiny_run, run)
    call("tune", run, "--no-dynamic").ok()
    return run


@pytest.fixture(scope="session")
def address(
    zygote: subprocess.Popen[str], tuned_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where `spellonce serve` listens, with that run; at the end it is told to stop, and does."""
    folder = tmp_path_factory.mktemp("server")
    server = Process(zygote, folder, {"args": ["serve", "-m", str(tuned_run), "--port", "0"]})
    server.wait_for(lambda: "http" in (folder / "stdout").read_text())
    yield (folder / "stdout").read_text().split()[0]
    server.kill(signal.SIGTERM)
    assert server.wait().code == 0
