"""What benchmarks and long trials share: bars, turns, memory, made-up text, commands."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the command line does

import numpy as np
from numpy.typing import NDArray

from spellonce import corpus, recipes
from spellonce.configuration import Recipe
from spellonce.errors import DataError
from spellonce.lexicon import N_SPECIAL, Alphabet, Lexicon
from spellonce.mixture import count_all
from spellonce.network import Network
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


def is_there(name: str) -> bool:
    """Whether a data set is on this machine."""
    try:
        corpus.find_dataset(name)
    except DataError:
        return False
    return True


# --- commands ---------------------------------------------------------------------------------


def write_topics(folder: Path) -> Path:
    """The topics of Python's own `help()`, as a text file there."""
    from pydoc_data.topics import topics

    path = folder / "topics.txt"
    path.write_text("\n\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return path


def begin_command(*arguments: str) -> subprocess.Popen[str]:
    """`spellonce …` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "spellonce", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish_command(*arguments: str) -> None:
    """`spellonce …` to its end, which must be a good one."""
    process = begin_command(*arguments)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"spellonce {' '.join(arguments)}: {said}")


def memory_of(group: int) -> float:
    """Megabytes of all processes of a group together; what they share is counted once."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) != group:
                continue
            for line in (folder / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return total / 1024
