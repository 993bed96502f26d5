"""What does a training step of each `-small` recipe cost, as a ratio to that of `full-small`?

    python benchmarks/bench_steps.py [RECIPE …]

Steps of all recipes take turns, so that a busy moment of the machine hits all of them; medians.
Needs `wikitext-2-partial` under `$SPELLONCE_DATA`. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the command line does

from spellonce import corpus, encoding, recipes, runtime
from spellonce import units as unit_sets
from spellonce.encoding import Encoded
from spellonce.errors import DataError
from spellonce.plan import Plan
from spellonce.trainer import Trainer

SYSTEMS = (
    "full", "no-reg", "only-reg", "sep-reg", "1gram", "uncond", "pure-char", "pure-bpe", "hclm",
    "hclm-cache", "full-transformer", "full-feedback",
)  # fmt: skip


def make_trainer(name: str, encoded: Encoded, folder: Path) -> Trainer:
    recipe = recipes.get(name)
    ids = encoding.open_ids(folder / "train.ids")
    units = recipes.make_units(recipe, encoded.lexicon)
    if units is not None:
        path = folder / f"{name}.ids"
        unit_sets.expand(units, encoded.lexicon, ids, path)
        ids = encoding.open_ids(path)
    network = recipes.build_model(recipe, encoded.lexicon, units)
    network.initialise(0, encoded.lexicon)
    return Trainer(recipe, network, encoded.lexicon, ids, seed=0, plan=Plan.of(1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", nargs="*", default=[f"{system}-small" for system in SYSTEMS])
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    try:
        data = corpus.find_dataset("wikitext-2-partial")
    except DataError as error:
        print(json.dumps({"benchmark": "steps", "skipped": str(error)}))
        return
    runtime.prepare("cpu")
    runtime.keep_memory()  # as `train` does
    names = list(dict.fromkeys(["full-small", *arguments.recipe]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        encoded = encoding.encode(
            data.split("train"), data.format, folder / "train.ids", vocab_size=25_000
        )
        trainers = {name: make_trainer(name, encoded, folder) for name in names}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(arguments.repeats):
            for name, trainer in trainers.items():
                begin = time.perf_counter()
                trainer.step(lexicon=False)  # the lexicon factor is in one step of twenty
                seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    ratios = {name: round(m / medians["full-small"], 2) for name, m in medians.items()}
    print(json.dumps({"benchmark": "steps", "full-small": medians["full-small"], "ratio": ratios}))


if __name__ == "__main__":
    main()
