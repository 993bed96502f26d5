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
from torch import Tensor

from spellonce.errors import ConfigError
from spellonce.lexeme_lm import State
from spellonce.lexicon import EOS_ID, OTHER, UNK_ID, Lexicon
from spellonce.speller import draw
from spellonce.text import EOS, TextFormat, join_tokens, line_tokens, split_lines
from spellonce.tokenizer import MERGE
from spellonce.two_level import TwoLevel, as_speller

_MAX_LENGTH = 40
_TRIES = 20


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

    network: TwoLevel
    lexicon: Lexicon
    format: TextFormat

    @torch.no_grad()
    def read(self, text: str) -> tuple[Tensor, State]:
        """(hidden state, LSTM states) after a text that follows an EOS.  (1, D)"""
        ids = [EOS_ID]
        for line in split_lines(text):
            tokens = line_tokens(line.removesuffix("\n"), self.format)
            ids += [self.lexicon.lexeme_id(token) for token in tokens]
            ids += [EOS_ID] * line.endswith("\n")
        state = self.network.lm.zero_state(1)
        inputs = torch.tensor(ids, device=self.network.device)[:, None]
        for start in range(0, len(ids), 1000):
            hidden, state = self.network.lm(inputs[start : start + 1000], state)
        return hidden.states[-1], state

    @torch.no_grad()
    def text(self, n: int, temperature: float, prompt: str, seed: int) -> list[Piece]:
        """n tokens that continue the prompt; the temperature is that of both softmaxes."""
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        check_temperature(temperature)
        generator = torch.Generator(self.network.device).manual_seed(seed)
        hidden, state = self.read(prompt)
        last_line = prompt.rpartition("\n")[2]
        n_given = len(line_tokens(last_line, self.format))
        line: list[tuple[str, bool]] = [(t, False) for t in line_tokens(last_line, self.format)]
        out: list[Piece] = []
        for _ in range(n):
            lexeme = int(draw(self.network.lm.table.log_probs(hidden), temperature, generator))
            if lexeme == EOS_ID:
                out += [*self._surface(line)[n_given:], Piece("\n", False)]
                line, n_given = [], 0
            elif lexeme == UNK_ID:
                line.append((self._novel(hidden, temperature, generator), True))
            else:
                line.append((self.lexicon.types[lexeme], False))
            token = torch.tensor([[lexeme]], device=self.network.device)
            states, state = self.network.lm(token, state)
            hidden = states.states[-1]
        return out + self._surface(line)[n_given:]

    def _surface(self, line: Sequence[tuple[str, bool]]) -> list[Piece]:
        pieces = join_tokens([token for token, _ in line], self.format)
        return [Piece(a + b, new) for (a, b), (_, new) in zip(pieces, line, strict=True)]

    def _novel(self, hidden: Tensor, temperature: float, generator: torch.Generator) -> str:
        drawn = self._draw(hidden.expand(_TRIES, -1), temperature, generator, _MAX_LENGTH)
        good = [word for word in drawn if self._is_token(word) and self._is_novel(word)]
        return (good or [word for word in drawn if self._is_token(word)] or ["◇"])[0]

    def _draw(
        self, vectors: Tensor, temperature: float, generator: torch.Generator, max_length: int
    ) -> list[str]:
        speller = as_speller(self.network.novel)
        drawn = speller.sample(vectors, generator, temperature, max_length)
        return [self.lexicon.alphabet.decode(symbols) for symbols in drawn]

    def _is_novel(self, word: str) -> bool:
        return self.lexicon.lexeme_id(word) == UNK_ID

    def _is_token(self, word: str) -> bool:
        """Whether the tokenizer could have made it: not empty, and no stray merge symbol."""
        if not word or word == EOS:
            return False
        return self.format.tokenization == "spaces" or MERGE not in self._bare(word)

    def _bare(self, word: str) -> str:
        return join_tokens([word], self.format)[0][1]

    def vector(self, like: Sequence[str] = (), context: str | None = None) -> Tensor:
        """The mean embedding of some lexemes, or the hidden state after a context.  (1, D)"""
        if bool(like) == (context is not None):
            raise ConfigError("give words to resemble (--like) or a --context, one of the two")
        if context is not None:
            return self.read(context.partition("___")[0].rstrip(" "))[0]
        ids = []
        for word in like:
            lexeme = self.lexicon.lexeme_id(word)
            if lexeme in (UNK_ID, EOS_ID):
                raise ConfigError(
                    f"{word!r} is not among the {self.lexicon.n_lexemes - 2:,} lexemes of this "
                    "model, so it has no embedding: choose another word, or give a --context"
                )
            ids.append(lexeme)
        rows: Tensor = self.network.lm.table(torch.tensor(ids, device=self.network.device))
        return rows.mean(0, keepdim=True).detach()

    @torch.no_grad()
    def words(
        self,
        vector: Tensor,
        n: int,
        temperature: float,
        seed: int,
        *,
        novel_only: bool = False,
        min_length: int = 1,
        max_length: int = 30,
    ) -> list[str]:
        """Up to n different words drawn from p_spell(· | vector); fewer where no more are found."""
        check_temperature(temperature)
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        if not 1 <= min_length <= max_length:
            raise ConfigError(
                f"lengths from {min_length} to {max_length} leave no words: "
                "1 <= --min-length <= --max-length"
            )
        generator = torch.Generator(self.network.device).manual_seed(seed)
        found: dict[str, None] = {}
        batch = int(np.clip(4 * n, 32, 1000))
        for _ in range(_TRIES):
            # Longer than the longest allowed, so that what was cut off is known and left out.
            vectors = vector.expand(batch, -1)
            for token in self._draw(vectors, temperature, generator, max_length + 2):
                if not self._is_token(token) or OTHER in token:
                    continue
                word = self._bare(token)
                if (
                    word.strip()
                    and min_length <= len(word) <= max_length
                    and not (novel_only and not self._is_novel(token))
                ):
                    found.setdefault(word)
            if len(found) >= n or temperature == 0:
                break
        return list(found)[:n]


def check_temperature(temperature: float) -> None:
    """Refuses what is no temperature."""
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"a temperature is 0 or more, got {temperature}")
