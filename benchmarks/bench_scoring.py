"""Scoring throughput and memory against a GPT-2-small-sized transformer. One line of JSON.

    python benchmarks/bench_scoring.py [RECIPE] [--articles 64]  (needs: pip install transformers)

Ours is a model of the recipe with random weights and 25,000 lexemes, theirs `GPT2LMHeadModel` of
the `transformers` library with its default sizes (124 million parameters, 1,024 positions) and
random weights, at the best of several batch sizes. Both score made-up articles: many side by
side, and one long stream; tokens are each model's own. A stream longer than GPT-2's context is
scored in whole contexts, which is the least work it can be. Runs take turns; medians. Memory is
the peak of a process of its own: GPT-2's as the library comes, and without its key-value cache,
which scoring has no use for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from common import bar, in_own_process, made_up_lexicon, made_up_text, make_network, take_turns

from spellonce import configuration, recipes, runtime
from spellonce.lexicon import UNK_ID

MEMORY = ("ours", "theirs", "theirs, no key-value cache")
LENGTH = 1024
BATCHES = (1, 2, 4)


def ours(recipe: str, n_articles: int) -> dict[str, Callable[[], object]]:
    lexicon = made_up_lexicon(25_000, 10_000)
    types = made_up_text(len(lexicon.types), n_articles * LENGTH)
    made = recipes.get(recipe)
    if made.ngrams.embeddings:  # a model that was trained is loaded, and its start is long past
        made = configuration.override(made, ["embeddings=no"])
    network = make_network(made, lexicon, types)
    network.requires_grad_(False)
    types = types.astype(np.int64)
    words = lexicon.spellings().take(types[types >= lexicon.n_lexemes])
    ids = np.where(types < lexicon.n_lexemes, types, UNK_ID)
    articles = np.split(ids, n_articles)
    stream = ids[: 8 * LENGTH]
    n_novel = int((stream == UNK_ID).sum())
    return {
        "articles": _leanly(lambda: network.score(articles, words)),
        "stream": _leanly(lambda: network.score([stream], words.take(np.arange(n_novel)))),
    }


def _leanly(run: Callable[[], object]) -> Callable[[], object]:
    """As `spellonce.load` has it."""

    def go() -> None:
        runtime.give_memory_back()
        run()

    return go


def theirs(*, use_cache: bool = True) -> dict[str, Callable[[], object]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=use_cache)).eval().requires_grad_(False)
    ids = torch.randint(50_257, (max(BATCHES), LENGTH))

    def score(batch: int, n: int) -> None:
        runtime.keep_memory()
        with torch.inference_mode():
            for rows in ids[:n].split(batch):
                logits = model(rows).logits[:, :-1]
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none"
                )

    runs: dict[str, Callable[[], object]] = {
        f"articles, {batch} at a time": (lambda batch=batch: score(batch, max(BATCHES)))
        for batch in BATCHES
    }
    return {**runs, "stream": lambda: score(1, 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", nargs="?", default="cpu")
    parser.add_argument("--articles", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", choices=MEMORY)
    arguments = parser.parse_args()
    runtime.prepare("cpu")
    torch.set_deterministic_debug_mode("default")  # not for theirs
    if arguments.memory:
        if arguments.memory == "ours":
            runtime.give_memory_back()
            for run in ours(arguments.recipe, arguments.articles).values():
                run()
        else:
            theirs(use_cache=arguments.memory == "theirs")["articles, 1 at a time"]()
        print(json.dumps({"peak_rss_mb": runtime.peak_rss_mb()}))
        return
    runs = {
        f"ours, {name}": run for name, run in ours(arguments.recipe, arguments.articles).items()
    }
    runs |= {f"GPT-2, {name}": run for name, run in theirs().items()}
    tokens = {
        name: (arguments.articles if name == "ours, articles"
               else min(8, arguments.articles) if "ours" in name
               else 2 if "stream" in name else max(BATCHES)) * LENGTH
        for name in runs
    }  # fmt: skip
    seconds = take_turns(runs, arguments.repeats)
    speed = {name: tokens[name] / seconds[name] for name in runs}
    best = max(value for name, value in speed.items() if name.startswith("GPT-2, articles"))
    memory = {
        who: in_own_process(
            __file__, arguments.recipe, "--memory", who, "--articles", str(arguments.articles)
        )["peak_rss_mb"]
        for who in MEMORY
    }
    print(json.dumps({
        "benchmark": "scoring", "recipe": arguments.recipe,
        "tokens_per_second": {name: round(value, 1) for name, value in speed.items()},
        "peak_rss_mb": memory,
        "bars": [
            bar("tokens/s of many articles, of GPT-2's", speed["ours, articles"] / best,
                "at least", 10, "×"),
            bar("tokens/s of one stream, of GPT-2's",
                speed["ours, stream"] / speed["GPT-2, stream"], "at least", 2, "×"),
            bar("memory of scoring, of GPT-2's", memory["ours"] / memory["theirs"],
                "at most", 0.25, "×"),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
