"""A trained model: load it, score text, write text, spell words.

import spellonce
m = spellonce.load("runs/mine")
m.score("The wug zibbled.").bits        # one figure per token
m.sample(50, temperature=0.8, seed=1).text
m.spell(like="walked")                  # words that look as `walked` might
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spellonce import inspection, runtime
from spellonce.adaptive import Adaptation, Learning, Reader
from spellonce.configuration import Recipe
from spellonce.errors import ConfigError, RunError
from spellonce.evaluation import TokenScores, figures, recurrence
from spellonce.generation import Generator, Piece, Sample
from spellonce.lexicon import Lexicon
from spellonce.network import Network, fingerprint
from spellonce.preparation import source_of
from spellonce.runs import RunFolder
from spellonce.scoring import (
    merged,
    score_adaptively,
    score_reading,
    score_readings,
)
from spellonce.stepping import Stepper
from spellonce.surprisal import WHOLE, Items, Rows, View
from spellonce.text import Reading, TextFormat, read, split_lines
from spellonce.two_level import TwoLevel
from spellonce.unit_lm import UnitLM
from spellonce.vectors import Vectors
from spellonce.wugs import Constraints, Draws, draw_words

STATIC, NOTHING = Learning(), Adaptation()


@dataclass(frozen=True)
class Model:
    """A network with its lexicon, recipe and way of reading text."""

    network: Network
    lexicon: Lexicon
    recipe: Recipe
    format: TextFormat
    config: dict[str, Any]
    """The run's `config.json`."""
    folder: RunFolder | None = None
    """Where it was loaded from."""

    def score(self, text: str, learning: Learning = STATIC) -> TokenScores:
        """The probability of every token of a text, which is read as one stream.

        `learning`: what the model learns while it reads; the run must have been tuned for it.
        """
        return self.score_lines(split_lines(text), learning)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text as the model knows them, an EOS for each line break."""
        return read(split_lines(text), self.format).tokens

    def score_lines(self, lines: str | Iterable[str], learning: Learning = STATIC) -> TokenScores:
        """The same for lines, each with its `\\n` but perhaps the last."""
        reading = read(split_lines(lines) if isinstance(lines, str) else lines, self.format)
        if learning:
            return self._learned([reading], learning)[0]
        return score_reading(self.network, self.lexicon, reading)

    def score_texts(
        self,
        texts: Sequence[str],
        learning: Learning = STATIC,
        *,
        apart: bool = False,
        context: str = "",
        pairs: bool = False,
    ) -> list[TokenScores]:
        """Many texts, each on its own, as `score` does: side by side, and so faster.

        `apart`: each line is scored as a text of its own. `context` comes before each text, or
        before each line, and has no rows; a space is put behind it if there is none. `pairs`: each
        line is a context of its own, a tab, and what is scored after it.
        """
        return self._score_items(texts, learning, Items(apart, context, pairs))

    def _score_items(
        self, texts: Sequence[str], learning: Learning, items: Items
    ) -> list[TokenScores]:
        if isinstance(texts, str):
            texts = [texts]
        parts = [items.parts(text) for text in texts]
        every = [read(split_lines(p.before + p.text), self.format) for own in parts for p in own]
        if learning:
            found = self._learned(every, learning)
        else:
            found = score_readings(self.network, self.lexicon, every)
        left = iter(found)
        return [
            merged([next(left).after(part.before).moved(part.skipped) for part in own])
            for own in parts
        ]

    def _learned(self, readings: Sequence[Reading], learning: Learning) -> list[TokenScores]:
        """Each is read by a reader of its own."""
        learner = self._learner(learning)
        return [
            score_adaptively(Reader(*learner), reading, reset=learning.reset)
            for reading in readings
        ]

    def spelled_bits(self, text: str, items: Items = WHOLE) -> dict[int, list[tuple[str, float]]]:
        """(character, its bits) of each novel token of a text, by the token's place.

        The last of them, with no character, is the end of the word.
        """
        network, *_ = self._learner(STATIC)
        return inspection.spellings(items.parts(text), self.format, network, self.lexicon)

    def surprisal(
        self,
        texts: Sequence[str],
        view: View | None = None,
        learning: Learning = STATIC,
        *,
        apart: bool = False,
        context: str = "",
        pairs: bool = False,
        characters: bool = False,
        entropy: bool = False,
    ) -> list[Rows]:
        """The rows of `spellonce score` for each of some texts.

        `characters`: how the spelling of novel words adds up; `entropy`: how uncertain the model
        was, and the rank of each token.
        """
        tables = self.each_surprisal(
            texts, view, learning, apart=apart, context=context, pairs=pairs,
            characters=characters, entropy=entropy,
        )  # fmt: skip
        return [list(rows) for rows in tables]

    def each_surprisal(
        self,
        texts: Sequence[str],
        view: View | None = None,
        learning: Learning = STATIC,
        *,
        apart: bool = False,
        context: str = "",
        pairs: bool = False,
        characters: bool = False,
        entropy: bool = False,
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The same, row after row: those of a long text take more memory than its scores."""
        view = view or View()
        if (characters or entropy) and view.by != "token":
            raise ConfigError("--characters and --entropy are about tokens: leave --by out")
        if characters and learning:
            raise ConfigError("--characters is about a static model: leave --cache, --dynamic out")
        if (entropy or view.word_ends == "own") and learning.reset:
            raise ConfigError("--entropy and --word-ends own have no --reset")
        texts = [texts] if isinstance(texts, str) else texts
        items = Items(apart, context, pairs)
        every = self._score_items(texts, learning, items)

        def rows_of(text: str, scores: TokenScores) -> Iterator[dict[str, Any]]:
            if view.word_ends == "own":
                ends = self.word_ends(text, learning, items)
                scores = replace(scores, nats_end=ends)
            spelled: dict[int, list[tuple[str, float]]] = {}
            expected: dict[int, tuple[float, int]] = {}
            if characters:
                found = self.spelled_bits(text, items)
                spelled = {int(scores.start[i]): bits for i, bits in found.items()}
            if entropy:
                told = self.expectations(text, learning, items)
                expected = dict(zip(scores.start.tolist(), told, strict=True))
            for row in view.each_row(scores):
                if characters:
                    row["characters"] = spelled.get(row["start"], [])
                if entropy:
                    row["entropy"], row["rank"] = expected[row["start"]]
                yield row

        return (rows_of(*one) for one in zip(texts, every, strict=True))

    def expectations(
        self,
        text: str,
        learning: Learning = STATIC,
        items: Items = WHOLE,
    ) -> list[tuple[float, int]]:
        """(entropy before it, in bits; its rank among all that might have come) of each token."""
        return inspection.expectations(
            items.parts(text), self.format, lambda: self.stepper(learning)
        )

    def word_ends(
        self,
        text: str,
        learning: Learning = STATIC,
        items: Items = WHOLE,
    ) -> NDArray[np.float64]:
        """−log p that the word ends behind each token; zero where it goes on, and at line ends."""
        return inspection.word_ends(
            items.parts(text), self.format, lambda: self.stepper(learning), self.lexicon
        )

    def reader(self, learning: Learning) -> Reader:
        """What reads a text piece by piece, learns from it, and can be kept and restored."""
        return Reader(*self._learner(learning))

    def stepper(self, learning: Learning = STATIC) -> Stepper:
        """The same token by token: it says before each what may come."""
        return Stepper(*self._learner(learning))

    def _learner(
        self, learning: Learning
    ) -> tuple[TwoLevel, Lexicon, Adaptation, dict[str, Tensor] | None]:
        if not isinstance(self.network, TwoLevel):
            raise ConfigError(
                f"{self.recipe.name} cannot do this: it is for two-level models, such as full"
            )
        adaptation = learning.of(self.tuned() if learning.cache or learning.dynamic else NOTHING)
        if learning.renormalise:
            runtime.keep_memory()  # the same large blocks again and again
        scale = None
        if learning.dynamic and self.folder is not None:
            scale = self.folder.read_gradients()
        return self.network, self.lexicon, adaptation, scale

    def tuned(self) -> Adaptation:
        """How it learns while it reads, as `spellonce tune` found it."""
        if self.folder is None or not (self.folder / "adaptive.json").is_file():
            where = "RUN" if self.folder is None else self.folder
            raise ConfigError(f"this run has not been tuned yet: spellonce tune {where}")
        kept = self.folder.read_json("adaptive.json")
        if kept.get("model", self.folder.model_sum) != self.folder.model_sum:
            raise RunError(f"adaptive.json is of another model: spellonce tune {self.folder}")
        return Adaptation.from_json(kept)

    def evaluate(
        self, lines: str | Iterable[str], split: str = "text", learning: Learning = STATIC
    ) -> dict[str, Any]:
        """All figures of `spellonce eval`."""
        begin = time.perf_counter()
        scores = self.score_lines(lines, learning)
        return self.report(scores, split, time.perf_counter() - begin, learning)

    def report(
        self, scores: TokenScores, split: str, seconds: float, learning: Learning = STATIC
    ) -> dict[str, Any]:
        """All figures of scores that took so many seconds."""
        result = figures(scores)
        static_bits = result["bits"]
        if scores.nats_static is not None:
            static_bits = float(scores.nats_static.sum()) / math.log(2)
        return {
            "recipe": self.recipe.name,
            "split": split,
            **result,
            "adaptive": asdict(learning) if learning else None,
            "static": {"bits": static_bits, "bpc": static_bits / max(scores.text_chars, 1)},
            "recurrence": recurrence(scores),
            "articles": scores.article_sums(),
            "seconds": round(seconds, 3),
            "tokens_per_second": round(len(scores) / max(seconds, 1e-9), 1),
            "peak_rss_mb": runtime.peak_rss_mb(),
            "signature": self.signature(split, learning),
        }

    def evaluate_split(self, split: str, learning: Learning = STATIC) -> dict[str, Any]:
        """`evaluate` on a split of the data that the run was trained on."""
        return self.evaluate(self.split_lines(split), split, learning)

    def split_lines(self, split: str) -> Iterable[str]:
        """The lines of a split of the data that the run was trained on."""
        return source_of(self.config, split).lines()

    def segmentations(
        self, lines: Iterable[str], *, n_tokens: int = 300, n_samples: int = 32, seed: int = 0
    ) -> dict[str, Any]:
        """What other segmentations of the words are worth to a model over BPE units.

        Only the canonical one is scored, so a word gets less than its probability. This estimates
        the whole for some tokens of a text, by importance sampling, after canonical histories.
        """
        if not isinstance(self.network, UnitLM):
            raise ConfigError(f"{self.recipe.name} has no units: segmentations are for pure-bpe")
        scores = self.score_lines(lines := list(lines))
        tokens = read(lines, self.format).tokens
        chosen = np.random.default_rng(seed).choice(
            len(tokens), min(n_tokens, len(tokens)), replace=False
        )
        nats = self.network.all_segmentations_nats(
            self.lexicon, tokens, chosen.tolist(), n_samples=n_samples, seed=seed
        )
        saved = (scores.nats[chosen] - nats) / math.log(2)  # bits
        per_char = len(tokens) / max(scores.text_chars, 1)
        return {
            "tokens": len(chosen),
            "samples": n_samples,
            "bits_saved_per_token": float(saved.mean()),
            "bpc_saved": float(saved.mean() * per_char),
            "bpc_saved_error": float(saved.std(ddof=1) / len(saved) ** 0.5 * per_char)
            if len(saved) > 1 else None,
        }  # fmt: skip

    def signature(self, split: str, learning: Learning = STATIC) -> str:
        """What a figure depends on, in one line to quote with it."""
        versions = runtime.versions()
        data = self.config["data"]
        checksum = data["splits"].get(split, {}).get("sha256", "")[:8]
        parts = {
            "spellonce": versions["spellonce"],
            "recipe": self.recipe.name,
            "seed": self.config["seed"],
            "data": data["name"],
            "split": f"{split}:{checksum}" if checksum else split,
            "tok": self.format.tokenization,
            **self._size(),
            "model": fingerprint(self.network)[:8],
            "mode": learning.name,
            "torch": versions["torch"],
        }
        return "|".join(f"{key}:{value}" for key, value in parts.items())

    def _size(self) -> dict[str, int]:
        """What the model's vocabulary is, and how large."""
        if isinstance(self.network, UnitLM):
            return {"units": len(self.network.units)}
        if isinstance(self.network, TwoLevel):
            return {"lexemes": self.lexicon.n_lexemes}
        return {"symbols": len(self.lexicon.alphabet)}

    def sample(
        self,
        n: int = 200,
        *,
        temperature: float = 0.75,
        prompt: str = "",
        seed: int = 0,
        learning: Learning = STATIC,
    ) -> Sample:
        """n tokens of text that follow the prompt.

        `learning`: what the model learns from the prompt and from what it writes.
        """
        pieces = self.pieces(
            n, temperature=temperature, prompt=prompt, seed=seed, learning=learning
        )
        return Sample(prompt.rstrip(" "), list(pieces))

    def pieces(
        self,
        n: int = 200,
        *,
        temperature: float = 0.75,
        prompt: str = "",
        seed: int = 0,
        learning: Learning = STATIC,
    ) -> Iterator[Piece]:
        """The same, one token after another."""
        # A blank at the end would be a token of its own; the next word brings its own space.
        prompt = prompt.rstrip(" ")
        stepper = self.stepper(learning) if learning else None
        return self._generator().pieces(n, temperature, prompt, seed, stepper)

    def spell(self, like: str | Sequence[str] = (), **options: Any) -> list[str]:
        """Words that resemble others (their mean embedding), or that fit a `context`.

        All different; fewer than n where no more are found. The options are those of `wugs`.
        """
        return self.wugs(like, **options).words

    def wugs(
        self,
        like: str | Sequence[str] = (),
        *,
        context: str | None = None,
        n: int = 10,
        temperature: float = 1.0,
        seed: int = 0,
        **constraints: Any,
    ) -> Draws:
        """The same with their bits, and why others were refused.

        `constraints` are the fields of `wugs.Constraints`.
        """
        words = [like] if isinstance(like, str) else list(like)
        return draw_words(
            self._generator(), n, like=words, context=context, temperature=temperature, seed=seed,
            constraints=Constraints(**constraints),
            vectors=self._vectors if isinstance(self.network, TwoLevel) else None,
        )  # fmt: skip

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str = "cpu", **options: Any) -> Model:
        """The model of a folder, or of a repository on the Hugging Face Hub.

        The options are those of huggingface_hub: `revision`, `token`, `cache_dir` …
        """
        from spellonce.loading import find_run, load

        return load(find_run(name, **options), device=device)

    def save_pretrained(self, target: str | Path, **options: Any) -> str | None:
        """Writes all that the model needs to a folder; `options` are those of huggingface_hub."""
        from spellonce import hub

        return hub.save(self._run(), Path(target), **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Writes it to a repository on the Hugging Face Hub; where it is then."""
        from spellonce import hub

        return hub.push(self._run(), repo_id, **options)

    def _run(self) -> RunFolder:
        if self.folder is None:
            raise ConfigError("this model has no run folder: load it from one first")
        return self.folder

    def vectors(self) -> Vectors:
        """The embeddings of its lexemes, and what can be inferred of other words."""
        return self._vectors

    @cached_property
    def _vectors(self) -> Vectors:
        network, lexicon, *_ = self._learner(STATIC)
        return Vectors(network, lexicon, self.format, self.recipe.objective.unspelled)

    def _generator(self) -> Generator:
        return Generator(self.network, self.lexicon, self.format)
