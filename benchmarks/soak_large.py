"""Can a text be trained on that is far larger than memory should be? One line of JSON.

    python benchmarks/soak_large.py [--gigabytes 3]

A made-up text with Zipf's law, in which new words never end. `spellonce train` is killed
(`kill -9`) while it prepares the text, resumed, and takes some steps. The memory is that of all its
processes together (what they share counted once), looked at twice a second. Bar: 1,500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
from common import bar, begin_command, memory_of

WORDS = 1 << 22
LETTERS = b"etaoinsrhldcumfpgwybvkxjqz"
PART = 64_000_000


def write_text(path: Path, n_bytes: int) -> None:
    """Each part has the same words in another cipher, so that new types come all the time."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(2 + rng.poisson(np.log2(np.arange(WORDS) + 2) / 3), 20)
    letters = np.minimum(rng.geometric(0.12, int(lengths.sum())) - 1, len(LETTERS) - 1)
    spelled = np.frombuffer(LETTERS, np.uint8)[letters].tobytes()
    ends = np.cumsum(lengths).tolist()
    words = [spelled[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    cumulative = np.cumsum(1 / (np.arange(WORDS) + 2.7) ** 1.05)
    part = b""
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            if not part:
                while len(part) < min(PART, n_bytes):
                    ids = np.searchsorted(cumulative, rng.random(1 << 20) * cumulative[-1])
                    lines = np.split(ids, range(20, len(ids), 20))
                    part += (
                        b"\n".join(b" ".join([words[i] for i in line]) for line in lines) + b".\n"
                    )
            cipher = bytes.maketrans(LETTERS, bytes(rng.permutation(list(LETTERS)).tolist()))
            file.write(part.translate(cipher)[: n_bytes - file.tell()])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--recipe", default="small")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        text, run = Path(scratch) / "text.txt", Path(scratch) / "run"
        write_text(text, int(arguments.gigabytes * 1e9))
        command = ["train", str(text), "--recipe", arguments.recipe, "--steps", "10",
                   "--out", str(run), "--resume"]  # fmt: skip
        begin = time.monotonic()
        first = begin_command(*command)
        ids = run / "data" / "train.ids"
        while not (ids.is_file() and ids.stat().st_size > 4 * text.stat().st_size // 20):
            assert first.poll() is None, first.communicate()
            time.sleep(0.5)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        killed_after = time.monotonic() - begin
        begin = time.monotonic()
        process = begin_command(*command)
        most = 0.0
        while process.poll() is None:
            most = max(most, memory_of(process.pid))
            time.sleep(0.5)
        seconds = time.monotonic() - begin
        assert process.returncode == 0, process.communicate()
        data = json.loads((run / "config.json").read_text(encoding="utf-8"))["data"]
    print(json.dumps({
        "benchmark": "large", "gigabytes": arguments.gigabytes, "seconds": round(seconds),
        "killed_after_seconds": round(killed_after), "tokens": data["train_tokens"],
        "types": data["train_types"], "missed": data["missed"],
        "bars": [bar("memory of all processes", round(most), "at most", 1500, "MB")],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
