"""Variants of a recipe at the same number of steps: bits per character, and what a step costs.

    python benchmarks/explore.py --dataset wikitext-2 [--recipe cpu] [--steps 350]
        [--together 0,1] "" seed=1 average_from=0.8 "lm.n_layers=3 lm.n_hidden=352"

Each variant is a list of `--set` settings, and perhaps a seed, in quotes; "" is the recipe as it
is. Two are trained at a time, one thread each. `--together`: also the mean of the probabilities of
some of them (an ensemble), by their places in the list. One line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from spellonce.loading import load


def train(settings: str, run: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    options = [
        part
        for setting in settings.split()
        for part in (["--" + setting] if setting.startswith("seed=") else ["--set", setting])
    ]
    done = subprocess.run(
        [sys.executable, "-m", "spellonce", "train", "--dataset", arguments.dataset, "--recipe",
         arguments.recipe, "--steps", str(arguments.steps), "--threads", "1", "--out", str(run),
         "--json", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"settings": settings, "failed": done.stderr.strip()}
    result = json.loads(done.stdout)
    valid = result["valid"]
    return {
        "settings": settings, "bpc": round(result["valid_bpc"], 4),
        "bpc_lm": round(valid["bpc_lm"], 4), "bpc_spell": round(valid["bpc_spell"], 4),
        "seconds": result["seconds"], "tokens_per_second": result["tokens_per_second"],
    }  # fmt: skip


def ensemble(runs: list[Path], n_lines: int = 1000) -> dict[str, float]:
    """bpc of each of some runs, and of the mean of their probabilities, on the same lines."""
    models = [load(run) for run in runs]
    lines = [line for line, _ in zip(models[0].split_lines("valid"), range(n_lines), strict=False)]
    scores = [model.score_lines(list(lines)) for model in models]
    nats = np.stack([each.nats for each in scores])
    mean = np.log(len(nats)) - np.logaddexp.reduce(-nats, axis=0)
    per_char = np.log(2) * scores[0].text_chars
    alone = {f"alone {i}": round(float(own.sum() / per_char), 4) for i, own in enumerate(nats)}
    return alone | {"together": round(float(mean.sum() / per_char), 4)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", nargs="+")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--recipe", default="cpu")
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--together", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = [Path(scratch) / str(i) for i in range(len(arguments.variant))]
        with ThreadPoolExecutor(2) as pool:
            jobs = zip(arguments.variant, runs, strict=True)
            for found in pool.map(lambda job: train(*job, arguments), jobs):
                print(json.dumps(found), flush=True)
        if arguments.together:
            chosen = [runs[int(i)] for i in arguments.together.split(",")]
            print(json.dumps(ensemble(chosen)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
