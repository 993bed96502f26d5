"""What the lexeme LM reads after a novel word, if it is not e(UNK) alone.

`LastState` is an aside of the paper: the speller's last state, mapped into the space of the
embeddings. What is read then depends on what was predicted just before, so the lexeme LM can only
run from one novel word to the next: exact, and slower.

`Composed` goes beyond the paper: e(UNK) plus what a small convolutional network makes of the
characters (Kim et al. 2016). It knows the words before the lexeme LM runs, and costs little. Where
a training text has few novel words, it learns from rare lexemes that are read as if they were.

    T window, B rails, N words, L characters, C character embedding, D embedding
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce.errors import ConfigError
from spellonce.lexeme_lm import Hidden, LexemeLM, State
from spellonce.lexicon import UNK_ID, Spellings
from spellonce.noise import Noise
from spellonce.speller import STEP_WINDOW, Speller, by_length, padded


@dataclass(frozen=True)
class CompositionConfig:
    """How words are composed from their characters to be read."""

    n_char_embed: int = 32
    """Width of the character embeddings."""
    n_filters: int = 96
    """Filters of each width."""
    widths: tuple[int, ...] = (1, 2, 3, 4)
    """Characters that a filter sees at a time."""

    def __post_init__(self) -> None:
        for name in ("n_char_embed", "n_filters"):
            if getattr(self, name) < 1:
                raise ConfigError(f"composition.{name} must be at least 1: {getattr(self, name)}")
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(f"composition.widths must be 1 or more each, got {self.widths}")


class Feedback(Protocol):
    """Turns spelled words into inputs of the lexeme LM."""

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights."""

    def read(
        self,
        lm: LexemeLM,
        speller: Speller,
        inputs: Tensor,
        spelled: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        noise: Noise | None = None,
    ) -> tuple[Hidden, State]:
        """Reads inputs (T, B), after which the words at places `spelled` (t·B + b) come."""

    def told(self, speller: Speller, state: State, hidden: Tensor, spellings: Spellings) -> State:
        """The state once it is known how the next words, predicted by `hidden`, are spelled."""


def zero_state(lm_state: State, n_rails: int, n_embed: int) -> State:
    """The LM's state, and what its next inputs are to be where they are not embeddings."""
    vectors = lm_state[0][0].new_zeros(n_rails, n_embed)
    return [*lm_state, (vectors, vectors.new_zeros(n_rails, 1, dtype=torch.bool))]


