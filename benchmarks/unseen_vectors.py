"""Vectors for words never seen: how near is what is inferred to what use would have taught?

    spellonce train … --recipe cpu --budget 30m --set unspelled=0.05 --out held-out
    python benchmarks/unseen_vectors.py held-out [--words 200] [--contexts 5] [--minutes 30]

Some lexemes were never spelled in training (`unspelled`): their embeddings come from use alone.
From the spelling of each, from some sentences of the validation text, and from both, a vector is
inferred as if the lexeme were not there, and all lexemes are ranked by their cosine with it. What
counts is the reciprocal rank of the lexeme itself.

Beside it gensim's FastText, trained on the same text for as long: there the same words are replaced
by codes (so that their vectors come from use alone too), and a vector is put together from the
n-grams of the real spelling.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spellonce.model import Model, load
from spellonce.text import line_tokens
from spellonce.vectors import GAP

Floats = NDArray[np.float32]


def chosen_words(model: Model, n: int) -> list[str]:
    """Held-out lexemes of letters, seen often enough that use has taught something."""
    share = model.recipe.objective.unspelled
    if not share:
        sys.exit("the run was not trained with --set unspelled=…: nothing is held out")
    ids = np.flatnonzero(model.lexicon.unspelled(share))
    often = [i for i in ids.tolist() if model.lexicon.counts[i] >= 20]
    words = [model.lexicon.types[i] for i in often]
    return [word for word in words if word.isalpha() and len(word) > 3][-n:]


def sentences(model: Model, words: set[str], most: int) -> dict[str, list[str]]:
    """Lines of valid in which words stand, with a gap in their place."""
    found: dict[str, list[str]] = {word: [] for word in words}
    for line in model.split_lines("valid"):
        tokens = line_tokens(line.rstrip("\n"), model.format)
        for i, token in enumerate(tokens):
            if token in words and len(found[token]) < most:
                before, after = tokens[max(0, i - 30) : i], tokens[i + 1 : i + 21]
                found[token].append(" ".join([*before, GAP, *after]))
    return found


def reciprocal_ranks(matrix: Floats, vectors: Floats, own: list[int]) -> Floats:
    """1 / rank of rows `own` of a matrix by their cosine with vectors."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(1e-9)
    cosines = unit @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)).T
    right = cosines[own, np.arange(len(own))]
    ranks: Floats = 1 / (1 + (cosines > right).sum(0))
    return ranks


def ours(model: Model, words: list[str], contexts: dict[str, list[str]]) -> dict[str, float]:
    """Mean reciprocal rank from the spelling, from contexts, and from both."""
    vectors = model.vectors()
    matrix = np.stack([vectors.of(word) for word in vectors.words])
    own = [vectors.words.index(word) for word in words]
    ways: dict[str, list[Floats]] = {"spelling": [], "contexts": [], "both": []}
    for word in words:
        given = contexts[word]
        ways["spelling"].append(vectors.infer(word))
        ways["contexts"].append(vectors.infer(None, given) if given else matrix.mean(0))
        ways["both"].append(vectors.infer(word, given))
    return {
        way: float(reciprocal_ranks(matrix, np.stack(found), own).mean())
        for way, found in ways.items()
    }


class Lines:
    """The training text, the held-out words in code; as often as it is asked for."""

    def __init__(self, model: Model, codes: dict[str, str]) -> None:
        self._model, self._codes = model, codes

    def __iter__(self) -> Iterator[list[str]]:
        for line in self._model.split_lines("train"):
            tokens = line_tokens(line.rstrip("\n"), self._model.format)
            if tokens:
                yield [self._codes.get(token, token) for token in tokens]


def fasttext(model: Model, words: list[str], seconds: float, width: int) -> dict[str, Any]:
    """The same by FastText."""
    from gensim.models import FastText

    held_out = model.lexicon.unspelled(model.recipe.objective.unspelled)
    names = [model.lexicon.types[i] for i in np.flatnonzero(held_out).tolist()]
    codes = {word: f"\ue000{i}\ue001" for i, word in enumerate(names)}
    text: Iterable[list[str]] = Lines(model, codes)
    learner = FastText(vector_size=width, window=5, min_count=3, workers=2, seed=1)
    learner.build_vocab(corpus_iterable=text)
    begin, epochs = time.perf_counter(), 0
    while epochs == 0 or time.perf_counter() - begin < seconds:
        learner.train(text, total_examples=learner.corpus_count, epochs=1, start_alpha=0.025,
                      end_alpha=0.02 if epochs < 20 else 0.005)  # fmt: skip
        epochs += 1
    vectors = learner.wv
    known = [word for word in words if codes[word] in vectors.key_to_index]
    own = [vectors.key_to_index[codes[word]] for word in known]
    found = np.stack([vectors.get_vector(word) for word in known])  # none of them is in it
    ranks = reciprocal_ranks(vectors.vectors, found, own)
    return {"spelling": float(ranks.mean()), "epochs": epochs, "words": len(known)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--contexts", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30.0)
    arguments = parser.parse_args()
    model = load(arguments.run)
    words = chosen_words(model, arguments.words)
    contexts = sentences(model, set(words), arguments.contexts)
    words = [word for word in words if contexts[word]]
    width = model.vectors().of(words[0]).shape[0]
    print(json.dumps({
        "words": len(words), "ours": ours(model, words, contexts),
        "fasttext": fasttext(model, words, 60 * arguments.minutes, width),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
