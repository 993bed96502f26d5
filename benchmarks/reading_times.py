"""Does surprisal predict how long people look at words? The Natural Stories corpus (Futrell 2021).

    python benchmarks/reading_times.py RUN [RUN …] [--cache] [--json]

The reading time of each word (geometric mean over readers) is regressed on what is known of it and
of the two words before it without any language model: length and log frequency. Then surprisal of
the word and of the one before is added. What counts is the gain in log-likelihood per word on a
story that the regression has not seen, over all ten of them: for the model, for GPT-3's bits (which
come with the data), and for a bigram counted on the text that the model was trained on. Frequencies
are those of that text as well, so a run's figures compare with each other, not with another run's.

Needs `natural-stories/reading_times.tsv` under `$SPELLONCE_DATA`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spellonce import encoding, ngrams
from spellonce.adaptive import Learning
from spellonce.lexicon import EOS_ID, UNK_ID
from spellonce.model import Model, load
from spellonce.surprisal import View
from spellonce.two_level import TwoLevel

Floats = NDArray[np.float64]
SPILLOVER = 2
"""Words before, whose length and frequency are known too."""


def read_words(path: Path) -> list[dict[str, str]]:
    """The rows of the corpus."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def story_text(rows: list[dict[str, str]]) -> str:
    return " ".join(row["word"] for row in rows) + "\n"


def surprisal(model: Model, stories: list[str], learning: Learning) -> list[Floats]:
    """Bits of every word of each story, punctuation included."""
    view = View("word", "skip")
    found = []
    for text, scores in zip(stories, model.score_texts(stories, learning), strict=True):
        rows = view.rows(scores)
        assert [text[row["start"] : row["end"]] for row in rows] == text.split()
        found.append(np.array([row["bits"] for row in rows]))
    return found


def bigram_bits(model: Model, stories: list[str]) -> list[Floats] | None:
    """The same by a bigram (Kneser–Ney) of the training text; unknown words are one.

    None where the run came without its text.
    """
    lexicon = model.lexicon
    path = None if model.folder is None else model.folder / "data/train.ids"
    if path is None or not path.is_file() or not isinstance(model.network, TwoLevel):
        return None
    ids = encoding.open_ids(path)
    known = np.where(ids < lexicon.n_lexemes, ids, UNK_ID)
    counted = ngrams.count(known, lexicon.n_lexemes, 2)
    view = View("word", "skip")
    found = []
    for text in stories:
        scores = model.score(text)
        reading_ids, _ = lexicon.encode(model.tokens(text))
        p, _ = counted.probabilities(reading_ids[:, None], np.array([[EOS_ID]]))
        bits = -np.log(p[:, 0])
        rows = view.rows(replace(scores, nats_lexeme=bits, nats_spelling=0 * bits))
        found.append(np.array([row["bits"] for row in rows]))
    return found


def log_frequency(model: Model, word: str) -> float:
    """Of the rarest part of a word that has a letter or a digit in it."""
    parts = re.findall(r"\w+", word) or [word]
    ids = [model.lexicon.type_id(part) for part in parts]
    return math.log(1 + min(0 if i is None else int(model.lexicon.counts[i]) for i in ids))


def lagged(column: Floats, n: int) -> list[Floats]:
    """A predictor and what it was n words before; the first words have that of the first."""
    return [
        np.concatenate([np.full(k, column[0]), column[: len(column) - k]]) for k in range(n + 1)
    ]


