"""Does surprisal predict how long people look at words? The Natural Stories corpus (Futrell 2021).

    python benchmarks/reading_times.py RUN [RUN …] [--quick] [--json]

The reading time of each word (geometric mean over readers) is regressed on what is known of it and
of the two words before it without any language model: length, log frequency, punctuation, where in
the story and whether at the beginning of a sentence. Then surprisal of the word and of the one
before is added. What counts is the gain in log-likelihood per word on a story that the regression
has not seen, over all ten of them: for the model, for GPT-3's bits (which come with the data), and
for a bigram counted on the text that the model was trained on. Frequencies are those of that text
as well, so a run's figures compare with each other, not with another run's.

The model's surprisal comes in several forms: as it is; with the end of a word in its own bits; what
it takes to choose a lexeme and to spell a novel word as two predictors; and, if the run was tuned,
of a model that learns while it reads. The best of them on the first five stories is named, and what
it gains on the other five, which had no part in the choice. `--quick`: the first form alone.

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
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spellonce import encoding, ngrams
from spellonce.adaptive import Learning
from spellonce.evaluation import TokenScores
from spellonce.lexicon import EOS_ID, UNK_ID
from spellonce.loading import load
from spellonce.model import Model
from spellonce.ngrams import Ngrams
from spellonce.surprisal import Rows, View
from spellonce.two_level import TwoLevel

Floats = NDArray[np.float64]
WORDS = View("word", "skip")
SPILLOVER = 2
"""Words before, whose length and frequency are known too."""


def read_words(path: Path) -> list[dict[str, str]]:
    """The rows of the corpus."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def story_text(rows: list[dict[str, str]]) -> str:
    return " ".join(row["word"] for row in rows) + "\n"


def by_word(model: Model, text: str, scores: TokenScores, view: View = WORDS) -> Rows:
    """The rows of the words of a story, punctuation included."""
    rows = view.rows(scores)
    assert [text[row["start"] : row["end"]] for row in rows] == text.split()
    return rows


def surprisal(
    model: Model, texts: list[str], learning: Learning, *, own_ends: bool = False
) -> list[Rows]:
    """The same for each of some stories."""
    view = replace(WORDS, word_ends="own") if own_ends else WORDS
    found = []
    for text, scores in zip(texts, model.score_texts(texts, learning), strict=True):
        if own_ends:
            scores = replace(scores, nats_end=model.word_ends(text, learning))
        found.append(by_word(model, text, scores, view))
    return found


def column(table: Rows, name: str = "bits") -> Floats:
    return np.array([row[name] for row in table])


def forms(model: Model, texts: list[str], *, quick: bool) -> dict[str, list[list[Floats]]]:
    """Predictors of the words of each story, by what they are."""
    plain = surprisal(model, texts, Learning())
    found = {"surprisal": [[column(table)] for table in plain]}
    if quick:
        return found
    own = surprisal(model, texts, Learning(), own_ends=True)
    found["its own end in it"] = [[column(table)] for table in own]
    found["lexeme and spelling apart"] = [
        [column(table, "bits_lexeme"), column(table, "bits_spelling")] for table in plain
    ]
    if model.folder is not None and (model.folder / "adaptive.json").is_file():
        modes = [Learning(cache=True)]
        if model.tuned().dynamic is not None:
            modes += [Learning(dynamic=True), Learning(cache=True, dynamic=True)]
        for mode in modes:
            found[mode.name] = [[column(table)] for table in surprisal(model, texts, mode)]
    return found


def bigram_bits(model: Model, stories: list[str]) -> list[Floats] | None:
    """The same by a bigram (Kneser–Ney) of the training text; novel words are spelled by the model.

    None where the run came without its text, and without such counts of it.
    """
    counted = bigram(model)
    if counted is None:
        return None
    found = []
    for text in stories:
        scores = model.score(text)
        reading_ids, _ = model.lexicon.encode(model.tokens(text))
        p, _ = counted.probabilities(reading_ids[:, None], np.array([[EOS_ID]]))
        found.append(column(by_word(model, text, replace(scores, nats_lexeme=-np.log(p[:, 0])))))
    return found


def bigram(model: Model) -> Ngrams | None:
    """Counts of pairs of lexemes: the model's own, or those of the text beside it."""
    network = model.network
    if not isinstance(network, TwoLevel):
        return None
    if network.mixture is not None and network.mixture.ngrams.reach == 1:
        return network.mixture.ngrams
    path = None if model.folder is None else model.folder / "data/train.ids"
    if path is None or not path.is_file():
        return None
    ids, n = encoding.open_ids(path), model.lexicon.n_lexemes
    return ngrams.count(np.where(ids < n, ids, UNK_ID), n, 2)


def log_frequency(counts: Counter[str], word: str) -> float:
    """Of the rarest part of a word that has a letter or a digit in it, in whatever case."""
    parts = re.findall(r"\w+", word.casefold()) or [word]
    return math.log(1 + min(counts[part] for part in parts))


