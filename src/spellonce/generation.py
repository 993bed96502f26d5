"""Text and words out of the model: sampling on both levels, spellings on demand.

A novel word is drawn again where it is none: an empty string or the spelling of a lexeme is not
what UNK stands for, and drawing again is sampling from p_spell renormalised to what is left. After
20 vain draws in a text a known spelling is accepted; no word of a text is longer than 40 symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spellonce.errors import ConfigError
from spellonce.lexicon import OTHER, Lexicon
from spellonce.network import TRIES, Dice, Moment, Network
from spellonce.text import EOS, TextFormat, join_tokens, line_tokens, split_lines
from spellonce.tokenizer import MERGE


@dataclass(frozen=True)
class Piece:
    """One token of generated text."""

    text: str
    """As it stands in the text, with the white space before it."""
    is_novel: bool
    """Whether the speller made it up."""


@dataclass(frozen=True)
class Generator:
    """A network and what it needs to speak."""

    network: Network
    lexicon: Lexicon
    format: TextFormat

    @torch.no_grad()
    def text(self, n: int, temperature: float, prompt: str, seed: int) -> list[Piece]:
        """n tokens that continue the prompt; the temperature is that of every softmax."""
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        check_temperature(temperature)
        network, lexicon = self.network, self.lexicon
        dice = Dice(temperature, torch.Generator(network.device).manual_seed(seed))
        moment = network.begin(lexicon, self._tokens(prompt))
        last_line = prompt.rpartition("\n")[2]
        line: list[tuple[str, bool]] = [(t, False) for t in line_tokens(last_line, self.format)]
        n_given = len(line)
        out: list[Piece] = []
        for _ in range(n):
            token = network.next_token(lexicon, moment, dice, self._is_token)
            if token == EOS:
                out += [*self._surface(line)[n_given:], Piece("\n", False)]
                line, n_given = [], 0
            else:
                line.append((token, network.is_novel(lexicon, token)))
            moment = network.advance(lexicon, moment, token)
        return out + self._surface(line)[n_given:]

    def _tokens(self, text: str) -> list[str]:
        tokens: list[str] = []
        for line in split_lines(text):
            tokens += line_tokens(line.removesuffix("\n"), self.format)
            tokens += [EOS] * line.endswith("\n")
        return tokens

    def _surface(self, line: Sequence[tuple[str, bool]]) -> list[Piece]:
        pieces = join_tokens([token for token, _ in line], self.format)
        return [Piece(a + b, new) for (a, b), (_, new) in zip(pieces, line, strict=True)]

    def _is_token(self, word: str) -> bool:
        """Whether the tokenizer could have made it: not empty, and no stray merge symbol."""
        if not word or word == EOS:
            return False
        return self.format.tokenization == "spaces" or MERGE not in self._bare(word)

    def _bare(self, word: str) -> str:
        return join_tokens([word], self.format)[0][1]

    def moment(self, like: Sequence[str] = (), context: str | None = None) -> Moment:
        """The moment at which to spell: words like some lexemes, or what fits after a context."""
        if bool(like) == (context is not None):
            raise ConfigError("give words to resemble (--like) or a --context, one of the two")
        if context is not None:
            before = context.partition("___")[0].rstrip(" ")
            return self.network.begin(self.lexicon, self._tokens(before))
        return self.network.like(self.lexicon, like)

    @torch.no_grad()
    def words(
        self,
        moment: Moment,
        n: int,
        temperature: float,
        seed: int,
        *,
        novel_only: bool = False,
        min_length: int = 1,
        max_length: int = 30,
    ) -> list[str]:
        """Up to n different words spelled at a moment; fewer where no more are found."""
        check_temperature(temperature)
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        if not 1 <= min_length <= max_length:
            raise ConfigError(
                f"lengths from {min_length} to {max_length} leave no words: "
                "1 <= --min-length <= --max-length"
            )
        dice = Dice(temperature, torch.Generator(self.network.device).manual_seed(seed))
        found: dict[str, None] = {}
        batch = int(np.clip(4 * n, 32, 1000))
        for _ in range(TRIES):
            # Longer than the longest allowed, so that what was cut off is known and left out.
            for token in self.network.spell(self.lexicon, moment, batch, dice, max_length + 2):
                if not self._is_token(token) or OTHER in token:
                    continue
                word = self._bare(token)
                if (
                    word.strip()
                    and min_length <= len(word) <= max_length
                    and not (novel_only and not self.network.is_novel(self.lexicon, token))
                ):
                    found.setdefault(word)
            if len(found) >= n or temperature == 0:
                break
        return list(found)[:n]


def check_temperature(temperature: float) -> None:
    """Refuses what is no temperature."""
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"a temperature is 0 or more, got {temperature}")