def gains_by_story(
    times: list[Floats], base: list[Floats], more: list[Floats], used: list[NDArray[np.bool_]]
) -> Floats:
    """The log-likelihood per word that predictors add on each story, held out."""
    stories = range(len(times))
    gains = []
    for held_out in stories:
        others = [i for i in stories if i != held_out]
        likelihood = []
        for columns in (base, [np.concatenate([a, b]) for a, b in zip(base, more, strict=True)]):
            x = np.concatenate([columns[i][:, used[i]] for i in others], 1)
            y = np.concatenate([times[i][used[i]] for i in others])
            mean, scale = x.mean(1, keepdims=True), x.std(1, keepdims=True) + 1e-12
            design = np.vstack([np.ones(x.shape[1]), (x - mean) / scale]).T
            weights, *_ = np.linalg.lstsq(design, y, rcond=None)
            variance = np.mean((y - design @ weights) ** 2)
            new = (columns[held_out][:, used[held_out]] - mean) / scale
            error = (
                times[held_out][used[held_out]]
                - np.vstack([np.ones(new.shape[1]), new]).T @ weights
            )
            likelihood.append(
                float(np.mean(-0.5 * np.log(2 * np.pi * variance) - error**2 / (2 * variance)))
            )
        gains.append(likelihood[1] - likelihood[0])
    return np.array(gains)


def summary(gains: Floats, n_words: NDArray[np.int64]) -> dict[str, float]:
    """The gain over all words, and its standard error over stories."""
    mean = float((gains * n_words).sum() / n_words.sum())
    error = float(np.std(gains, ddof=1) / math.sqrt(len(gains)))
    return {"nats_per_word": mean, "standard_error": error}


def evaluate(model: Model, rows: list[dict[str, str]], learning: Learning) -> dict[str, Any]:
    """The gains of the model, of GPT-3 and of a bigram, on the same words."""
    by_story: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_story.setdefault(row["story"], []).append(row)
    stories = list(by_story.values())
    texts = [story_text(story) for story in stories]
    times = [np.log([float(row["gmean_rt_ms"]) for row in story]) for story in stories]
    used, base = [], []
    gpt3: list[Floats] = []
    for story in stories:
        bits = [float(row["gpt3_bits"]) if row["gpt3_bits"] else math.nan for row in story]
        known = np.isfinite(bits)
        known[: SPILLOVER + 1] = False
        known[1:] &= np.isfinite(bits)[:-1]
        used.append(known)
        gpt3.append(np.nan_to_num(np.array(bits)))
        length = np.array([float(len(row["word"])) for row in story])
        often = np.array([log_frequency(model, row["word"]) for row in story])
        place = np.arange(len(story), dtype=np.float64)
        base.append(np.stack([*lagged(length, SPILLOVER), *lagged(often, SPILLOVER), place]))
    predictors = {"ours": surprisal(model, texts, learning), "GPT-3": gpt3}
    bigram = bigram_bits(model, texts)
    if bigram is not None:
        predictors["bigram"] = bigram
    n_words = np.array([u.sum() for u in used])
    found = {
        name: gains_by_story(times, base, [np.stack(lagged(c, 1)) for c in bits], used)
        for name, bits in predictors.items()
    }
    result: dict[str, Any] = {
        "n_words": int(n_words.sum()),
        "gains": {name: summary(gains, n_words) for name, gains in found.items()},
        "ours_minus_gpt3": summary(found["ours"] - found["GPT-3"], n_words),
    }
    flat = [np.concatenate([b[u] for b, u in zip(bits, used, strict=True)]) for bits in
            (predictors["ours"], predictors["GPT-3"])]  # fmt: skip
    result["correlation_with_gpt3"] = float(np.corrcoef(*flat)[0, 1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="+")
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    path = Path(os.environ.get("SPELLONCE_DATA", "")) / "natural-stories/reading_times.tsv"
    if not path.is_file():
        print("needs natural-stories/reading_times.tsv under $SPELLONCE_DATA", file=sys.stderr)
        return 1
    rows = read_words(path)
    for run in arguments.run:
        found = evaluate(load(run), rows, Learning(cache=arguments.cache))
        if arguments.json:
            print(json.dumps({"run": run, **found}))
            continue
        print(f"{run}: {found['n_words']:,} words; gain in held-out log-likelihood, nats a word")
        for name, value in found["gains"].items():
            print(f"  {name:8} {value['nats_per_word']:.5f} ± {value['standard_error']:.5f}")
        apart = found["ours_minus_gpt3"]
        print(f"  ours minus GPT-3 {apart['nats_per_word']:+.5f} ± {apart['standard_error']:.5f}")
        print(f"  correlation with GPT-3's bits: {found['correlation_with_gpt3']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
