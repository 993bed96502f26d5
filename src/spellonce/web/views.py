"""What the page asks of a model, as plain data. No server here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch

from spellonce.adaptive import Learning
from spellonce.errors import ConfigError
from spellonce.generation import Generator
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID
from spellonce.model import Model
from spellonce.network import TRIES, Dice
from spellonce.vectors import Vectors
from spellonce.wugs import Constraints, draw_words

ON_THE_MAP = 1500
"""Lexemes on the map, the most frequent."""
ALTERNATIVES = 12
SPELLED = 3000
"""Characters of novel words, at most, whose bits are told one by one."""


class Views:
    """A model behind the page."""

    def __init__(self, model: Model) -> None:
        self.model = model
        model.stepper()  # refuses what is no two-level model
        self.generator = Generator(model.network, model.lexicon, model.format)

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
        novel = [i for i, row in enumerate(rows) if row["novel"]]
        # Character by character is slow: no more of a long text than one would look at.
        is_short = sum(len(scores.tokens[i]) for i in novel) <= SPELLED
        spelled = model.spelled_bits(text) if is_short else {}
        for i, row in enumerate(rows):
            row["token"] = scores.tokens[i]
            row["characters"] = spelled.get(i)
        n_chars = max(scores.text_chars, 1)
        found: dict[str, Any] = {
            "tokens": rows, "n_chars": scores.text_chars, "bits": float(scores.bits.sum()),
            "bpc": float(scores.bits.sum()) / n_chars, "cached": None,
        }  # fmt: skip
        if cache:
            tokens = model.tokens(text)
            reader = model.reader(Learning(cache=True))
            piece = reader.read(tokens)
            for row, nats, share in zip(rows, piece.nats, piece.from_cache, strict=True):
                row["bits_cached"], row["from_cache"] = float(nats) / ln2, float(share)
                row["summoned"] = None
            if reader.memory is not None:
                self._summoned(rows, tokens, reader.memory.states)
            bits = float(piece.nats.sum()) / ln2
            found["cached"] = {"bits": bits, "bpc": bits / n_chars}
        return found

    @staticmethod
    def _summoned(rows: list[dict[str, Any]], tokens: list[str], states: torch.Tensor) -> None:
        """For each token that the cache knew, the earlier place most like the present one."""
        first = len(tokens) - len(states)
        places: dict[str, list[int]] = {}
        for i, token in enumerate(tokens):
            here = [j for j in places.get(token, [])[-50:] if j >= first]
            if here and i >= first and rows[i]["from_cache"] > 0.05:
                likeness = states[[j - first for j in here]] @ states[i - first]
                rows[i]["summoned"] = here[int(likeness.argmax())]
            places.setdefault(token, []).append(i)

    # --- write ----------------------------------------------------------------------------------

    def write(
        self, prompt: str, n: int, temperature: float, seed: int, *, cache: bool
    ) -> Iterator[dict[str, Any]]:
        """Token by token: the text of each, and whether it was made up."""
        stepper = self.model.stepper(Learning(cache=cache))
        for piece in self.generator.pieces(n, temperature, prompt.rstrip(" "), seed, stepper):
            yield {"text": piece.text, "token": piece.token, "novel": piece.is_novel}

    @torch.no_grad()
    def alternatives(self, prompt: str, tokens: list[str], *, cache: bool) -> dict[str, Any]:
        """What else might have come after a prompt and tokens that were written.

        Lexemes, and spellings of the same state.
        """
        model = self.model
        stepper = model.stepper(Learning(cache=cache))
        stepper.read([*model.tokens(prompt.rstrip(" ")), *tokens])
        outlook = stepper.outlook()
        p = outlook.every()
        words = [*model.lexicon.types[: model.lexicon.n_lexemes], *outlook.words]
        order = np.argsort(-p, kind="stable")[: ALTERNATIVES + 1].tolist()
        likely = [
            {"word": "↵" if i == EOS_ID else self.generator.bare(words[i]), "p": float(p[i])}
            for i in order
            if i != UNK_ID
        ]
        dice = Dice(1.0, torch.Generator(model.network.device).manual_seed(0))
        drawn = model.network.spell(model.lexicon, stepper.moment(), TRIES, dice, 30)
        new = [
            self.generator.bare(word)
            for word in dict.fromkeys(drawn)
            if self.generator.is_token(word) and outlook.place(word)[0] == UNK_ID
        ]
        return {
            "lexemes": likely[:ALTERNATIVES], "p_novel": float(p[UNK_ID]),
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
        wanted_still: Callable[[], bool] = lambda: True,
    ) -> dict[str, Any]:
        """Made-up words, and why there are no more."""
        found = draw_words(
            self.generator, n, like=like, context=context, temperature=temperature, seed=seed,
            constraints=constraints, wanted_still=wanted_still, vectors=self.vectors,
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
            "neighbours": [
                {"word": one.word, "shown": self.generator.bare(one.word), "cosine": one.cosine}
                for one in near
            ],
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
        if not self.vectors.words:
            raise ConfigError("this model has no lexemes, so there is nothing to draw a map of")
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
            "words": words, "shown": [self.generator.bare(word) for word in words],
            "x": np.round(places[:, 0], 4).tolist(), "y": np.round(places[:, 1], 4).tolist(),
            "counts": counts.tolist(),
        }  # fmt: skip

    def training(self) -> list[dict[str, Any]]:
        """The curve of the run, from its log."""
        folder = self.model.folder
        if folder is None:
            return []
        keys = ("step", "epoch", "train_bpc", "train_bpc_lm", "train_bpc_spell", "valid_bpc")
        lines = [line for line in folder.read_log() if isinstance(line.get("step"), int)]
        return [
            {key: x if isinstance(x := line.get(key), int | float) else None for key in keys}
            for line in lines
        ]

    def warm_up(self) -> None:
        """Does what takes seconds when it is first asked for."""
        self.vectors.learn_letters()
