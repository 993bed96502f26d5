"""Vectors for words never seen: how near is what is inferred to what use would have taught?

    spellonce train … --recipe cpu --budget 30m --set unspelled=0.05 --out held-out
    python benchmarks/unseen_vectors.py held-out [--words 200] [--contexts 5] [--minutes 30]

Some lexemes were never spelled in training (`unspelled`): their embeddings come from use alone.
From the spelling of each, from some sentences of the validation text in which it stands once, and
from both, a vector is inferred as if the lexeme were not there, and all lexemes are ranked by their
cosine with it, from the mean of all. Figures are the mean reciprocal rank of the lexeme itself, and
how many of its ten nearest lexemes are among the ten nearest of what was inferred.

Beside it gensim's FastText (skip-gram), trained on the same text for as long as our training took,
and with its own five epochs: there the same words are replaced by codes (so that their vectors come
from use alone too). A vector is put together from the n-grams of the real spelling, is the mean of
the words within five of the gaps, or the sum of both at unit length.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spellonce.loading import load
from spellonce.model import Model
from spellonce.text import GAP, UNSPELLED, around_gap, read, training_tokens

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
    """Lines of valid in which words stand once, a gap in their place, cut to what is near."""
    found: dict[str, list[str]] = {word: [] for word in words}
    for line in model.split_lines("valid"):
        reading = read([line], model.format)
        times = Counter(token.casefold() for token in reading.tokens)
        for token, start, end in zip(reading.tokens, reading.start, reading.end, strict=True):
            is_alone = times[token.casefold()] == 1  # else its embedding would be in the context
            if token in words and is_alone and len(found[token]) < most:
                before, after = line[:start], line[end:].rstrip("\n")
                if len(before) > 150:
                    before = before[-150:].partition(" ")[2]
                if len(after) > 120:
                    after = after[:120].rpartition(" ")[0]
                if GAP not in before + after:
                    found[token].append(f"{before}{GAP}{after}")
    return found


def unit(rows: Floats) -> Floats:
    found: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)
    return found


def figures(matrix: Floats, vectors: Floats, own: list[int]) -> dict[str, float]:
    """How near vectors are to rows `own` of a matrix; equals share their ranks."""
    mean = matrix.mean(0)
    every = unit(matrix - mean)
    cosines = every @ unit(vectors - mean).T
    right = cosines[own, np.arange(len(own))]
    ranks = 1 + (cosines > right).sum(0) + ((cosines == right).sum(0) - 1) / 2
    true = every @ every[own].T
    for near in (cosines, true):
        near[own, np.arange(len(own))] = -2.0  # not the word itself
    nearest = [np.argpartition(-near, 10, axis=0)[:10] for near in (cosines, true)]
    shared = [len({*a} & {*b}) for a, b in zip(nearest[0].T, nearest[1].T, strict=True)]
    return {
        "mrr": round(float(np.mean(1 / ranks)), 4), "overlap": round(float(np.mean(shared)), 3),
    }  # fmt: skip


def ours(
    model: Model, words: list[str], contexts: dict[str, list[str]], among: list[str]
) -> dict[str, dict[str, float]]:
    """From the spelling, from contexts, and from both."""
    vectors = model.vectors()
    matrix = np.stack([vectors.of(word) for word in among])
    own = [among.index(word) for word in words]
    ways: dict[str, list[Floats]] = {"spelling": [], "contexts": [], "both": []}
    for word in words:
        ways["spelling"].append(vectors.infer(word))
        ways["contexts"].append(vectors.infer(None, contexts[word]))
        ways["both"].append(vectors.infer(word, contexts[word]))
    return {way: figures(matrix, np.stack(found), own) for way, found in ways.items()}


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


def train_fasttext(model: Model, epochs: int, width: int) -> Any:
    """FastText (skip-gram) and how many seconds it took."""
    from gensim.models import FastText

    text: Iterable[list[str]] = Lines(model, codes_of(model))
    learner = FastText(vector_size=width, window=5, min_count=1, workers=2, seed=1, sg=1)
    learner.build_vocab(corpus_iterable=text)
    begin = time.perf_counter()
    learner.train(text, total_examples=learner.corpus_count, epochs=epochs)
    return learner.wv, time.perf_counter() - begin


def theirs(
    model: Model, wv: Any, words: list[str], contexts: dict[str, list[str]], among: list[str]
) -> dict[str, dict[str, float]]:
    """The same three ways for FastText."""
    codes = codes_of(model)
    matrix = np.stack([wv.get_vector(codes.get(word, word)) for word in among])
    own = [among.index(word) for word in words]
    spelled = np.stack([wv.get_vector(word) for word in words])  # from n-grams: they are not in it
    around = np.stack([mean_of_context(model, wv, codes, contexts[word]) for word in words])
    ways = {"spelling": spelled, "contexts": around, "both": unit(spelled) + unit(around)}
    return {way: figures(matrix, found, own) for way, found in ways.items()}


def mean_of_context(
    model: Model, wv: Any, codes: dict[str, str], contexts: list[str], window: int = 5
) -> Floats:
    near = []
    for context in contexts:
        before, after = around_gap(context, model.format)
        near += [*before[-window:], *after[:window]]
    known = [codes.get(token, token) for token in near]
    rows = [wv.get_vector(token) for token in known if token in wv.key_to_index]
    found: Floats = np.mean(rows, axis=0) if rows else np.zeros(wv.vector_size, np.float32)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--contexts", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="of FastText, instead of the run's own")
    arguments = parser.parse_args()
    model = load(arguments.run)
    words = chosen_words(model, arguments.words)
    contexts = sentences(model, set(words), arguments.contexts)
    words = [word for word in words if contexts[word]]
    if not words:
        sys.exit("none of the lexemes that were held out stands in the validation text")
    width = model.vectors().of(words[0]).shape[0]
    seconds = json.loads((arguments.run / "result.json").read_text())["seconds"]
    if arguments.minutes is not None:
        seconds = 60 * arguments.minutes
    five, took = train_fasttext(model, 5, width)
    epochs = max(1, round(seconds / took * 5))
    as_long, _ = train_fasttext(model, epochs, width)
    codes = codes_of(model)
    among = [w for w in model.vectors().words if codes.get(w, w) in five.key_to_index]
    words = [word for word in words if word in set(among)]
    print(json.dumps({
        "words": len(words), "contexts": sum(len(contexts[word]) for word in words),
        "among": len(among), "ours": ours(model, words, contexts, among),
        "fasttext, 5 epochs": theirs(model, five, words, contexts, among),
        f"fasttext, {epochs} epochs": theirs(model, as_long, words, contexts, among),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
