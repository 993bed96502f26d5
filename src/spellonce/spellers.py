"""Other spellers than the conditioned character LSTM: those of the paper's ablations (table 1).

N words, A symbols, D vector
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spellonce.lexicon import BOUNDARY_SYMBOL, Spellings
from spellonce.noise import Noise
from spellonce.speller import Speller, SpellingSteps, draw


class UnigramSpeller(nn.Module):
    """A learned unigram over characters and EOW, blind to the vector (the paper's 1gram)."""

    def __init__(self, n_symbols: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_symbols))

    @classmethod
    def from_counts(cls, counts: NDArray[np.int64]) -> UnigramSpeller:
        """The maximum-likelihood unigram (add one) of symbol counts, EOW's at index 0."""
        speller = cls(len(counts))
        with torch.no_grad():
            speller.logits.copy_(torch.from_numpy(np.log(counts + 1.0)))
        return speller

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Uniform."""
        with torch.no_grad():
            self.logits.zero_()

    def nats(
        self,
        vectors: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
        *,
        counted: bool = False,
    ) -> Tensor:
        """−log p_spell; the vectors only say how many."""
        costs = -torch.log_softmax(self.logits, 0)
        symbols = torch.from_numpy(spellings.symbols.astype(np.int64)).to(vectors.device)
        words = np.repeat(np.arange(len(spellings)), spellings.lengths())
        ends = torch.from_numpy(spellings.ends()).to(vectors.device)
        total = costs[BOUNDARY_SYMBOL] * ends.double()
        place = torch.from_numpy(words).to(vectors.device)
        return total.index_add(0, place, costs[symbols].double()).to(self.logits.dtype)

    @torch.no_grad()
    def sample(
        self,
        vectors: Tensor,
        generator: torch.Generator,
        temperature: float,
        max_length: int,
        prefix: Sequence[int] = (),
    ) -> list[list[int]]:
        """Symbols until EOW."""
        max_length -= len(prefix)
        rows = self.logits.expand(max_length, -1)
        words = []
        for _ in range(len(vectors)):
            symbols = draw(rows, temperature, generator).tolist()
            end = symbols.index(BOUNDARY_SYMBOL) if BOUNDARY_SYMBOL in symbols else max_length
            words.append([*prefix, *symbols[:end]])
        return words

    def begin(self, vector: Tensor) -> SpellingSteps:
        """Spells one word symbol by symbol."""
        return _SameSteps(torch.softmax(self.logits.detach().double(), 0).cpu().numpy())


class _SameSteps:
    """A word whose symbols do not depend on each other."""

    def __init__(self, p: NDArray[np.float64]) -> None:
        self._p = p

    def probabilities(self) -> NDArray[np.float64]:
        """Of each symbol to be the next."""
        return self._p

    def take(self, symbol: int) -> None:
        """The next symbol, which changes nothing."""


class Around(nn.Module):
    """A speller that has another one do the work."""

    def __init__(self, speller: Speller) -> None:
        super().__init__()
        self.speller = speller

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights."""
        self.speller.initialise(generator, counts)

    def seen(self, vectors: Tensor) -> Tensor:
        """What the other one is told."""
        return vectors

    def nats(
        self,
        vectors: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
        *,
        counted: bool = False,
    ) -> Tensor:
        """−log p_spell of each spelling."""
        return self.speller.nats(self.seen(vectors), spellings, noise, counted=counted)

    def sample(
        self,
        vectors: Tensor,
        generator: torch.Generator,
        temperature: float,
        max_length: int,
        prefix: Sequence[int] = (),
    ) -> list[list[int]]:
        """One spelling for each vector."""
        return self.speller.sample(self.seen(vectors), generator, temperature, max_length, prefix)

    def begin(self, vector: Tensor) -> SpellingSteps:
        """Spells one word symbol by symbol."""
        return self.speller.begin(self.seen(vector))


class Unconditional(Around):
    """A speller that sees a zero vector, whatever it is given (the paper's uncond)."""

    def seen(self, vectors: Tensor) -> Tensor:
        """Nothing."""
        return torch.zeros_like(vectors)


class OnlyAtTest(Around):
    """Somebody else's speller, borrowed for scoring: it costs nothing in training (only-reg)."""

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Nothing: whoever owns the speller does it."""

    def nats(
        self,
        vectors: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
        *,
        counted: bool = False,
    ) -> Tensor:
        """−log p_spell; nothing for the words of the training text."""
        if counted:
            return vectors.new_zeros(len(vectors))
        return super().nats(vectors, spellings, noise)
