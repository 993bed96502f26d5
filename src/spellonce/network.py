"""What every system of the paper is to the rest of the program: it trains, scores and speaks.

    two_level.TwoLevel      full and its ablations
    unit_lm.UnitLM          pure-char, pure-bpe
    hclm.HCLM               HCLM, HCLMcache

A network reads a stream of ids in windows (training), or tokens as they are (scoring, speaking);
evaluation never learns which one it is.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spellonce.batching import Window
from spellonce.errors import ConfigError, RunError
from spellonce.lexeme_lm import Hidden, State
from spellonce.lexicon import Lexicon, Spellings
from spellonce.mixture import SpellingMixture, TextMixture
from spellonce.noise import Noise
from spellonce.speller import draw
from spellonce.text import EOS

TRIES = 20
"""Draws of a word before one that is not wanted is taken after all."""
MAX_LENGTH = 40
"""Symbols of the longest word in a generated text."""


@dataclass(frozen=True)
class WindowNats:
    """Sums over one window, differentiable."""

    lm: Tensor
    """Factor (3); of a system without parts, everything."""
    novel: Tensor
    """Factor (4)."""
    hidden: Hidden
    aside: Tensor | None = None
    """What else is to become small, and is no part of the score."""


@dataclass(frozen=True)
class Moment:
    """Where a network is in a text."""

    hidden: Tensor
    """The hidden state that predicts what comes next.  (1, D)"""
    state: State
    is_embedding: bool = False
    """Whether that is an embedding in the place of a hidden state."""


@dataclass(frozen=True)
class Dice:
    """Chance: what is drawn, and how boldly."""

    temperature: float
    """0 takes the likeliest, 1 is the model's own."""
    generator: torch.Generator

    def draw(self, logits: Tensor) -> Tensor:
        """One id for each row of logits."""
        return draw(logits, self.temperature, self.generator)


Accept = Callable[[str], bool]
"""Whether a word that was made up is wanted."""


class Network(nn.Module, ABC):
    """A system, with its weights."""

    has_parts = False
    """Whether a token's score has a lexeme part and a spelling part."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    # --- training -----------------------------------------------------------------------------

    @abstractmethod
    def settle(self, inputs: NDArray[np.int64], spellings: Spellings) -> None:
        """Takes from a text, inputs as of windows (T, B), what it is to know once it is trained."""

    @property
    @abstractmethod
    def n_ids(self) -> int:
        """In the windows that it is trained on, ids from here on are UNK."""

    @property
    def spellers(self) -> list[nn.Module]:
        """Its distinct spellers."""
        return []

    def is_averaged(self, name: str) -> bool:
        """Whether averaged SGD averages the parameter of that name."""
        return True

    @abstractmethod
    def initialise(self, seed: int, lexicon: Lexicon) -> None:
        """Seeded weights; how often things were seen in training stands in the lexicon."""

    @abstractmethod
    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""

    @abstractmethod
    def window_nats(
        self,
        window: Window,
        spellings: Spellings,
        state: State,
        noise: Noise | None,
    ) -> tuple[WindowNats, State]:
        """The sums of a window; `spellings` are those of all training types."""

    # --- scoring ------------------------------------------------------------------------------

    @abstractmethod
    def score_texts(
        self, lexicon: Lexicon, texts: Sequence[Sequence[str]]
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(nats of the lexeme, nats of the spelling) of every token of texts, after an EOS each.

        Where there are no such parts, everything is in the first.
        """

    def score_tokens(
        self, lexicon: Lexicon, tokens: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same of one text."""
        return self.score_texts(lexicon, [tokens])[0]

    # --- speaking -----------------------------------------------------------------------------

    @abstractmethod
    def read(self, lexicon: Lexicon, tokens: Sequence[str], state: State) -> Moment:
        """Reads tokens (at least one)."""

    def begin(self, lexicon: Lexicon, tokens: Sequence[str]) -> Moment:
        """Where one is after tokens that follow an EOS."""
        return self.read(lexicon, [EOS, *tokens], self.zero_state(1))

    def advance(self, lexicon: Lexicon, moment: Moment, token: str) -> Moment:
        """Reads one more token, which came at this moment."""
        return self.read(lexicon, [token], moment.state)

    @abstractmethod
    def next_token(self, lexicon: Lexicon, moment: Moment, dice: Dice, accept: Accept) -> str:
        """Draws a token; one that the speller makes up is drawn again until it is accepted."""

    @abstractmethod
    def spell(
        self,
        lexicon: Lexicon,
        moment: Moment,
        n: int,
        dice: Dice,
        max_length: int,
        prefix: str = "",
    ) -> list[str]:
        """n words spelled at this moment, the same one perhaps several times.

        Whoever can begins all of them with the prefix.
        """

    def is_novel(self, lexicon: Lexicon, token: str) -> bool:
        """Whether the token is made up: not a lexeme, or, without lexemes, never seen."""
        return lexicon.type_id(token) is None

    def like(self, lexicon: Lexicon, words: Sequence[str]) -> Moment:
        """The moment at which words like these are spelled."""
        raise ConfigError(
            "this model has no embeddings to resemble: use a two-level model, or give a --context"
        )


def fingerprint(network: Network) -> str:
    """Stands for all that its probabilities follow from: weights, and counts where it has any."""
    arrays = {name: p.detach().cpu().numpy() for name, p in network.named_parameters()}
    for name, module in network.named_modules():
        if isinstance(module, TextMixture | SpellingMixture):
            counts = module.ngrams.arrays()
            arrays |= {f"counts {name} {part}": array for part, array in counts.items()}
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def first_accepted(words: Sequence[str], accept: Accept) -> str:
    """The first word that is wanted, or the first at all that is not empty, or ◇.

    >>> first_accepted(["", "ab", "b"], lambda word: len(word) == 1)
    'b'
    """
    return next((w for w in words if accept(w)), next((w for w in words if w), "◇"))


def detached(state: State) -> State:
    """The state, cut off from how it came about."""
    return [tuple(tensor.detach() for tensor in part) for part in state]


def load_weights(parameters: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Gives parameters the tensors of the same names and shapes, which are theirs from then on."""
    for name, parameter in parameters.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != parameter.shape:
            got = "nothing" if tensor is None else tuple(tensor.shape)
            raise RunError(f"the weights do not fit: {name} is {got}, not {tuple(parameter.shape)}")
        parameter.data = tensor.to(parameter)
