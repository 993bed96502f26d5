"""What does a training token cost when the vocabulary grows? One line of JSON.

    python benchmarks/bench_vocabulary.py [--steps 8]

Made-up lexicons of 10,000 to 1,000,000 lexemes and a text with Zipf's law over each, the lexeme
LM and speller of the small recipe, with the split softmax (tails from 55 on) and, up to 100,000,
the exact one. Steps of all sizes take turns, without the lexicon factor; medians. The bar: a
million costs at most twice what ten thousand do.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

from common import bar, made_up_lexicon, made_up_text, take_turns

from spellonce import configuration, recipes, runtime
from spellonce.plan import Plan
from spellonce.trainer import Trainer

SIZES = (10_000, 100_000, 1_000_000)
EXACT = (10_000, 100_000)


def make_trainer(n_lexemes: int, *settings: str) -> Trainer:
    lexicon = made_up_lexicon(n_lexemes, n_novel=2_000)
    recipe = configuration.override(recipes.get("full-small"), settings)
    network = recipes.build_model(recipe, lexicon)
    network.initialise(0, lexicon)
    ids = made_up_text(len(lexicon.types), 300_000)
    return Trainer(recipe, network, lexicon, ids, seed=0, plan=Plan.of(1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    runtime.prepare("cpu")
    runtime.keep_memory()  # as `train` does
    trainers = {f"split {n}": make_trainer(n, "tail_size=55") for n in SIZES}
    trainers |= {f"exact {n}": make_trainer(n, "cuts=") for n in EXACT}
    seconds = take_turns(
        {name: partial(trainer.step, lexicon=False) for name, trainer in trainers.items()},
        arguments.steps,
    )
    tokens = trainers["split 10000"].rails.window(0, 0).n_tokens
    microseconds = {name: round(s / tokens * 1e6, 1) for name, s in seconds.items()}
    ratio = seconds[f"split {SIZES[-1]}"] / seconds[f"split {SIZES[0]}"]
    print(json.dumps({
        "benchmark": "vocabulary", "microseconds_per_token": microseconds,
        "peak_rss_mb": runtime.peak_rss_mb(),
        "bars": [bar("a token at 1,000,000 lexemes, of that at 10,000", ratio, "at most", 2, "×")],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
