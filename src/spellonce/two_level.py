"""The two-level model: a lexeme LM and spellers under one objective (paper, equation 3).

    p(θ) · Π_w [p(e(w)) · p_spell(σ(w) | e(w))]     (1) prior, (2) lexicon
         · Π_i p_LM(w_i | w_<i)                     (3) text
         · Π_{i: w_i = UNK} p_spell(s_i | h_i)      (4) novel words

Systems are compositions: the same speller twice is `full`, two spellers are `sep-reg`, no lexicon
speller is `no-reg`.

    T window, B rails, D embedding
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spellonce.batching import Window
from spellonce.errors import ConfigError, RunError
from spellonce.lexeme_lm import Hidden, LexemeLM, State
from spellonce.lexicon import EOS_ID, UNK_ID, Spellings
from spellonce.speller import Speller, SpellerModel


@dataclass(frozen=True)
class ObjectiveConfig:
    """The weights of the joint objective. The defaults are the paper's."""

    lexicon_interval: int = 50
    """Every how many steps the lexicon factor (2) is sampled."""
    lexicon_batch: int = 1500
    """Lexemes in such a sample."""
    lexicon_max_length: int = 20
    """Longer spellings are left out of factor (2), and of nothing else."""
    novel_max_length: int = 500
    """Training reads no further into a novel word; evaluation reads all of it."""
    nuclear_norm: float = 1.0
    """Weight of the nuclear norm of the speller's vector input, in total nats."""
    proximal: bool = False
    """Apply the nuclear norm by proximal steps, which give true low rank, not by sub-gradients."""
    alpha: float = 2.0
    """AR: weight of the squared activations."""
    beta: float = 1.0
    """TAR: weight of the squared change of activations."""

    def __post_init__(self) -> None:
        for name in ("lexicon_interval", "lexicon_batch", "novel_max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lexicon_max_length", "nuclear_norm", "alpha", "beta"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True)
class WindowNats:
    """Sums over one window, differentiable."""

    lm: Tensor
    """Factor (3)."""
    novel: Tensor
    """Factor (4)."""
    hidden: Hidden


class TwoLevel(nn.Module):
    """Lexeme LM + spellers."""

    def __init__(
        self,
        lm: LexemeLM,
        *,
        lexicon_speller: nn.Module | None,
        novel_speller: nn.Module | None,
    ) -> None:
        super().__init__()
        self.lm = lm
        self.novel = novel_speller
        self.lexicon = lexicon_speller

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def spellers(self) -> list[nn.Module]:
        """The distinct spellers."""
        found = [s for s in (self.novel, self.lexicon) if s is not None]
        return found[:1] if len(found) == 2 and found[0] is found[1] else found

    def initialise(self, seed: int, counts: NDArray[np.int64]) -> None:
        """Seeded weights; `counts` are those of all types, the lexemes first."""
        generator = torch.Generator().manual_seed(seed)
        n = self.lm.table.n_lexemes
        lexemes = counts[:n].copy()
        lexemes[UNK_ID] += counts[n:].sum()  # what is no lexeme is UNK
        self.lm.initialise(generator, torch.from_numpy(lexemes))
        for speller in self.spellers:
            speller.initialise(generator)  # type: ignore[operator]

    def window_nats(
        self,
        window: Window,
        spellings: Spellings,
        state: State,
        generator: torch.Generator | None,
    ) -> tuple[WindowNats, State]:
        """Factors (3) and (4) of a window, whose novel words have the given spellings."""
        device = self.device
        inputs, targets, novel = (
            torch.from_numpy(x).to(device) for x in (window.inputs, window.targets, window.novel)
        )
        hidden, state = self.lm(inputs, state, generator)
        lm_nats, _ = self.lm.table.nats(hidden.dropped.flatten(0, 1), targets.flatten())  # (3)
        novel_nats = lm_nats.new_zeros(())
        if self.novel is not None and len(novel):
            h = hidden.states.flatten(0, 1)[novel]  # (N, D): the states before the words were read
            novel_nats = as_speller(self.novel).nats(h, spellings, generator).sum()  # (4)
        return WindowNats(lm_nats, novel_nats, hidden), state

    def lexicon_nats(
        self, ids: NDArray[np.int64], spellings: Spellings, generator: torch.Generator | None
    ) -> Tensor:
        """Factor (2) of some lexemes: Σ −log p_spell(σ(w) | e(w)). Gradients reach e."""
        assert self.lexicon is not None
        embeddings = self.lm.table(torch.from_numpy(ids).to(self.device))
        return as_speller(self.lexicon).nats(embeddings, spellings, generator).sum()

    def nuclear_norm(self) -> Tensor:
        """The norm of every speller that has one."""
        norms = [s.nuclear_norm() for s in self.spellers if isinstance(s, Speller)]
        return torch.stack(norms).sum() if norms else torch.zeros((), device=self.device)

    @torch.no_grad()
    def score(
        self, ids: NDArray[np.int64], spellings: Spellings, *, window: int = 1000
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(nats of p_LM, nats of p_spell) of every token of one stream that follows an EOS.

        Needs a speller for novel words where there are any.

        `spellings` has a row for each UNK among the ids, in order. The state is carried through
        the whole stream, so the window is a matter of memory and speed alone.
        """
        if self.novel is None and (ids == UNK_ID).any():
            raise ValueError("novel words cannot be scored without a speller for them")
        device = self.device
        lm_nats = np.zeros(len(ids))
        spell_nats = np.zeros(len(ids))
        inputs = np.concatenate([[EOS_ID], ids[:-1]]).astype(np.int64)
        state = self.lm.zero_state(1)
        pending: list[Tensor] = []
        unk = np.flatnonzero(ids == UNK_ID)
        done = n_pending = 0

        def spell_pending() -> None:
            nonlocal done, n_pending
            rows = np.arange(done, done + n_pending)
            nats = as_speller(self.novel).nats(torch.cat(pending), spellings.take(rows))
            spell_nats[unk[rows]] = nats.double().cpu().numpy()
            done, n_pending = done + n_pending, 0
            pending.clear()

        for start in range(0, len(ids), window):
            x = torch.from_numpy(inputs[start : start + window]).to(device)
            targets = torch.from_numpy(ids[start : start + window]).to(device)
            hidden, state = self.lm(x[:, None], state)
            h = hidden.states[:, 0]  # (T, D)
            lm_nats[start : start + window] = self.lm.table.nats(h, targets)[1].double().cpu()
            novel = h[targets == UNK_ID]
            if len(novel):
                pending.append(novel)
                n_pending += len(novel)
                if n_pending >= 512:
                    spell_pending()
        if n_pending:
            spell_pending()
        return lm_nats, spell_nats


def as_speller(module: nn.Module | None) -> SpellerModel:
    """A module that is known to be a speller."""
    return cast(SpellerModel, module)


def load_weights(parameters: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Copies tensors into parameters of the same names and shapes."""
    for name, parameter in parameters.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != parameter.shape:
            got = "nothing" if tensor is None else tuple(tensor.shape)
            raise RunError(f"the weights do not fit: {name} is {got}, not {tuple(parameter.shape)}")
        with torch.no_grad():
            parameter.copy_(tensor)
