"""Is a training that is killed again and again the training that was left alone? One line of JSON.

    python benchmarks/soak_kills.py [--kills 50] [--steps 1000]

`spellonce train` on the topics of Python's own `help()`, from the command line. One run is left
alone. The other is killed (`kill -9`) at so many random moments, every second time while a
checkpoint is being written, and resumed after each. Bar: not one byte of its weights differs.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from pathlib import Path

from common import bar, begin_command, finish_command, write_topics

SETTINGS = ["checkpoint_every=7", "report_every=7", "vocab_size=5000"]


def partials(run: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when their process was killed."""
    return {(path.name, path.stat().st_ino) for path in run.glob("checkpoint/partial-*")}


def killed(command: list[str], run: Path, rng: random.Random) -> bool | None:
    """Starts it and kills it: whether a checkpoint was under way then; None: it had ended."""
    before = partials(run)
    while_writing = rng.random() < 0.5
    process = begin_command(*command)
    end = time.monotonic() + rng.uniform(0, 12)
    while process.poll() is None:
        if time.monotonic() > end and (not while_writing or partials(run) - before):
            break
        time.sleep(0.0005)
    if process.poll() is not None:
        if process.returncode:
            raise SystemExit(process.communicate()[1])
        return None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return bool(partials(run) - before)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = write_topics(folder)
        settings = [part for setting in SETTINGS for part in ("--set", setting)]

        def train(run: Path) -> list[str]:
            length = ["--steps", str(arguments.steps)]
            return ["train", str(text), "--recipe", "small", *length, *settings, "--out", str(run)]

        alone, run = folder / "alone", folder / "run"
        finish_command(*train(alone))
        n_kills = n_writing = 0
        while n_kills < arguments.kills:
            is_writing = killed([*train(run), "--resume"], run, rng)
            if is_writing is None:
                raise SystemExit(f"it was done after {n_kills} kills: give it more --steps")
            n_writing += is_writing
            n_kills += 1
        finish_command(*train(run), "--resume")
        names = ("model.safetensors", "gradients.safetensors", "lexicon.tsv")
        same = all((run / name).read_bytes() == (alone / name).read_bytes() for name in names)
    print(json.dumps({
        "benchmark": "kills", "kills": n_kills, "while_writing": n_writing,
        "bars": [
            bar("kills that were survived, to the last bit", n_kills * same, "at least",
                arguments.kills),
            bar("of them while a checkpoint was written", n_writing * same, "at least",
                arguments.kills // 5),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
