"""An aside of the paper: after a novel word, the lexeme LM reads how it was spelled, not e(UNK).

The speller's last state, mapped into the space of the embeddings, is the next input. What is read
then depends on what was predicted just before, so the lexeme LM can only run from one novel word
to the next: exact, and slower. Dropout masks are drawn anew for each of these stretches.

    T window, B rails, D embedding
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spellonce.lexeme_lm import Hidden, LexemeLM, State
from spellonce.lexicon import Spellings
from spellonce.speller import Speller


class Feedback(nn.Module):
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

    def zero_state(self, lm_state: State, n_rails: int) -> State:
        """The LM's state, and what its next inputs are to be where they are not embeddings."""
        vectors = self.map.weight.new_zeros(n_rails, self.map.out_features)
        return [*lm_state, (vectors, vectors.new_zeros(n_rails, 1, dtype=torch.bool))]

    def vectors(
        self,
        speller: Speller,
        hidden: Tensor,
        spellings: Spellings,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The inputs that stand for words spelled from hidden states.  (N, D) → (N, D)"""
        mapped: Tensor = self.map(speller.final_states(hidden, spellings, generator))
        return mapped

    def read(
        self,
        lm: LexemeLM,
        speller: Speller,
        inputs: Tensor,
        novel: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        generator: torch.Generator | None = None,
    ) -> tuple[Hidden, State]:
        """Reads inputs (T, B), after which the words at places `novel` (t·B + b) are spelled."""
        *lm_state, (vectors, given) = state
        n_steps, n_rails = inputs.shape
        times, rails = novel // n_rails, novel % n_rails
        x = lm.embed(inputs, generator)  # (T, B, D)
        parts: list[Hidden] = []
        start = 0
        for stop in sorted({*(times + 1).tolist(), n_steps}):
            first = torch.where(given, vectors, x[start])
            stretch = torch.cat([first[None], x[start + 1 : stop]])
            hidden, lm_state = lm.run(stretch, lm_state, generator)
            parts.append(hidden)
            vectors, given = torch.zeros_like(vectors), torch.zeros_like(given)
            rows = np.flatnonzero(times == stop - 1)
            if len(rows):
                on = torch.from_numpy(rails[rows]).to(x.device)
                spelled = self.vectors(
                    speller, hidden.states[-1][on], spellings.take(rows), generator
                )
                vectors = vectors.index_copy(0, on, spelled.to(vectors.dtype))
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