def counted_types(model: Model) -> Counter[str]:
    """How often each type was seen in training, in whatever case."""
    found: Counter[str] = Counter()
    for word, n in zip(model.lexicon.types, model.lexicon.counts.tolist(), strict=True):
        found[word.casefold()] += n
    return found


def controls(story: list[dict[str, str]], counts: Counter[str]) -> Floats:
    """What is known of words without a language model."""
    words = [row["word"] for row in story]
    length = np.array([float(len(word)) for word in words])
    often = np.array([log_frequency(counts, word) for word in words])
    place = np.arange(len(words), dtype=np.float64)
    marked = np.array([float(not word[-1].isalnum()) for word in words])
    ends = [float(word.rstrip("'\")")[-1:] in {".", "!", "?"}) for word in words]
    begins = np.array([1.0, *ends[:-1]])
    return np.stack(
        [*lagged(length, SPILLOVER), *lagged(often, SPILLOVER), *lagged(marked, 1),
         *lagged(begins, 1), place]
    )  # fmt: skip


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


def evaluate(model: Model, rows: list[dict[str, str]], *, quick: bool) -> dict[str, Any]:
    """The gains of the model, of GPT-3 and of a bigram, on the same words."""
    by_story: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_story.setdefault(row["story"], []).append(row)
    stories = list(by_story.values())
    texts = [story_text(story) for story in stories]
    times = [np.log([float(row["gmean_rt_ms"]) for row in story]) for story in stories]
    counts = counted_types(model)
    base = [controls(story, counts) for story in stories]
    used = []
    gpt3: list[list[Floats]] = []
    for story in stories:
        bits = [float(row["gpt3_bits"]) if row["gpt3_bits"] else math.nan for row in story]
        known = np.isfinite(bits)
        known[: SPILLOVER + 1] = False
        known[1:] &= np.isfinite(bits)[:-1]
        used.append(known)
        gpt3.append([np.nan_to_num(np.array(bits))])
    ours = forms(model, texts, quick=quick)
    others = {"GPT-3": gpt3}
    bigram = bigram_bits(model, texts)
    if bigram is not None:
        others["bigram"] = [[bits] for bits in bigram]
    n_words = np.array([u.sum() for u in used])
    found = {
        name: gains_by_story(
            times, base, [np.stack([x for c in own for x in lagged(c, 1)]) for own in columns], used
        )
        for name, columns in (ours | others).items()
    }
    first = slice(0, len(stories) // 2)
    best = max(ours, key=lambda name: float((found[name] * n_words)[first].sum()))
    last = slice(len(stories) // 2, None)
    flat = [
        np.concatenate([b[0][u] for b, u in zip(columns, used, strict=True)])
        for columns in (ours["surprisal"], gpt3)
    ]
    return {
        "n_words": int(n_words.sum()),
        "gains": {name: summary(gains, n_words) for name, gains in found.items()},
        "minus_gpt3": {name: summary(found[name] - found["GPT-3"], n_words) for name in ours},
        "chosen": best,
        "chosen_on_the_others": summary(found[best][last], n_words[last]),
        "gpt3_on_the_others": summary(found["GPT-3"][last], n_words[last]),
        "correlation_with_gpt3": float(np.corrcoef(*flat)[0, 1]),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="+")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    path = Path(os.environ.get("SPELLONCE_DATA", "")) / "natural-stories/reading_times.tsv"
    if not path.is_file():
        print("needs natural-stories/reading_times.tsv under $SPELLONCE_DATA", file=sys.stderr)
        return 1
    rows = read_words(path)
    for run in arguments.run:
        model = load(run)
        if model.format.tokenization == "spaces":
            print(
                f"{run} reads text that is tokenised already; the stories are not", file=sys.stderr
            )
            return 1
        found = evaluate(model, rows, quick=arguments.quick)
        if arguments.json:
            print(json.dumps({"run": run, **found}))
            continue
        print(f"{run}: {found['n_words']:,} words; gain in held-out log-likelihood, nats a word")
        for name, value in found["gains"].items():
            apart = found["minus_gpt3"].get(name)
            told = "" if apart is None else (
                f"   minus GPT-3's {apart['nats_per_word']:+.5f} ± {apart['standard_error']:.5f}"
            )  # fmt: skip
            print(f"  {name:26} {value['nats_per_word']:.5f} ± {value['standard_error']:.5f}{told}")
        chosen, gpt3 = found["chosen_on_the_others"], found["gpt3_on_the_others"]
        print(
            f"  best on the first five stories: {found['chosen']}; on the other five it gains "
            f"{chosen['nats_per_word']:.5f}, GPT-3's bits {gpt3['nats_per_word']:.5f}"
        )
        print(f"  correlation with GPT-3's bits: {found['correlation_with_gpt3']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
