"""A second lexeme LM: a decoder-only Transformer, to show that p_LM may be any model.

Each layer looks back over `reach` positions and no further, by attention with linear biases (ALiBi,
Press et al. 2022), which needs no absolute positions. The keys and values of the last `reach`
positions are the state, so a text read in one window or in many gives the same hidden states.

    T window, B rails, D embedding, R reach, A heads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from spellonce.errors import ConfigError
from spellonce.lexeme_lm import Hidden, State
from spellonce.noise import Noise, check_dropout, dropout_over_time
from spellonce.softmax import LexemeTable


@dataclass(frozen=True)
class TransformerConfig:
    """The Transformer lexeme LM."""

    n_embed: int = 512
    """Width of embeddings and layers."""
    n_feed: int = 2048
    """Width inside the feed-forward parts."""
    n_layers: int = 8
    """Layers."""
    n_heads: int = 8
    """Heads of attention in each."""
    reach: int = 128
    """How many positions back a layer looks, the present one among them."""
    drop: float = 0.1
    """Dropout on embeddings and on what each layer adds."""
    drop_output: float = 0.1
    """Dropout before the softmax."""
    cuts: tuple[int, ...] = ()
    """Lexeme ids at which the softmax is split by frequency; none is the exact full softmax."""
    unigram_bias: bool = True
    """Start the softmax from the training frequencies instead of from the uniform distribution."""

    def __post_init__(self) -> None:
        for name in ("n_embed", "n_feed", "n_layers", "n_heads", "reach"):
            if getattr(self, name) < 1:
                got = getattr(self, name)
                raise ConfigError(f"transformer.{name} must be at least 1, got {got}")
        if self.n_embed % self.n_heads:
            raise ConfigError(f"transformer.n_embed ({self.n_embed}) must be a multiple of n_heads")
        check_dropout("transformer.drop", self.drop)
        check_dropout("transformer.drop_output", self.drop_output)
        if any(cut < 2 for cut in self.cuts):
            raise ConfigError(f"transformer.cuts must be 2 or more: {self.cuts}")


def alibi_slopes(n_heads: int) -> Tensor:
    """How fast each head forgets: a geometric series down to 2⁻⁸.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    return 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        n = config.n_embed
        self.norm_attention = nn.LayerNorm(n)
        self.norm_feed = nn.LayerNorm(n)
        self.project = nn.Linear(n, 3 * n)
        self.merge = nn.Linear(n, n)
        self.widen = nn.Linear(n, config.n_feed)
        self.narrow = nn.Linear(config.n_feed, n)

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights; what a layer adds begins small."""
        with torch.no_grad():
            for linear in (self.project, self.merge, self.widen, self.narrow):
                linear.weight.normal_(0, 0.02, generator=generator)
                linear.bias.zero_()
            for linear in (self.merge, self.narrow):
                linear.weight /= (2 * self.config.n_layers) ** 0.5
            for norm in (self.norm_attention, self.norm_feed):
                norm.weight.fill_(1.0)
                norm.bias.zero_()

    def zero_state(self, n_rails: int) -> tuple[Tensor, ...]:
        """Keys and values of the last R − 1 positions, and which of them there are."""
        keys = self.merge.weight.new_zeros(self.config.reach - 1, n_rails, self.config.n_embed)
        return keys, keys, keys.new_zeros(*keys.shape[:2], dtype=torch.bool)

    def forward(
        self, x: Tensor, state: tuple[Tensor, ...], noise: Noise | None, name: str
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(T, B, D) → (T, B, D)"""
        c = self.config
        n_steps, n_rails, _ = x.shape
        old_keys, old_values, old_there = state
        query, key, value = self.project(self.norm_attention(x)).chunk(3, 2)
        keys, values = torch.cat([old_keys, key]), torch.cat([old_values, value])  # (R − 1 + T, …)
        there = torch.cat([old_there, old_there.new_ones(n_steps, n_rails)])
        bias = self._bias(n_steps, there)
        mixed = functional.scaled_dot_product_attention(
            self._heads(query), self._heads(keys), self._heads(values), attn_mask=bias
        )  # (B, A, T, D / A)
        mixed = mixed.permute(2, 0, 1, 3).flatten(2)
        x = x + dropout_over_time(self.merge(mixed), c.drop, noise, f"mixed {name}")
        fed = self.narrow(functional.gelu(self.widen(self.norm_feed(x))))
        x = x + dropout_over_time(fed, c.drop, noise, f"fed {name}")
        first = len(keys) - (c.reach - 1)
        return x, (keys[first:], values[first:], there[first:])

    def _heads(self, x: Tensor) -> Tensor:
        """(S, B, D) → (B, A, S, D / A)"""
        return x.view(*x.shape[:2], self.config.n_heads, -1).permute(1, 2, 0, 3)

    def _bias(self, n_steps: int, there: Tensor) -> Tensor:
        """−slope · distance within reach, −∞ elsewhere.  (B, A, T, R − 1 + T)"""
        reach, device = self.config.reach, there.device
        at = torch.arange(n_steps, device=device)[:, None] + reach - 1
        distance = at - torch.arange(len(there), device=device)  # (T, R − 1 + T)
        seen = (distance >= 0) & (distance < reach) & there.T[:, None, :]  # (B, T, R − 1 + T)
        slopes = alibi_slopes(self.config.n_heads).to(device)
        bias = -slopes[:, None, None] * distance  # (A, T, R − 1 + T)
        return bias.to(self.merge.weight.dtype)[None].masked_fill(~seen[:, None], float("-inf"))


class TransformerLM(nn.Module):
    """Embeddings, layers, and the table that is tied to the embeddings: a `LexemeModel`."""

    def __init__(self, config: TransformerConfig, n_lexemes: int) -> None:
        super().__init__()
        self.config = config
        self.table = LexemeTable(n_lexemes, config.n_embed, config.cuts)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.n_embed)

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights; `counts` are the lexemes' in training."""
        self.table.initialise(generator, counts if self.config.unigram_bias else None)
        for layer in self.layers:
            cast(TransformerLayer, layer).initialise(generator)
        with torch.no_grad():
            self.norm.weight.fill_(1.0)
            self.norm.bias.zero_()

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""
        return [cast(TransformerLayer, layer).zero_state(n_rails) for layer in self.layers]

    def forward(
        self, ids: Tensor, state: State, noise: Noise | None = None
    ) -> tuple[Hidden, State]:
        """Reads ids (T, B); the hidden state at t has read ids[: t + 1]."""
        # Rows of the table are small, for the softmax's sake; the layers want unit variance.
        x = cast(Tensor, self.table(ids)) * self.config.n_embed**0.5
        x = dropout_over_time(x, self.config.drop, noise, "input")
        new_state: State = []
        for i, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True)):
            x, layer_state = layer(x, layer_state, noise, str(i))
            new_state.append(layer_state)
        x = self.norm(x)
        return Hidden(x, dropout_over_time(x, self.config.drop_output, noise, "output")), new_state
