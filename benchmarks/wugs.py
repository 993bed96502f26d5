"""Do made-up words look like the words that they are to resemble?

    spellonce train … --recipe full-small --set unspelled=0.05 --out held-out
    spellonce train … --recipe uncond-small --out blind
    python benchmarks/wugs.py held-out blind

Lexemes that were never spelled in training (`unspelled`) are asked for: the speller has seen how
they are used and not how they look. Of its draws given their embeddings, how many share the ending
or the shape, against draws of a speller that sees no embedding? The bar is the ratio over all words
of all shapes together, with an interval from bootstrapping the words. Beside it, by the same model:
draws given the mean embedding, and given a lexeme of another shape instead.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.generation import Generator
from spellonce.loading import load
from spellonce.model import Model
from spellonce.network import Dice
from spellonce.two_level import TwoLevel

Floats = NDArray[np.float64]

Shape = Callable[[str], bool]
SHAPES: dict[str, Shape] = {
    "-ed": lambda word: word.islower() and word.endswith("ed") and len(word) > 4,
    "-ing": lambda word: word.islower() and word.endswith("ing") and len(word) > 5,
    "-s": lambda word: re.fullmatch(r"[a-z]{3,}[a-rt-z]s", word) is not None,
    "Name": lambda word: re.fullmatch(r"[A-Z][a-z]{2,}", word) is not None,
    "number": lambda word: re.fullmatch(r"[0-9][0-9.,]*", word) is not None,
}


def held_out(model: Model, shape: Shape, most: int) -> list[str]:
    """Lexemes of a shape that were never spelled, the most frequent first."""
    share = model.recipe.objective.unspelled
    if not share:
        sys.exit("the first run was not trained with --set unspelled=…: nothing is held out")
    chosen = model.lexicon.unspelled(share)
    words = [model.lexicon.types[i] for i in chosen.nonzero()[0].tolist()]
    return [word for word in words if shape(word)][:most]


def hits(model: Model, vectors: Iterable[Tensor], shape: Shape, n: int) -> Floats:
    """Which share of n draws has the shape, for each of some vectors."""
    network, lexicon = model.network, model.lexicon
    assert isinstance(network, TwoLevel)
    generator = Generator(network, lexicon, model.format)
    dice = Dice(1.0, torch.Generator().manual_seed(0))
    found = []
    for vector in vectors:
        drawn = network.spell(lexicon, network.at_embedding(vector), n, dice, 30)
        found.append(sum(shape(generator.bare(word)) for word in drawn if word) / n)
    return np.array(found)


def measure(
    model: Model, blind: Model, words: list[str], shape: Shape, n: int
) -> dict[str, Floats]:
    """Hits for each word, of the word itself and of what it is compared with."""
    network = model.network
    assert isinstance(network, TwoLevel) and isinstance(blind.network, TwoLevel)
    table = network.lm.table.embeddings().detach()
    generator = Generator(network, model.lexicon, model.format)
    ids = [model.lexicon.lexeme_id(word) for word in words]
    rng = np.random.default_rng(0)
    unlike = [
        i for i in rng.permutation(np.arange(2, model.lexicon.n_lexemes)).tolist()
        if not shape(generator.bare(model.lexicon.types[i]))
    ]  # fmt: skip
    nothing = torch.zeros(blind.network.lm.table.n_embed)
    return {
        "like it": hits(model, table[ids], shape, n),
        "uncond": hits(blind, [nothing] * len(words), shape, n),
        "mean embedding": hits(model, [table[2:].mean(0)] * len(words), shape, n),
        "another word": hits(model, table[unlike[: len(words)]], shape, n),
    }


def interval(like: Floats, blind: Floats) -> tuple[float, float]:
    """Nine tenths of the ratios of means, when words are drawn again with replacement."""
    rng = np.random.default_rng(0)
    at = rng.integers(0, len(like), (2000, len(like)))
    ratios = like[at].mean(1) / np.maximum(blind.mean(), 1e-9)
    low, high = np.quantile(ratios, [0.05, 0.95])
    return float(low), float(high)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("blind")
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--draws", type=int, default=40)
    arguments = parser.parse_args()
    model, blind = load(arguments.run), load(arguments.blind)
    rows = []
    every: dict[str, list[Floats]] = {}
    for name, shape in SHAPES.items():
        words = held_out(model, shape, arguments.words)
        if not words:
            continue
        found = measure(model, blind, words, shape, arguments.draws)
        for kind, values in found.items():
            every.setdefault(kind, []).append(values)
        means = {kind: round(float(values.mean()), 4) for kind, values in found.items()}
        rows.append({"shape": name, "words": len(words), **means})
        print(f"{name:8} {len(words):4} words  {means}", file=sys.stderr)
    pooled = {kind: np.concatenate(values) for kind, values in every.items()}
    if not pooled:
        sys.exit("no lexeme of any of the shapes was held out")
    ratio = float(pooled["like it"].mean() / max(pooled["uncond"].mean(), 1e-9))
    begin = time.perf_counter()
    made = model.spell(context="The", n=1000, novel_only=True)
    seconds = time.perf_counter() - begin
    bare = Generator(model.network, model.lexicon, model.format).bare
    seen = {bare(word).casefold() for word in model.lexicon.types[2:]}
    print(json.dumps({
        "rows": rows, "ratio": ratio, "ratio_90": interval(pooled["like it"], pooled["uncond"]),
        "means": {kind: float(values.mean()) for kind, values in pooled.items()},
        "words": len(made),
        "novel": sum(word.casefold() not in seen for word in made), "seconds": round(seconds, 2),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
