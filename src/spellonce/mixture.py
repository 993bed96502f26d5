"""A lexeme LM and a count-based one beside it: p(w) = (1 − λ) · p_LM(w | h) + λ · p_counts(w).

λ is a logistic unit on h and on the kind of context that the counts have: how many words before
were seen together, and how often. It is learned with everything else, from what the counts say of
a word when its own occurrence is left out; the lexeme LM itself is trained as if it were alone.

    N positions, T window, B rails, D width, V lexemes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce.batching import Counts
from spellonce.errors import ConfigError
from spellonce.lexicon import EOS_ID, UNK_ID
from spellonce.ngrams import Ngrams, leave_one_out


@dataclass(frozen=True)
class NgramConfig:
    """The count-based model."""

    order: int = 4
    """Words in the longest n-grams, the predicted one among them."""
    max_tokens: int = 20_000_000
    """No more of the training text is counted."""

    def __post_init__(self) -> None:
        if self.order < 1:
            raise ConfigError(f"ngrams.order must be at least 1, got {self.order}")
        if self.max_tokens < 1:
            raise ConfigError(f"ngrams.max_tokens must be at least 1, got {self.max_tokens}")


def count_text(
    type_ids: NDArray[np.int32], n_lexemes: int, config: NgramConfig
) -> tuple[Ngrams, Counts]:
    """The count-based model of a text, and what it says of the text itself."""
    words = np.where(type_ids < n_lexemes, type_ids, UNK_ID)
    n = config.max_tokens
    ngrams, p, kinds = leave_one_out(words[:n], n_lexemes, config.order)
    parts = [(p, kinds)]
    for start in range(n, len(words), n):
        before = words[start - ngrams.reach : start, None].astype(np.int64)
        more, where = ngrams.probabilities(words[start : start + n, None].astype(np.int64), before)
        parts.append((more[:, 0].astype(np.float32), where[:, 0].astype(np.uint8)))
    return ngrams, Counts(*(np.concatenate(part) for part in zip(*parts, strict=True)))


class Mixture(nn.Module):
    """The count-based model, and how far to trust it."""

    def __init__(self, ngrams: Ngrams, n_vector: int) -> None:
        super().__init__()
        self.ngrams = ngrams
        self.gate = nn.Linear(n_vector, 1, bias=False)
        self.trust = nn.Parameter(torch.empty(ngrams.n_kinds))

    def initialise(self) -> None:
        """Half and half."""
        with torch.no_grad():
            self.gate.weight.zero_()
            self.trust.zero_()

    def zero_history(self, n_rails: int) -> Tensor:
        """What was read before anything was: (reach, B)."""
        return torch.full((self.ngrams.reach, n_rails), -1, device=self.trust.device)

    def remember(self, history: Tensor, ids: Tensor) -> Tensor:
        """The history after some more ids (T, B)."""
        return torch.cat([history, ids])[len(ids) :]

    def streams(
        self, streams: list[NDArray[np.int64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(p, kind of context) of all ids of streams that follow an EOS each, end to end."""
        before = np.full((self.ngrams.reach, 1), -1)
        before[-1:] = EOS_ID
        found = [self.ngrams.probabilities(stream[:, None], before) for stream in streams]
        empty = np.zeros((0, 1))
        p = np.concatenate([empty, *(p for p, _ in found)])[:, 0]
        return p, np.concatenate([empty, *(kinds for _, kinds in found)])[:, 0].astype(np.int64)

    def nats(
        self,
        lm_nats: Tensor,
        hidden: Tensor,
        p: NDArray[np.floating],
        kinds: NDArray[np.integer],
    ) -> Tensor:
        """Nats of the mixture, given those of the lexeme LM.  (N,), (N, D) → (N,)"""
        counts = torch.from_numpy(p.astype(np.float32)).to(hidden.device)
        logit = self._logit(hidden, torch.from_numpy(kinds.astype(np.int64)).to(hidden.device))
        return -torch.logaddexp(
            functional.logsigmoid(-logit) - lm_nats, functional.logsigmoid(logit) + counts.log()
        )

    def log_probs(self, log_probs: Tensor, hidden: Tensor, history: Tensor) -> Tensor:
        """The mixture over all lexemes, at one moment of one rail.  (1, V)"""
        p, kind = self.ngrams.distribution(history[:, 0].tolist())
        counts = torch.from_numpy(p).to(log_probs)[None]
        logit = self._logit(hidden, torch.tensor([kind], device=hidden.device))[:, None]
        return torch.logaddexp(
            functional.logsigmoid(-logit) + log_probs, functional.logsigmoid(logit) + counts.log()
        )

    def _logit(self, hidden: Tensor, kinds: Tensor) -> Tensor:
        gate: Tensor = self.gate(hidden)[:, 0]
        return gate + self.trust[kinds]
