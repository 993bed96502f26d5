"""Text out of the model: sampling on both levels.

A novel word is drawn again where it is none: an empty string or the spelling of a lexeme is not
what UNK stands for, and drawing again is sampling from p_spell renormalised to what is left. After
20 vain draws in a text a known spelling is accepted; no word of a text is longer than 40 symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from spellonce.errors import ConfigError
from spellonce.lexicon import Lexicon
from spellonce.network import Accept, Dice, Moment, Network
from spellonce.stepping import Stepper
from spellonce.text import (
    EOS,
    GAP,
    TextFormat,
    around_gap,
    join_tokens,
    line_tokens,
    text_tokens,
)
from spellonce.tokenizer import MERGE


@dataclass(frozen=True)
class Piece:
    """One token of generated text."""

    text: str
    """As it stands in the text, with the white space before it."""
    is_novel: bool
    """Whether the speller made it up."""
    token: str = ""
    """As the model knows it."""


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


class Voice(Protocol):
    """Somebody in the middle of a text, who may go on with it."""

    def read(self, tokens: Sequence[str]) -> object:
        """Hears how it begins."""

    def next_token(self, dice: Dice, accept: Accept) -> str:
        """Draws a token; one that the speller makes up is drawn again until it is accepted."""

    def take(self, token: str) -> None:
        """Hears what came."""


class _Static:
    """A network that learns nothing on the way."""

    def __init__(self, network: Network, lexicon: Lexicon) -> None:
        self._network, self._lexicon = network, lexicon
        self._moment = network.begin(lexicon, [])

    def read(self, tokens: Sequence[str]) -> None:
        self._moment = self._network.begin(self._lexicon, tokens)

    def next_token(self, dice: Dice, accept: Accept) -> str:
        return self._network.next_token(self._lexicon, self._moment, dice, accept)

    def take(self, token: str) -> None:
        self._moment = self._network.advance(self._lexicon, self._moment, token)


@dataclass(frozen=True)
class Generator:
    """A network and what it needs to speak."""

    network: Network
    lexicon: Lexicon
    format: TextFormat

    def pieces(
        self, n: int, temperature: float, prompt: str, seed: int, stepper: Stepper | None = None
    ) -> Iterator[Piece]:
        """n tokens that continue the prompt, one after another; the temperature is that of every
        softmax.

        With a `stepper`, which has read nothing yet, the model learns from what it writes.
        """
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        check_temperature(temperature)
        network, lexicon = self.network, self.lexicon
        dice = Dice(temperature, torch.Generator(network.device).manual_seed(seed))
        voice: Voice = _Static(network, lexicon) if stepper is None else stepper
        with torch.no_grad():
            voice.read(text_tokens(prompt, self.format))
        last_line = prompt.rpartition("\n")[2]
        line: list[tuple[str, bool]] = [(t, False) for t in line_tokens(last_line, self.format)]
        for _ in range(n):
            with torch.no_grad():
                token = voice.next_token(dice, self.is_token)
                voice.take(token)
            if token == EOS:
                yield Piece("\n", False, EOS)
                line = []
            else:
                # How a token stands in a text depends on the one before it alone.
                line = [*line[-1:], (token, network.is_novel(lexicon, token))]
                yield self._surface(line)[-1]

    def _surface(self, line: Sequence[tuple[str, bool]]) -> list[Piece]:
        pieces = join_tokens([token for token, _ in line], self.format)
        return [Piece(a + b, new, token) for (a, b), (token, new) in zip(pieces, line, strict=True)]

    def is_token(self, word: str) -> bool:
        """Whether the tokenizer could have made it: not empty, and no stray merge symbol."""
        if not word or word == EOS:
            return False
        return self.format.tokenization == "spaces" or MERGE not in self.bare(word)

    def bare(self, word: str) -> str:
        """A token as it stands in a text."""
        return join_tokens([word], self.format)[0][1]

    def moment(self, like: Sequence[str] = (), context: str | None = None) -> Moment:
        """The moment at which to spell: words like some lexemes, or what fits after a context."""
        if bool(like) == (context is not None):
            raise ConfigError("give words to resemble (--like) or a --context, one of the two")
        if context is not None:
            if GAP in context:
                before, _ = around_gap(context, self.format)
            else:
                before = text_tokens(context.rstrip(" "), self.format)
            return self.network.begin(self.lexicon, before)
        return self.network.like(self.lexicon, like)


def check_temperature(temperature: float) -> None:
    """Refuses what is no temperature."""
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"a temperature is 0 or more, got {temperature}")
