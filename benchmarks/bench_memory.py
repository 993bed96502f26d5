"""Peak memory of a training step of `full`: the paper's size, 50,000 lexemes, 40 × 70 tokens.

A random text stands in for a corpus: memory does not depend on what the words are. Prints one line
of JSON. The bar is 4 GB.
"""

from __future__ import annotations

import json
import time

import numpy as np
from common import bar, made_up_lexicon

from spellonce import configuration, recipes, runtime
from spellonce.plan import Plan
from spellonce.trainer import Trainer

N_LEXEMES = 50_000
N_NOVEL = 30_000


def main() -> None:
    runtime.prepare("cpu", 2)
    rng = np.random.default_rng(0)
    lexicon = made_up_lexicon(N_LEXEMES, N_NOVEL)
    recipe = configuration.override(recipes.full(), ["window_spread=0", "short_windows=0"])
    network = recipes.build_model(recipe, lexicon)
    network.initialise(0, lexicon)
    ids = rng.zipf(1.3, 200_000) % len(lexicon.types)
    trainer = Trainer(recipe, network, lexicon, ids.astype(np.int32), seed=0, plan=Plan.of(100))
    seconds = []
    for lexicon_step in (True, False, False):
        begin = time.perf_counter()
        trainer.step(lexicon=lexicon_step)
        seconds.append(round(time.perf_counter() - begin, 2))
    peak = runtime.peak_rss_mb() or 0.0
    print(json.dumps({
        "benchmark": "memory", "peak_rss_mb": peak, "seconds_per_step": seconds,
        "bars": [bar("peak memory of a step of `full`", peak / 1024, "at most", 4, "GB")],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
