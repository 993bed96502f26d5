"""Do made-up words look like the words that they are to resemble?

    spellonce train … --recipe cpu --set unspelled=0.05 --out held-out
    spellonce train … --recipe uncond-small --out blind
    python benchmarks/wugs.py held-out blind

Lexemes that were never spelled in training (`unspelled`) are asked for: the speller has seen how
they are used and not how they look. Of its draws given their embeddings, how many share the ending
or the shape, against draws of a speller that sees no embedding?
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable

import torch

from spellonce.model import Model, load
from spellonce.network import Dice

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


def share_of_shape(model: Model, words: list[str], shape: Shape, n: int, *, blind: bool) -> float:
    """How many of n draws for each word have the shape."""
    dice = Dice(1.0, torch.Generator().manual_seed(0))
    hits = total = 0
    for word in words:
        like = model.lexicon.types[2:3] if blind else (word,)  # whoever is blind sees none of it
        moment = model.network.like(model.lexicon, like)
        drawn = model.network.spell(model.lexicon, moment, n, dice, 30)
        hits += sum(map(shape, drawn))
        total += n
    return hits / max(total, 1)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("blind")
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--draws", type=int, default=40)
    arguments = parser.parse_args()
    model, blind = load(arguments.run), load(arguments.blind)
    rows = []
    for name, shape in SHAPES.items():
        words = held_out(model, shape, arguments.words)
        if not words:
            continue
        ours = share_of_shape(model, words, shape, arguments.draws, blind=False)
        theirs = share_of_shape(blind, words, shape, arguments.draws, blind=True)
        ratio = ours / theirs if theirs else None
        rows.append({"shape": name, "words": len(words), "like": ours, "uncond": theirs,
                     "ratio": ratio})  # fmt: skip
        print(
            f"{name:8} {len(words):4} words  {ours:.3f} like it, {theirs:.3f} blind",
            file=sys.stderr,
        )
    likes = sum(row["like"] * row["words"] for row in rows)
    blinds = sum(row["uncond"] * row["words"] for row in rows)
    begin = time.perf_counter()
    made = model.spell(context="The", n=1000, novel_only=True)
    seconds = time.perf_counter() - begin
    seen = {word.casefold() for word in model.lexicon.types}
    print(json.dumps({
        "rows": rows, "ratio": likes / blinds if blinds else None, "words": len(made),
        "novel": sum(word.casefold() not in seen for word in made), "seconds": round(seconds, 2),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