class LastState(nn.Module):
    """The map from the speller's last state to an input of the lexeme LM."""

    def __init__(self, n_speller: int, n_embed: int) -> None:
        super().__init__()
        self.map = nn.Linear(n_speller, n_embed)

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights."""
        bound = self.map.in_features**-0.5
        with torch.no_grad():
            self.map.weight.uniform_(-bound, bound, generator=generator)
            self.map.bias.zero_()

    def vectors(
        self,
        speller: Speller,
        hidden: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
    ) -> Tensor:
        """The inputs that stand for words spelled from hidden states.  (N, D) → (N, D)"""
        mapped: Tensor = self.map(speller.final_states(hidden, spellings, noise))
        return mapped

    def read(
        self,
        lm: LexemeLM,
        speller: Speller,
        inputs: Tensor,
        spelled: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        noise: Noise | None = None,
    ) -> tuple[Hidden, State]:
        """Reads inputs (T, B), after which the words at places `spelled` (t·B + b) come."""
        *lm_state, (vectors, given) = state
        n_steps, n_rails = inputs.shape
        times, rails = spelled // n_rails, spelled % n_rails
        x = lm.embed(inputs, noise)  # (T, B, D)
        parts: list[Hidden] = []
        start = 0
        for stop in sorted({*(times + 1).tolist(), n_steps}):
            first = torch.where(given, vectors, x[start])
            stretch = torch.cat([first[None], x[start + 1 : stop]])
            hidden, lm_state = lm.run(stretch, lm_state, noise)
            parts.append(hidden)
            vectors, given = torch.zeros_like(vectors), torch.zeros_like(given)
            rows = np.flatnonzero(times == stop - 1)
            if len(rows):
                on = torch.from_numpy(rails[rows]).to(x.device)
                own = None if noise is None else noise.at(torch.full_like(on, stop - 1), on)
                mapped = self.vectors(speller, hidden.states[-1][on], spellings.take(rows), own)
                vectors = vectors.index_copy(0, on, mapped.to(vectors.dtype))
                given = given.index_fill(0, on, True)
            start = stop
        whole = Hidden(
            torch.cat([part.states for part in parts]), torch.cat([part.dropped for part in parts])
        )
        return whole, [*lm_state, (vectors, given)]

    def told(self, speller: Speller, state: State, hidden: Tensor, spellings: Spellings) -> State:
        """The state once it is known how the next words, spelled from `hidden`, are spelled."""
        *lm_state, (_, given) = state
        return [*lm_state, (self.vectors(speller, hidden, spellings), torch.ones_like(given))]


class Composed(nn.Module):
    """Filters over characters, the most that each finds in a word, and a map to what is read."""

    def __init__(self, config: CompositionConfig, n_symbols: int, n_embed: int) -> None:
        super().__init__()
        self.characters = nn.Parameter(torch.empty(n_symbols, config.n_char_embed))
        self.filters = nn.ModuleList(
            nn.Conv1d(config.n_char_embed, config.n_filters, width) for width in config.widths
        )
        self.map = nn.Linear(config.n_filters * len(config.widths), n_embed, bias=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights; at first, nothing is added to e(UNK)."""
        with torch.no_grad():
            self.characters.uniform_(-1, 1, generator=generator)
            for module in self.filters:
                of_width = cast(nn.Conv1d, module)
                bound = (of_width.in_channels * of_width.kernel_size[0]) ** -0.5
                of_width.weight.uniform_(-bound, bound, generator=generator)
                assert of_width.bias is not None
                of_width.bias.zero_()
            self.map.weight.zero_()

    def vectors(self, spellings: Spellings) -> Tensor:
        """What is added to e(UNK) for each of some words.  (N, D)"""
        if not len(spellings):
            return self.map.weight.new_zeros(0, self.map.out_features)
        lengths = spellings.lengths() + 2  # with BOW and EOW

        def of(rows: NDArray[np.int64], place: Tensor) -> Tensor:
            symbols, _ = padded(spellings, rows)  # (1 + L, N)
            symbols = functional.pad(symbols, (0, 0, 0, 1)).to(self.characters.device)
            there = torch.arange(len(symbols))[:, None] < torch.from_numpy(lengths[rows])
            there = there.to(symbols.device)
            most = self._most(symbols, there)
            mapped: Tensor = self.map(most.relu())
            return mapped.to(self.map.weight.dtype)

        return by_length(spellings, of)

    def _most(self, symbols: Tensor, there: Tensor) -> Tensor:
        """The most that each filter finds in words (L, N), where they are there.  (N, filters)

        Without gradients, long words are read piece by piece: no single one can fill the memory.
        """
        window = len(symbols) if torch.is_grad_enabled() else STEP_WINDOW
        best: Tensor | None = None
        for start in range(0, len(symbols), window):
            overlap = max(cast(nn.Conv1d, module).kernel_size[0] for module in self.filters) - 1
            piece = slice(start, start + window + overlap)
            x = functional.embedding(symbols[piece], self.characters) * there[piece, :, None]
            here = there[start : start + window].T[:, None]  # (N, 1, L)
            found = []
            for module in self.filters:
                width = cast(nn.Conv1d, module).kernel_size[0]
                padded_x = functional.pad(x.permute(1, 2, 0), (0, width - 1))  # (N, C, L)
                seen = module(padded_x)[..., : here.shape[2]]
                found.append(seen.masked_fill(~here, float("-inf")).amax(2))
            most = torch.cat(found, 1)
            best = most if best is None else torch.maximum(best, most)
        assert best is not None
        return best

    def read(
        self,
        lm: LexemeLM,
        speller: Speller,
        inputs: Tensor,
        spelled: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        noise: Noise | None = None,
    ) -> tuple[Hidden, State]:
        """Reads inputs (T, B), after which the words at places `spelled` (t·B + b) come."""
        *lm_state, (carried, given) = state
        n_rails = inputs.shape[1]
        vectors = self.vectors(spellings)
        # What comes at a place is read at the next: of this window, or the first of the next one.
        at = spelled + n_rails
        is_last = at >= inputs.numel()
        here = torch.from_numpy(at[~is_last]).to(inputs.device)
        ids = inputs.flatten().index_fill(0, here, UNK_ID).view_as(inputs)
        ids = torch.cat([torch.where(given.T, UNK_ID, ids[:1]), ids[1:]])
        x = lm.embed(ids, noise)
        added = x.new_zeros(inputs.numel(), x.shape[2])
        added = added.index_copy(0, here, vectors[torch.from_numpy(~is_last).to(here.device)])
        added = torch.cat([torch.where(given, carried, added[:n_rails]), added[n_rails:]])
        hidden, lm_state = lm.run(x + added.view_as(x), lm_state, noise)
        later = torch.from_numpy(at[is_last] - inputs.numel()).to(inputs.device)
        last = vectors[torch.from_numpy(is_last).to(here.device)]
        carried = torch.zeros_like(carried).index_copy(0, later, last)
        return hidden, [*lm_state, (carried, torch.zeros_like(given).index_fill(0, later, True))]

    def told(self, speller: Speller, state: State, hidden: Tensor, spellings: Spellings) -> State:
        """The state once it is known how the next words are spelled."""
        *lm_state, (_, given) = state
        return [*lm_state, (self.vectors(spellings), torch.ones_like(given))]
