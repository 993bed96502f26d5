"""Are two processes of one thread as fast as one process of two? One line of JSON.

    python benchmarks/soak_processes.py [--steps 60] [--repeats 3]

`torchrun --nproc-per-node 2 -m spellonce train` against `spellonce train`, recipe `cpu`, on
`wikitext-2` or `wikitext-2-partial`, or where there is neither on the topics of Python's own
`help()`, by turns; tokens per second of the steps after the twentieth, medians. Also how much a
process has to say in a step, by the size of the lexicon: the gradients of what it has met, whole or
by rows, beside all that there are (the small recipe, made-up text, tails as in
`bench_vocabulary`), in a step without the lexicon factor and in one with it.
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
from common import bar, finish_command, is_there, write_topics

SKIPPED = 20
"""Steps at the beginning that are not counted."""


def exchanged(n_lexemes: int) -> dict[str, float]:
    """Megabytes of gradients of a step, of one with the lexicon factor, and of all weights."""
    trainer = make_trainer(n_lexemes, "tail_size=55")
    found: list[float] = []
    clip = trainer._clip

    def counted() -> None:
        gradients = [p.grad for p in trainer.parameters.values() if p.grad is not None]
        sizes = [g.coalesce().values().numel() if g.is_sparse else g.numel() for g in gradients]
        found.append(round(4e-6 * sum(sizes), 1))
        clip()

    trainer._clip = counted  # type: ignore[method-assign]
    trainer.step(lexicon=False)
    trainer.step(lexicon=True)
    every = sum(p.numel() for p in trainer.parameters.values())
    return {
        "lexemes": n_lexemes, "tokens": trainer.rails.window(0, 0).n_tokens,
        "MB exchanged": found[0], "with the lexicon": found[1],
        "MB of weights": round(4e-6 * every, 1),
    }  # fmt: skip


def speed_of(run: Path) -> float:
    """Tokens per second of the steps after the first ones."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    marks = [line for line in lines if "seconds" in line and line["step"] >= SKIPPED]
    first, last = marks[0], marks[-1]
    return float((last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    speed: dict[str, list[float]] = {"one process": [], "two processes": []}
    with tempfile.TemporaryDirectory() as scratch:
        name = next(filter(is_there, ("wikitext-2", "wikitext-2-partial")), None)
        data = ["--dataset", name] if name else [str(write_topics(Path(scratch)))]
        for i in range(arguments.repeats):
            for kind, found in speed.items():
                run = Path(scratch) / f"{kind} {i}"
                command = ["train", *data, "--recipe", "cpu", "--steps", str(arguments.steps),
                           "--set", "report_every=5", "--out", str(run)]  # fmt: skip
                if kind == "one process":
                    finish_command(*command, "--threads", "2")
                else:
                    subprocess.run(
                        [sys.executable, "-m", "torch.distributed.run", "--standalone",
                         "--nproc-per-node", "2", "-m", "spellonce", *command, "--threads", "1"],
                        check=True, capture_output=True,
                        env={**os.environ, "OMP_NUM_THREADS": "1"},
                    )  # fmt: skip
                found.append(speed_of(run))
    medians = {name: statistics.median(found) for name, found in speed.items()}
    print(json.dumps({
        "benchmark": "processes", "data": name or "pydoc_data.topics",
        "tokens_per_second": medians, "runs": [exchanged(n) for n in SIZES],
        "bars": [
            bar("tokens/s of two processes, of one with two threads",
                medians["two processes"] / medians["one process"], "at least", 0.9, "×"),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
