"""Are two processes of one thread as fast as one process of two? One line of JSON.

    python benchmarks/soak_processes.py [--steps 60] [--repeats 3]

`torchrun --nproc-per-node 2 -m spellonce train` against `spellonce train`, recipe `cpu`, on the
topics of Python's own `help()`, by turns; tokens per second as `result.json` has them, medians.
Also how much a process has to say in a step, by the size of the lexicon: the gradients of what it
has met, beside all that there are (the small recipe, made-up text, tails as in `bench_vocabulary`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_vocabulary import SIZES, make_trainer
from common import bar, finish_command, write_topics


def exchanged(n_lexemes: int) -> dict[str, float]:
    """Megabytes of gradients of one step, and of all weights."""
    trainer = make_trainer(n_lexemes, "tail_size=55")
    trainer.step(lexicon=False)
    met = [p.numel() for p in trainer.parameters.values() if p.grad is not None]
    every = [p.numel() for p in trainer.parameters.values()]
    return {
        "lexemes": n_lexemes, "tokens": trainer.rails.window(0, 0).n_tokens,
        "exchanged_mb": round(4e-6 * sum(met), 1), "weights_mb": round(4e-6 * sum(every), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    speed: dict[str, list[float]] = {"one process": [], "two processes": []}
    with tempfile.TemporaryDirectory() as scratch:
        text = write_topics(Path(scratch))
        for i in range(arguments.repeats):
            for name, found in speed.items():
                run = Path(scratch) / f"{name} {i}"
                command = ["train", str(text), "--recipe", "cpu", "--steps", str(arguments.steps),
                           "--out", str(run)]  # fmt: skip
                if name == "one process":
                    finish_command(*command, "--threads", "2")
                else:
                    subprocess.run(
                        [sys.executable, "-m", "torch.distributed.run", "--standalone",
                         "--nproc-per-node", "2", "-m", "spellonce", *command, "--threads", "1"],
                        check=True, capture_output=True,
                        env={**os.environ, "OMP_NUM_THREADS": "1"},
                    )  # fmt: skip
                result = json.loads((run / "result.json").read_text(encoding="utf-8"))
                found.append(result["tokens_per_second"])
    medians = {name: statistics.median(found) for name, found in speed.items()}
    print(json.dumps({
        "benchmark": "processes", "tokens_per_second": medians,
        "exchanged": [exchanged(n) for n in SIZES],
        "bars": [
            bar("tokens/s of two processes, of one with two threads",
                medians["two processes"] / medians["one process"], "at least", 0.9, "×"),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
