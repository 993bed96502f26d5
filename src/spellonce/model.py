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
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spellonce import lexicon as lexicons
from spellonce import recipes, runtime
from spellonce.adaptive import Adaptation, Learning, Reader
from spellonce.errors import ConfigError
from spellonce.evaluation import TokenScores, figures
from spellonce.generation import Generator, Piece
from spellonce.lexicon import Lexicon
from spellonce.mixture import Counted
from spellonce.network import Network, load_weights
from spellonce.preparation import load_units, source_of, text_format
from spellonce.recipes import Recipe
from spellonce.runs import RunFolder
from spellonce.scoring import score_adaptively, score_reading, score_readings
from spellonce.text import TextFormat, read, split_lines
from spellonce.two_level import TwoLevel
from spellonce.unit_lm import UnitLM

STATIC, NOTHING = Learning(), Adaptation()


@dataclass(frozen=True)
class Sample:
    """Generated text, and which of it was made up."""

    prompt: str
    """What it continues, without blanks at its end."""
    pieces: list[Piece]

    @property
    def text(self) -> str:
        """What follows the prompt, as it is."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def novel(self) -> list[str]:
        """The invented words."""
        return [piece.text.strip() for piece in self.pieces if piece.is_novel]


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

    def score_lines(self, lines: Iterable[str], learning: Learning = STATIC) -> TokenScores:
        """The same for lines, each with its `\\n` but perhaps the last."""
        reading = read(lines, self.format)
        if not learning:
            return score_reading(self.network, self.lexicon, reading)
        return score_adaptively(self.reader(learning), reading, reset=learning.reset)

    def score_texts(self, texts: Iterable[str], learning: Learning = STATIC) -> list[TokenScores]:
        """Many texts, each on its own, as `score` does: side by side, and so faster."""
        if learning:
            return [self.score(text, learning) for text in texts]
        readings = [read(split_lines(text), self.format) for text in texts]
        return score_readings(self.network, self.lexicon, readings)

    def reader(self, learning: Learning) -> Reader:
        """What reads a text piece by piece, learns from it, and can be kept and restored."""
        if not isinstance(self.network, TwoLevel):
            raise ConfigError(
                f"{self.recipe.name} cannot learn while it reads: that is for two-level models"
            )
        adaptation = learning.of(self.tuned() if learning.cache or learning.dynamic else NOTHING)
        scale = None
        if learning.dynamic and self.folder is not None:
            scale = self.folder.read_gradients()
        return Reader(self.network, self.lexicon, adaptation, scale)

    def tuned(self) -> Adaptation:
        """How it learns while it reads, as `spellonce tune` found it."""
        if self.folder is None or not (self.folder / "adaptive.json").is_file():
            where = "RUN" if self.folder is None else self.folder
            raise ConfigError(f"this run has not been tuned yet: spellonce tune {where}")
        return Adaptation.from_json(self.folder.read_json("adaptive.json"))

    def evaluate(
        self, lines: Iterable[str], split: str = "text", learning: Learning = STATIC
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
        self, n: int = 200, *, temperature: float = 0.75, prompt: str = "", seed: int = 0
    ) -> Sample:
        """n tokens of text that follow the prompt."""
        # A blank at the end would be a token of its own; the next word brings its own space.
        prompt = prompt.rstrip(" ")
        return Sample(prompt, self._generator().text(n, temperature, prompt, seed))

    def spell(
        self,
        like: str | Sequence[str] = (),
        *,
        context: str | None = None,
        n: int = 10,
        temperature: float = 1.0,
        novel_only: bool = False,
        min_length: int = 1,
        max_length: int = 30,
        seed: int = 0,
    ) -> list[str]:
        """Words that resemble others (their mean embedding), or that fit after a context.

        All different; fewer than n where no more are found.
        """
        generator = self._generator()
        words = [like] if isinstance(like, str) else list(like)
        return generator.words(
            generator.moment(words, context),
            n,
            temperature,
            seed,
            novel_only=novel_only,
            min_length=min_length,
            max_length=max_length,
        )

    def _generator(self) -> Generator:
        return Generator(self.network, self.lexicon, self.format)


def load(run: str | Path, *, device: str = "cpu") -> Model:
    """Loads the model of a run folder that `spellonce train` wrote."""
    chosen = runtime.prepare(device)
    folder = RunFolder(Path(run))
    config = folder.read_config()
    tensors = folder.read_model()
    recipe = recipes.from_json(config["recipe"])
    lexicon = lexicons.load(folder / "lexicon.tsv")
    arrays = folder.read_ngrams()
    counted = None if arrays is None else Counted.of_arrays(arrays)
    network = recipes.build_model(recipe, lexicon, load_units(folder), counted)
    load_weights(dict(network.named_parameters()), tensors)
    network.requires_grad_(False).to(chosen)
    return Model(network, lexicon, recipe, text_format(config), config, folder)
