"""Looking back: what came when the lexeme LM was in a state like this one?

One attention head over the last words. The key of a word is made from the state that predicted it,
its value is the vector that was read of it, and what is found is added to the hidden state:

    h′ = h + W · Σ_j a_j · e(w_j),   a ∝ exp(sharpness · cos(q(h), k(h_{j−1}))) or exp(none)

j are the last M words. Where a text has only begun there are fewer, and each that is missing counts
as a usual word: as alike as words are on average, and with the mean of what was read. Both are
taken from the training text once the weights are final (`settle`). Without them the few words of a
short text would get the weight of M, which the network has never seen in training: first sentences
of articles would cost a tenth more, and a model that writes would quote itself without end.

Embeddings are tied to the softmax, so to look at a word is to make it likelier, and there is little
to learn before that pays: W begins as half the identity, and q and k as the same map. It is a part
of the network, trained with it: no weight changes while a text is scored, and no word further back
than `reach` is known. (The cache of `cache`, which is about what was read at test time and holds
spellings, is another thing.)

    T window, B rails, M reach, K keys, D embedding
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_SHARPNESS = 24.0
_NONE = 2.0
_STEPS = 256
"""Steps that look back at a time: what makes the memory of a long text small."""


class Recall(nn.Module):
    """The attention head."""

    def __init__(self, reach: int, n_keys: int, n_embed: int) -> None:
        super().__init__()
        self.reach, self.n_keys = reach, n_keys
        self.query = nn.Linear(n_embed, n_keys, bias=False)
        self.key = nn.Linear(n_embed, n_keys, bias=False)
        self.out = nn.Linear(n_embed, n_embed, bias=False)
        self.sharpness = nn.Parameter(torch.empty(()))
        """In units of what it begins with, so that it is of the size of other weights."""
        self.none = nn.Parameter(torch.empty(()))
        """The logit of looking at no word."""
        self.usual = nn.Parameter(torch.zeros(n_embed), requires_grad=False)
        """What is read on average."""
        self.usual_alike = nn.Parameter(torch.zeros(()), requires_grad=False)
        """How alike queries and keys are on average: a cosine."""

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights; states that are alike find each other from the beginning."""
        n_embed = self.out.in_features
        with torch.no_grad():
            self.query.weight.normal_(0, n_embed**-0.5, generator=generator)
            self.key.weight.copy_(self.query.weight)
            self.out.weight.copy_(0.5 * torch.eye(n_embed))
            self.sharpness.fill_(1.0)
            self.none.fill_(_NONE)
            self.usual.zero_()
            self.usual_alike.zero_()

    @torch.no_grad()
    def settle(self, read: Tensor, hidden: Tensor) -> None:
        """Takes what is usual from a text: vectors that were read, and states.  (T, B, D)"""
        self.usual.copy_(read.mean((0, 1)))
        queries, keys = (_unit(map_(hidden)).mean(0) for map_ in (self.query, self.key))  # (B, K)
        self.usual_alike.copy_((queries * keys).sum(1).mean())

    def zero_state(self, n_rails: int) -> tuple[Tensor, ...]:
        """Keys and values of the last M words, which of them there are, and the next one's key."""
        new = self.out.weight.new_zeros
        keys, values = (new(self.reach, n_rails, n) for n in (self.n_keys, self.out.in_features))
        there = new(self.reach, n_rails, 1, dtype=torch.bool)
        return keys, values, there, new(1, n_rails, self.n_keys)

    def forward(
        self, read: Tensor, hidden: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Adds to states (T, B, D) what is found in words (T, B, D), read on the way, and before.

        The state at t has read words up to t, and may look at the last M of them.
        """
        keys, values, there, next_key = state
        queries, own = (_unit(map_(hidden)) for map_ in (self.query, self.key))
        own = torch.cat([next_key, own])  # (1 + T, B, K)
        n, found = len(hidden), []
        for start in range(0, n, _STEPS):
            stop = min(start + _STEPS, n)
            first = max(0, start - self.reach)
            before = keys[start:], values[start:], there[start:]
            here = own[first:stop], read[first:stop]
            found.append(self._look(queries[start:stop], before, here))
        hidden = hidden + self.out(torch.cat(found)).to(hidden.dtype)
        first = max(0, n - self.reach)
        return hidden, (
            torch.cat([keys[n:], own[first:n]]),
            torch.cat([values[n:], read[first:]]),
            torch.cat([there[n:], there.new_ones(n - first, *there.shape[1:])]),
            own[n:].clone(),
        )

    def _look(
        self,
        queries: Tensor,
        before: tuple[Tensor, Tensor, Tensor],
        here: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Looks at words from before the first query, and on the way to the last.  → (T, B, D)

        Queries are (T, B, K), keys (N, B, K), values (N, B, D), there (N, B, 1). The two parts are
        never put together: that would be a copy of all that is remembered.
        """
        (old_keys, old_values, there), (own, read) = before, here
        step = torch.arange(len(queries), device=queries.device)[:, None]  # (T, 1)
        # Of the words from before, the first t + 1 are out of reach of the query at t.
        left = torch.arange(len(old_keys), device=queries.device) > step  # (T, N)
        ago = step + (len(own) - len(queries)) - torch.arange(len(own), device=queries.device)
        is_old = left & there.permute(1, 2, 0)  # (B, T, N)
        is_new = (ago >= 0) & (ago < self.reach)  # (T, N)
        n_missing = self.reach - is_old.sum(2, keepdim=True) - is_new.sum(1)[:, None]  # (B, T, 1)
        usual = _SHARPNESS * self.sharpness * self.usual_alike + n_missing.clamp_min(1).log()
        logits = [
            self.none.expand(queries.shape[1], len(queries), 1),
            usual.masked_fill(n_missing <= 0, float("-inf")),
            self._alike(queries, old_keys, is_old),
            self._alike(queries, own, is_new),
        ]
        weights = torch.softmax(torch.cat(logits, 2), 2)
        _, missing, old, new = torch.split(weights, [x.shape[2] for x in logits], 2)
        found = old @ old_values.transpose(0, 1) + new @ read.transpose(0, 1)  # (B, T, D)
        return (found + missing * self.usual).transpose(0, 1)

    def _alike(self, queries: Tensor, keys: Tensor, in_reach: Tensor) -> Tensor:
        """The logits of words: (T, B, K), (N, B, K) → (B, T, N)"""
        alike = (queries.transpose(0, 1) @ keys.permute(1, 2, 0)).to(queries.dtype)
        logits = _SHARPNESS * self.sharpness * alike
        return logits.masked_fill(~in_reach, float("-inf"))


def _unit(x: Tensor) -> Tensor:
    """Vectors of length 1; what comes in bfloat16 is float32 from here on."""
    return functional.normalize(x.float() if x.dtype == torch.bfloat16 else x, dim=-1)
