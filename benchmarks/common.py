"""What the benchmarks share: bars, taking turns, memory of a process of its own, made-up text."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the command line does

import numpy as np
from numpy.typing import NDArray

from spellonce import recipes
from spellonce.lexicon import N_SPECIAL, Alphabet, Lexicon
from spellonce.mixture import count_all
from spellonce.network import Network
from spellonce.recipes import Recipe
from spellonce.systems import SYSTEMS


def bar(what: str, value: float, relation: str, limit: float, unit: str = "") -> dict[str, Any]:
    """A figure that must be `at least` or `at most` something."""
    met = value >= limit if relation == "at least" else value <= limit
    return {
        "what": what, "value": round(value, 3), "unit": unit, "relation": relation, "limit": limit,
        "met": met,
    }  # fmt: skip


def take_turns(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each; they take turns, so that a busy moment hits all of them.

    The first turn is not counted: threads start, and memory is touched for the first time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


def in_own_process(script: str, *arguments: str) -> dict[str, Any]:
    """What a benchmark prints when it is started on its own, for instance to see its memory."""
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def made_up_lexicon(n_lexemes: int, n_novel: int, seed: int = 0) -> Lexicon:
    """Random words of about the lengths of real ones; words and letters follow Zipf's law."""
    rng = np.random.default_rng(seed)
    letters = [chr(c) for c in range(0x61, 0x61 + 145)]
    shares = 1 / np.arange(1, len(letters) + 1)
    shares /= shares.sum()
    words: dict[str, None] = {}
    while len(words) < n_lexemes + n_novel:
        lengths = 3 + rng.poisson(5, 1 << 16)
        symbols = rng.choice(len(letters), (len(lengths), int(lengths.max())), p=shares)
        for row, n in zip(symbols, lengths.tolist(), strict=True):
            words.setdefault("".join([letters[i] for i in row[:n].tolist()]))
    types = ("", "\n", *list(words)[: n_lexemes + n_novel])
    counts = (1e7 / np.arange(1, len(types) + 1)).astype(np.int64) + 1
    return Lexicon(Alphabet(letters), types, counts, n_lexemes + N_SPECIAL)


def made_up_text(n_types: int, n_tokens: int, seed: int = 0) -> NDArray[np.int32]:
    """Type ids as frequent as words are: p ∝ 1 / (rank + 2.7)^1.07 (Zipf–Mandelbrot)."""
    rng = np.random.default_rng(seed)
    weights = 1 / (np.arange(1, n_types - N_SPECIAL + 1) + 2.7) ** 1.07
    cumulative = np.cumsum(weights / weights.sum())
    return (N_SPECIAL + np.searchsorted(cumulative, rng.random(n_tokens))).astype(np.int32)


def make_network(recipe: Recipe, lexicon: Lexicon, text: NDArray[np.int32]) -> Network:
    """The network of a recipe that reads words, with what it counts in a text."""
    counted = None
    if SYSTEMS[recipe.system].is_counted:
        counted = count_all(text, lexicon, recipe.ngrams)
    network = recipes.build_model(recipe, lexicon, None, counted)
    network.initialise(0, lexicon)
    return network
