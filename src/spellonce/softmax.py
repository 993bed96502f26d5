"""The lexeme table: embeddings and the softmax tied to them, whole or split by frequency.

Lexeme ids are ordered by frequency, so a cut of the ids is a cut by frequency. Without cuts this is
the paper's tied softmax, p(w | h) ∝ exp(e(w)·h + b(w)). With cuts, the frequent *head* competes
with one vector per *tail*, and p(w | h) = p(tail | h) · p(w | tail, h) for the rest: exactly
normalised, and far cheaper. With many small tails, a step pays for those that occur in it and not
for the size of the vocabulary. Rows keep their full width in any case, so e(w) is one thing
to the speller and to everyone else.

    N positions, V lexemes, D embedding
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

_BLOCK = 1 << 22
"""Logits held at a time: what makes the memory of a large softmax small."""
_FEW = 16
"""Rows that are done at once and without further ado."""
_ROWS, _MOST = 256, 1 << 24
"""But as many rows as products need to be fast, up to so many logits."""


class _SumOfNats(torch.autograd.Function):
    """`sum_of_nats` with its gradient computed on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        share: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        fill = torch.empty_like if len(hidden) else torch.zeros_like
        gradients = torch.empty_like(hidden), fill(weight), torch.zeros_like(bias)
        nats = _blockwise(hidden, weight, bias, targets, share, gradients)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(nats)
        return _sum(nats, share), nats

    @staticmethod
    def backward(ctx: Any, d_sum: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # In place, and given away: a gradient as large as the table is not copied. Once only.
        gradients, ctx.gradients = ctx.gradients, None
        return *(gradient.mul_(d_sum) for gradient in gradients), None, None


def _sum(nats: Tensor, share: Tensor | None) -> Tensor:
    return nats.sum() if share is None else (nats * share).sum()


def _precision(like: Tensor) -> torch.dtype:
    """What products are computed in: what `torch.autocast` says, where it is on."""
    device = like.device.type
    if like.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return like.dtype
    return torch.get_autocast_dtype(device)


def _blockwise(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    share: Tensor | None,
    gradients: tuple[Tensor, Tensor, Tensor] | None,
) -> Tensor:
    """Nats of each target, block by block; fills in the gradients of their sum where wanted.

    The logits of a block live in one buffer that is reused, and turn into unnormalised
    probabilities in place: N × V logits are never in memory at once, and are read and written
    as few times as can be. With p = exp / total, the gradient of a logit is p − [is the target];
    the products are taken with exp, 1 / total is put where there is least of it, and the targets
    are a correction of one row each.
    """
    n, v = len(hidden), len(weight)
    low = _precision(hidden)
    if gradients is not None and 0 < n <= _FEW and hidden.dtype == weight.dtype == low:
        return _of_few(hidden, weight, bias, targets, share, gradients)
    exact = torch.promote_types(hidden.dtype, weight.dtype)
    rows = max(1, min(n, max(_BLOCK // v, min(_ROWS, _MOST // v))))
    nats = hidden.new_empty(n, dtype=exact)
    buffer = hidden.new_empty(rows, v, dtype=low)
    w, b = weight.to(low), bias.to(low)
    for start in range(0, n, rows):
        block = slice(start, start + rows)
        h, target = hidden[block], targets[block]
        logits = buffer[: len(h)]  # (rows, V)
        torch.addmm(b, h.to(low), w.T, out=logits)
        target_logit = logits.gather(1, target[:, None])
        peak = logits.amax(1, keepdim=True)
        odds = logits.sub_(peak).exp_()
        total = odds.sum(1, keepdim=True, dtype=exact)
        nats[block] = (total.log() + peak - target_logit)[:, 0]
        if gradients is not None:
            d_hidden, d_weight, d_bias = gradients
            counts = torch.ones_like(total) if share is None else share[block, None]  # (rows, 1)
            scale = counts / total
            torch.sub(torch.mm(odds, w) * scale, weight[target] * counts, out=d_hidden[block])
            scaled, at_target = (h * scale).to(low), h * counts
            if low == weight.dtype:  # the first block fills it
                d_weight.addmm_(odds.T, scaled, beta=float(start > 0))
            elif start:
                d_weight += torch.mm(odds.T, scaled)
            else:
                d_weight.copy_(torch.mm(odds.T, scaled))
            d_weight.index_add_(0, target, at_target.to(weight.dtype), alpha=-1)
            d_bias += torch.mv(odds.T, scale[:, 0].to(low))
            d_bias.index_add_(0, target, counts[:, 0].to(bias.dtype), alpha=-1)
    return nats


def _of_few(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    share: Tensor | None,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """The same for a few rows, of a tail for instance, where what costs is how much is called."""
    d_hidden, d_weight, d_bias = gradients
    logits = torch.addmm(bias, hidden, weight.T)
    total = logits.logsumexp(1, keepdim=True)
    at_target = targets[:, None]
    nats = (total - logits.gather(1, at_target))[:, 0]
    slope = logits.sub_(total).exp_().scatter_add_(1, at_target, -torch.ones_like(total))
    if share is not None:
        slope *= share[:, None]
    torch.mm(slope, weight, out=d_hidden)
    torch.mm(slope.T, hidden, out=d_weight)
    torch.sum(slope, 0, out=d_bias)
    return nats


def sum_of_nats(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, share: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(differentiable sum, nats of each): −log softmax(hidden·weightᵀ + bias)[target].

    `share` (N,): how much each counts in the sum.

    >>> h, w, b = torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4)
    >>> total, nats = sum_of_nats(h, w, b, torch.tensor([0, 1, 2]))
    >>> bool(torch.isclose(nats.exp(), torch.tensor(4.0)).all())
    True
    """
    if torch.is_grad_enabled():
        summed = _SumOfNats.apply(hidden, weight, bias, targets, share)  # type: ignore[no-untyped-call]
        return cast(tuple[Tensor, Tensor], summed)
    nats = _blockwise(hidden, weight, bias, targets, share, None)
    return _sum(nats, share), nats


def _growing(first: int, last: int, size: int) -> Iterator[int]:
    """Where parts begin, the first of them of so many; they grow with the root of their rank.

    A tail costs every token a row of the head, and its own rows whenever one of its lexemes is met.
    Where the lexeme of rank r has a share of 1/r, the sum of both is least if sizes follow √r.

    >>> list(_growing(100, 200, 20))
    [100, 120, 142, 166, 192]
    """
    begin = first
    while begin < last:
        yield begin
        begin += max(1, round(size * (begin / first) ** 0.5))


class LexemeTable(nn.Module):
    """Embeddings e(w), biases b(w) and the distribution over lexemes that they define."""

    def __init__(
        self, n_lexemes: int, n_embed: int, cuts: tuple[int, ...] = (), tail_size: int = 0
    ) -> None:
        super().__init__()
        pieces = _growing(max(cuts), n_lexemes, tail_size) if cuts and tail_size else ()
        inner = sorted({cut for cut in (*cuts, *pieces) if cut < n_lexemes})
        self.n_lexemes = n_lexemes
        self.bounds = [0, *inner, n_lexemes]
        self.n_tails = len(inner)
        sizes = [b - a for a, b in pairwise(self.bounds)]
        # The head's last rows are not lexemes: they stand for the tails. Separate parameters,
        # because the gradient of a slice is as large as what it was cut from.
        sizes[0] += self.n_tails
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(size, n_embed)) for size in sizes)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)

    @property
    def n_embed(self) -> int:
        """D"""
        return int(self.weights[0].shape[1])

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Uniform embeddings (AWD-LSTM's); biases zero, or the log of (smoothed) counts."""
        with torch.no_grad():
            for weight, bias in zip(self.weights, self.biases, strict=True):
                weight.uniform_(-0.1, 0.1, generator=generator)
                bias.zero_()
            if counts is not None:
                parts = [(c + 0.5).log() for c in self._parts(counts.double())]
                tails = [part.logsumexp(0, keepdim=True) for part in parts[1:]]
                for bias, part in zip(
                    self.biases, [torch.cat([parts[0], *tails]), *parts[1:]], strict=True
                ):
                    bias.copy_(part - part.logsumexp(0))

    @torch.no_grad()
    def start_from(self, embeddings: Tensor) -> None:
        """Takes embeddings (V, D) for its own; what stands for tails stays."""
        for weight, part in zip(self.weights, self._parts(embeddings), strict=True):
            weight[: len(part)] = part

    def _parts(self, rows: Tensor) -> list[Tensor]:
        return [rows[a:b] for a, b in pairwise(self.bounds)]

    def embeddings(self) -> Tensor:
        """e(w) for all lexemes."""
        head = self.weights[0][: self.bounds[1]]
        return torch.cat([head, *self.weights[1:]])  # (V, D)

    def _members(self, ids: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """(part, places, rows of it there) of ids (N,), for those parts that any of them is in."""
        bounds = torch.tensor(self.bounds[1:], device=ids.device)
        part = torch.bucketize(ids, bounds, right=True)
        order = part.argsort(stable=True)
        members, start = [], 0
        for i, n in enumerate(torch.bincount(part).tolist()):
            if n:
                place = order[start : start + n]
                members.append((i, place, ids[place] - self.bounds[i]))
                start += n
        return members

    def forward(self, ids: Tensor) -> Tensor:
        """e(w) for some lexemes: ids of any shape → that shape + (D,)."""
        flat = ids.reshape(-1)
        if not self.n_tails or not len(flat):
            rows = nn.functional.embedding(flat, self.weights[0])
        else:
            members = self._members(flat)
            # Sparse: what a few rows add to the gradient of a tail is not to be as large as it.
            picked = [
                nn.functional.embedding(row, self.weights[i], sparse=i > 0) for i, _, row in members
            ]
            order = torch.cat([place for _, place, _ in members])
            found = torch.cat(picked)
            rows = torch.empty_like(found).index_copy(0, order, found)
        return rows.view(*ids.shape, self.n_embed)

    def _head_bias(self, banned: tuple[int, ...]) -> Tensor:
        """The head's biases; those of banned lexemes, which must be in the head, are −∞."""
        bias: Tensor = self.biases[0]
        if not banned:
            return bias
        return bias.index_fill(0, torch.tensor(banned, device=bias.device), float("-inf"))

    def nats(
        self,
        hidden: Tensor,
        targets: Tensor,
        banned: tuple[int, ...] = (),
        share: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(differentiable sum, nats of each): −log p(w | h).  hidden (N, D), targets (N,)

        Banned lexemes, of the head, have no probability, and the others all of it. `share` (N,):
        how much each counts in the sum.
        """
        head_bias = self._head_bias(banned)
        if not self.n_tails:
            return sum_of_nats(hidden, self.weights[0], head_bias, targets, share)
        members = [member for member in self._members(targets) if member[0] > 0]
        bounds = torch.tensor(self.bounds[1:], device=targets.device)
        part = torch.bucketize(targets, bounds, right=True)
        in_head = torch.where(part > 0, self.bounds[1] + part - 1, targets)
        total, nats = sum_of_nats(hidden, self.weights[0], head_bias, in_head, share)
        if not members:
            return total, nats
        # The rows of all tails at once: the gradient of each pick is as large as what it is from.
        places = torch.cat([place for _, place, _ in members])
        sizes = [len(place) for _, place, _ in members]
        rows = torch.split(hidden.index_select(0, places), sizes)
        shares: Sequence[Tensor | None] = [None] * len(members)
        if share is not None:
            shares = torch.split(share[places], sizes)
        found = [
            sum_of_nats(own, self.weights[tail], self.biases[tail], target, its_share)
            for (tail, _, target), own, its_share in zip(members, rows, shares, strict=True)
        ]
        total = torch.stack([total, *(sum_ for sum_, _ in found)]).sum()
        return total, nats.index_add(0, places, torch.cat([each for _, each in found]))

    def head_log_probs(self, hidden: Tensor, banned: tuple[int, ...] = ()) -> Tensor:
        """log p(· | h) over the lexemes of the head, then over the tails.  (N, D) → (N, …)"""
        return torch.log_softmax(torch.addmm(self._head_bias(banned), hidden, self.weights[0].T), 1)

    def tail_log_probs(self, hidden: Tensor, tail: int) -> Tensor:
        """log p(· | h, tail) over the lexemes of a tail, 1 or above.  (N, D) → (N, …)"""
        return torch.log_softmax(torch.addmm(self.biases[tail], hidden, self.weights[tail].T), 1)

    def log_probs(self, hidden: Tensor, banned: tuple[int, ...] = ()) -> Tensor:
        """log p(· | h) over all lexemes.  (N, D) → (N, V)"""
        first = self.head_log_probs(hidden, banned)
        n_head = self.bounds[1]
        rest = [
            first[:, [n_head + i]] + self.tail_log_probs(hidden, i + 1) for i in range(self.n_tails)
        ]
        return torch.cat([first[:, :n_head], *rest], 1)
