"""What the page asks of a model, as plain data. No server here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

from spellonce.adaptive import Learning
from spellonce.generation import Generator
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID
from spellonce.model import Model
from spellonce.network import TRIES, Dice
from spellonce.stepping import Stepper
from spellonce.text import read, split_lines
from spellonce.vectors import Vectors
from spellonce.wugs import Constraints, draw_words

ON_THE_MAP = 1500
"""Lexemes on the map, the most frequent."""
ALTERNATIVES = 12


class Views:
    """A model behind the page."""

    def __init__(self, model: Model) -> None:
        self.model = model
        model.stepper()  # refuses what is no two-level model

    @cached_property
    def vectors(self) -> Vectors:
        """Made once."""
        return self.model.vectors()

    @cached_property
    def is_tuned(self) -> bool:
        """Whether it can learn while it reads."""
        folder = self.model.folder
        return folder is not None and (folder / "adaptive.json").is_file()

    def about(self) -> dict[str, Any]:
        """What the model is."""
        model, folder = self.model, self.model.folder
        result = {}
        if folder is not None and folder.finished:
            result = folder.read_json("result.json")
        return {
            "recipe": model.recipe.name,
            "data": model.config["data"]["name"],
            "lexemes": model.lexicon.n_lexemes - N_SPECIAL,
            "alphabet": len(model.lexicon.alphabet.chars),
            "tokenization": model.format.tokenization,
            "tuned": self.is_tuned,
            "valid_bpc": result.get("valid_bpc"),
            "tokens": result.get("tokens"),
        }

    # --- read -----------------------------------------------------------------------------------

    def score(self, text: str, *, cache: bool = False) -> dict[str, Any]:
        """Every token with its bits; with a cache, also what was summoned again."""
        model, ln2 = self.model, math.log(2)
        scores = model.score(text)
        rows = list(scores.rows())
        spelled = model.spelled_bits(text)
        for i, row in enumerate(rows):
            row["token"] = scores.tokens[i]
            row["characters"] = spelled.get(i)
        n_chars = max(scores.text_chars, 1)
        found: dict[str, Any] = {
            "tokens": rows, "n_chars": scores.text_chars, "bits": float(scores.bits.sum()),
            "bpc": float(scores.bits.sum()) / n_chars, "cached": None,
        }  # fmt: skip
        if cache:
            reading = read(split_lines(text), model.format)
            reader = model.reader(Learning(cache=True))
            piece = reader.read(reading.tokens)
            for row, nats, share in zip(rows, piece.nats, piece.from_cache, strict=True):
                row["bits_cached"], row["from_cache"] = float(nats) / ln2, float(share)
                row["summoned"] = None
            if reader.memory is not None:
                self._summoned(rows, reading.tokens, reader.memory.states)
            bits = float(piece.nats.sum()) / ln2
            found["cached"] = {"bits": bits, "bpc": bits / n_chars}
        return found

    @staticmethod
    def _summoned(rows: list[dict[str, Any]], tokens: list[str], states: torch.Tensor) -> None:
        """For each token that the cache knew, the earlier place most like the present one."""
        first = len(tokens) - len(states)
        places: dict[str, list[int]] = {}
        for i, token in enumerate(tokens):
            here = [j for j in places.get(token, []) if j >= first]
            if here and i >= first and rows[i]["from_cache"] > 0.05:
                likeness = states[[j - first for j in here]] @ states[i - first]
                rows[i]["summoned"] = here[int(likeness.argmax())]
            places.setdefault(token, []).append(i)

    # --- write ----------------------------------------------------------------------------------

    def write(
        self, prompt: str, n: int, temperature: float, seed: int, *, cache: bool
    ) -> Iterator[dict[str, Any]]:
        """Token by token: the text of each, and whether it was made up."""
        model = self.model
        generator = Generator(model.network, model.lexicon, model.format)
        stepper = model.stepper(Learning(cache=cache))
        for piece in generator.pieces(n, temperature, prompt.rstrip(" "), seed, stepper):
            yield {"text": piece.text, "novel": piece.is_novel}

    @torch.no_grad()
    def alternatives(self, context: str) -> dict[str, Any]:
        """What else might have come after a text: lexemes, and spellings of the same state."""
        model = self.model
        stepper: Stepper = model.stepper()
        stepper.read(model.tokens(context.rstrip(" ")))
        outlook = stepper.outlook()
        p = outlook.every()
        order = np.argsort(-p, kind="stable")[: ALTERNATIVES + 2].tolist()
        words = [
            {"word": "↵" if i == EOS_ID else model.lexicon.types[i], "p": float(p[i])}
            for i in order
            if i != UNK_ID
        ]
        dice = Dice(1.0, torch.Generator(model.network.device).manual_seed(0))
        drawn = model.network.spell(model.lexicon, stepper.moment(), TRIES, dice, 30)
        new = [w for w in dict.fromkeys(drawn) if w and model.lexicon.lexeme_id(w) == UNK_ID]
        return {
            "lexemes": words[:ALTERNATIVES], "p_novel": float(p[UNK_ID]),
            "spellings": new[:ALTERNATIVES],
        }  # fmt: skip

    # --- spell ----------------------------------------------------------------------------------

    def spell(
        self,
        like: list[str],
        context: str | None,
        n: int,
        temperature: float,
        seed: int,
        constraints: Constraints,
    ) -> dict[str, Any]:
        """Made-up words, and why there are no more."""
        model = self.model
        generator = Generator(model.network, model.lexicon, model.format)
        found = draw_words(
            generator, n, like=like, context=context, temperature=temperature, seed=seed,
            constraints=constraints,
        )  # fmt: skip
        return {
            "words": [{"word": wug.word, "bits": wug.bits} for wug in found.wugs],
            "why": None if len(found.wugs) >= n else found.why(),
        }

    # --- explore --------------------------------------------------------------------------------

    def neighbours(self, word: str, n: int) -> dict[str, Any]:
        """The nearest lexemes of a word, known or not, and where it is on the map."""
        vector = self.vectors.of(word)
        near = self.vectors.neighbours(vector, n, but=[word])
        x, y = self._place(vector)
        return {
            "word": word, "known": word in self.vectors, "x": x, "y": y,
            "neighbours": [{"word": one.word, "cosine": one.cosine} for one in near],
        }  # fmt: skip

    @cached_property
    def _projection(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(mean, two directions): the second and third principal component of frequent lexemes.

        The first is mostly how frequent a word is.
        """
        rows = self._frequent()
        mean = rows.mean(0)
        _, _, directions = np.linalg.svd(rows - mean, full_matrices=False)
        chosen = directions[1:3] if len(directions) > 2 else np.resize(directions, (2, len(mean)))
        return mean, chosen

    def _frequent(self) -> np.ndarray[Any, Any]:
        return np.stack([self.vectors.of(word) for word in self.vectors.words[:ON_THE_MAP]])

    def _place(self, vector: np.ndarray[Any, Any]) -> tuple[float, float]:
        mean, directions = self._projection
        x, y = directions @ (vector - mean)
        return float(x), float(y)

    @cached_property
    def map(self) -> dict[str, Any]:
        """Frequent lexemes in two dimensions."""
        mean, directions = self._projection
        places = (self._frequent() - mean) @ directions.T
        words = list(self.vectors.words[:ON_THE_MAP])
        counts = self.model.lexicon.counts[N_SPECIAL : N_SPECIAL + len(words)]
        return {
            "words": words, "x": np.round(places[:, 0], 4).tolist(),
            "y": np.round(places[:, 1], 4).tolist(), "counts": counts.tolist(),
        }  # fmt: skip

    def training(self) -> list[dict[str, Any]]:
        """The curve of the run, from its log."""
        folder = self.model.folder
        if folder is None or not (folder / "log.jsonl").is_file():
            return []
        with (folder / "log.jsonl").open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        keys = ("step", "epoch", "train_bpc", "train_bpc_lm", "train_bpc_spell", "valid_bpc")
        return [{key: row.get(key) for key in keys} for row in rows if "step" in row]
