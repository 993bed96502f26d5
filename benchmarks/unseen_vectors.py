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
from spellonce.text import GAP, UNSPELLED, read, training_tokens

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
    """Lines of valid in which words stand, with a gap in their place, cut to what is near."""
    found: dict[str, list[str]] = {word: [] for word in words}
    for line in model.split_lines("valid"):
        reading = read([line], model.format)
        for token, start, end in zip(reading.tokens, reading.start, reading.end, strict=True):
            if token in words and len(found[token]) < most:
                before, after = line[:start], line[end:].rstrip("\n")
                if len(before) > 150:
                    before = before[-150:].partition(" ")[2]
                if len(after) > 120:
                    after = after[:120].rpartition(" ")[0]
                if GAP not in before + after:
                    found[token].append(f"{before}{GAP}{after}")
    return found


def mean_reciprocal_rank(matrix: Floats, vectors: Floats, own: list[int]) -> float:
    """Of rows `own` of a matrix by their cosine with vectors; equals share their ranks."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(1e-9)
    cosines = unit @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9)).T
    right = cosines[own, np.arange(len(own))]
    ranks = 1 + (cosines > right).sum(0) + ((cosines == right).sum(0) - 1) / 2
    return float(np.mean(1 / ranks))


def ours(
    model: Model, words: list[str], contexts: dict[str, list[str]], among: list[str]
) -> dict[str, float]:
    """From the spelling, from contexts, and from both."""
    vectors = model.vectors()
    matrix = np.stack([vectors.of(word) for word in among])
    own = [among.index(word) for word in words]
    ways: dict[str, list[Floats]] = {"spelling": [], "contexts": [], "both": []}
    for word in words:
        ways["spelling"].append(vectors.infer(word))
        ways["contexts"].append(vectors.infer(None, contexts[word]))
        ways["both"].append(vectors.infer(word, contexts[word]))
    return {way: mean_reciprocal_rank(matrix, np.stack(found), own) for way, found in ways.items()}


class Lines:
    """The training text, the held-out words in code; as often as it is asked for."""

    def __init__(self, model: Model, codes: dict[str, str]) -> None:
        self._model, self._codes = model, codes

    def __iter__(self) -> Iterator[list[str]]:
        for line in self._model.split_lines("train"):
            tokens = training_tokens(line.rstrip("\n"), self._model.format)
            if tokens:
                yield [self._codes.get(t, t) for t in tokens if t != UNSPELLED]


def codes_of(model: Model) -> dict[str, str]:
    """One character that is in no text for each held-out word: its only n-gram is itself."""
    held_out = np.flatnonzero(model.lexicon.unspelled(model.recipe.objective.unspelled))
    return {model.lexicon.types[i]: chr(0xF0000 + n) for n, i in enumerate(held_out.tolist())}


def fasttext(model: Model, seconds: float, width: int) -> tuple[Any, int]:
    """FastText (skip-gram), trained for about so long; how many epochs that were."""
    from gensim.models import FastText

    text: Iterable[list[str]] = Lines(model, codes_of(model))
    options = {"vector_size": width, "window": 5, "min_count": 1, "workers": 2, "seed": 1, "sg": 1}
    trial = FastText(**options)
    trial.build_vocab(corpus_iterable=text)
    begin = time.perf_counter()
    trial.train(text, total_examples=trial.corpus_count, epochs=1)
    epochs = max(1, round(seconds / (time.perf_counter() - begin)))
    learner = FastText(**options)
    learner.build_vocab(corpus_iterable=text)
    learner.train(text, total_examples=learner.corpus_count, epochs=epochs)
    return learner.wv, epochs


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
    theirs, epochs = fasttext(model, 60 * arguments.minutes, width)
    codes = codes_of(model)
    among = [w for w in model.vectors().words if codes.get(w, w) in theirs.key_to_index]
    words = [word for word in words if word in among]
    matrix = np.stack([theirs.get_vector(codes.get(word, word)) for word in among])
    spelled = np.stack([theirs.get_vector(word) for word in words])  # from n-grams: not in it
    own = [among.index(word) for word in words]
    print(json.dumps({
        "words": len(words), "among": len(among), "ours": ours(model, words, contexts, among),
        "fasttext": {"spelling": mean_reciprocal_rank(matrix, spelled, own), "epochs": epochs},
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
