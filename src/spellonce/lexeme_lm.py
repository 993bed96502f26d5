"""p_LM: any model that is a `LexemeModel`; the paper's is an AWD-LSTM (appendix B; Merity 2018).

The last layer is as wide as the embeddings, which are tied to the softmax, so a hidden state lives
where the embeddings live and the speller can read either.

Randomness is an argument: with noise every dropout is on, without it there is none, and the result
is a function of its arguments alone. State is an argument too.

    T window, B rails, V lexemes, D embedding, H hidden
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from spellonce import runtime
from spellonce.errors import ConfigError
from spellonce.noise import Noise, check_dropout, dropout, dropout_shared
from spellonce.recall import Recall
from spellonce.softmax import LexemeTable

LSTMState = tuple[Tensor, Tensor]
"""(h, c), each (1, B, H)"""
State = list[tuple[Tensor, ...]]
"""All that a model remembers of what it has read, in parts: an LSTM's has one per layer."""


@dataclass(frozen=True)
class LexemeLMConfig:
    """The lexeme LM. The defaults are the paper's."""

    n_embed: int = 400
    """Width of the embeddings and of the hidden state that predicts."""
    n_hidden: int = 1150
    """Width of the layers below the last."""
    n_layers: int = 3
    """LSTM layers."""
    drop_embed: float = 0.1
    """Share of lexemes whose embedding is dropped, everywhere in a window."""
    drop_input: float = 0.65
    """Dropout on the embeddings that enter the first layer."""
    drop_hidden: float = 0.2
    """Dropout between layers."""
    drop_output: float = 0.4
    """Dropout on the last layer, before the softmax."""
    drop_recurrent: float = 0.5
    """Dropout on the recurrent weights themselves (DropConnect)."""
    tied: bool = True
    """Whether the softmax uses the embeddings; if not, the last layer is as wide as the others."""
    projected: bool = False
    """The last layer is as wide as the others, and a matrix makes it as wide as the embeddings."""
    reach: int = 0
    """Words before that an attention head looks back at (`recall`); 0: there is none."""
    n_keys: int = 64
    """Width of its keys."""
    cuts: tuple[int, ...] = ()
    """Lexeme ids at which the softmax is split by frequency; none is the exact full softmax."""
    tail_size: int = 0
    """Lexemes in the first of the tails that all after the last cut are split into, which grow with
    the root of the rank; 0: one tail."""
    unigram_bias: bool = False
    """Start the softmax from the training frequencies instead of from the uniform distribution."""

    def __post_init__(self) -> None:
        for name in ("n_embed", "n_hidden", "n_layers", "n_keys"):
            if getattr(self, name) < 1:
                raise ConfigError(f"lm.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("drop_embed", "drop_input", "drop_hidden", "drop_output", "drop_recurrent"):
            check_dropout(f"lm.{name}", getattr(self, name))
        if any(cut < 2 for cut in self.cuts):
            raise ConfigError(f"lm.cuts must be 2 or more (UNK and EOS stay in front): {self.cuts}")
        if self.projected and not self.tied:
            raise ConfigError("lm.projected is for a softmax that uses the embeddings: lm.tied=yes")
        if self.reach < 0:
            raise ConfigError(f"lm.reach must not be negative, got {self.reach}")
        if self.reach and not self.tied:
            raise ConfigError("lm.reach is for a softmax that uses the embeddings: lm.tied=yes")
        if self.tail_size < 0 or (self.tail_size and not self.cuts):
            raise ConfigError("lm.tail_size is a number of lexemes, and goes with lm.cuts")


class LSTMLayer(nn.Module):
    """One LSTM layer whose recurrent weights can be dropped, functionally.

    The weights are arguments of `torch.lstm`, so a dropped copy is used and nothing is patched.
    Parameters are named and laid out as in `nn.LSTM`.
    """

    def __init__(self, n_input: int, n_hidden: int) -> None:
        super().__init__()
        self.n_hidden = n_hidden
        self.weight_ih = nn.Parameter(torch.empty(4 * n_hidden, n_input))
        self.weight_hh = nn.Parameter(torch.empty(4 * n_hidden, n_hidden))
        self.bias_ih = nn.Parameter(torch.empty(4 * n_hidden))
        self.bias_hh = nn.Parameter(torch.empty(4 * n_hidden))

    def initialise(self, generator: torch.Generator) -> None:
        """As `nn.LSTM` does."""
        bound = self.n_hidden**-0.5
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound, generator=generator)

    def zero_state(self, n_rails: int) -> LSTMState:
        """The state before anything was read."""
        zero = self.weight_hh.new_zeros(1, n_rails, self.n_hidden)
        return zero, zero

    def forward(
        self,
        x: Tensor,
        state: LSTMState,
        p_recurrent: float = 0.0,
        noise: Noise | None = None,
        name: str = "",
    ) -> tuple[Tensor, LSTMState]:
        """(T, B, n_input) → (T, B, n_hidden)"""
        recurrent = dropout_shared(self.weight_hh, p_recurrent, noise, name)
        weights = [self.weight_ih, recurrent, self.bias_ih, self.bias_hh]
        training = torch.is_grad_enabled()
        if len(x) == 1 and not training:
            return self._step(x, state)
        # A single stream is a chain of matrix-vector products: threads would mostly wait.
        single = x.shape[1] == 1 and not training and x.device.type == "cpu"
        with runtime.one_thread() if single else nullcontext():
            out, h, c = torch.lstm(x, list(state), weights, True, 1, 0.0, training, False, False)
        # Where products are taken in fewer digits, that is nobody else's concern.
        out, h, c = (tensor.to(self.weight_hh.dtype) for tensor in (out, h, c))
        return out, (h, c)

    def _step(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """One step, written out: for a single one, `torch.lstm` arranges its weights anew."""
        gates = torch.addmm(self.bias_ih + self.bias_hh, x[0], self.weight_ih.T)
        h, state = self.step_from(gates, state)
        return h[None], state

    def step_from(self, gates: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """One step, given what the input adds to the gates.  (B, 4 H) → (B, H)"""
        h, c = state[0][0], state[1][0]
        i, f, g, o = torch.addmm(gates, h, self.weight_hh.T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h[None], c[None])


@dataclass(frozen=True)
class Hidden:
    """What a window leaves behind."""

    states: Tensor
    """h_i, the state that predicts w_i, as it is.  (T, B, D)"""
    dropped: Tensor
    """The same after the output dropout: what the softmax reads in training.  (T, B, D)"""

    def activation_penalty(self, alpha: float, beta: float) -> Tensor:
        """α·AR + β·TAR: small activations, slow changes (Merity et al. 2017)."""
        penalty = alpha * self.dropped.square().mean()
        if len(self.states) > 1:
            penalty = penalty + beta * (self.states[1:] - self.states[:-1]).square().mean()
        return penalty


class LexemeModel(Protocol):
    """A closed-vocabulary language model, as the two-level model needs it.

    Whatever is one can be opened: ids and state → hidden vectors, and a table of embeddings that
    turns them into distributions over lexemes.
    """

    @property
    def table(self) -> LexemeTable:
        """Embeddings, as wide as the hidden vectors, and the softmax over them."""

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights; `counts` are the lexemes' in training."""

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""

    def __call__(
        self, ids: Tensor, state: State, noise: Noise | None = None
    ) -> tuple[Hidden, State]:
        """Reads ids (T, B); the hidden state at t has read ids[: t + 1]. Noise: dropout."""


class LSTMStack(nn.Module):
    """The layers of an AWD-LSTM: vectors and state → hidden vectors."""

    def __init__(self, config: LexemeLMConfig, n_input: int) -> None:
        super().__init__()
        self.config = config
        self.n_output = config.n_embed if config.tied else config.n_hidden
        n_last = config.n_hidden if config.projected else self.n_output
        widths = [n_input, *[config.n_hidden] * (config.n_layers - 1), n_last]
        self.layers = nn.ModuleList(LSTMLayer(a, b) for a, b in pairwise(widths))
        self.projection = nn.Linear(n_last, self.n_output) if config.projected else None
        self.recall = Recall(config.reach, config.n_keys, self.n_output) if config.reach else None

    def initialise_layers(self, generator: torch.Generator) -> None:
        """Seeded weights."""
        for layer in self.layers:
            cast(LSTMLayer, layer).initialise(generator)
        if self.projection is not None:
            bound = self.config.n_hidden**-0.5
            with torch.no_grad():
                self.projection.weight.uniform_(-bound, bound, generator=generator)
                self.projection.bias.zero_()
        if self.recall is not None:
            self.recall.initialise(generator)

    @property
    def n_parts(self) -> int:
        """Of its state."""
        return len(self.layers) + (self.recall is not None)

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read. Dimension 1 of all of it is that of the rails."""
        layers: State = [cast(LSTMLayer, layer).zero_state(n_rails) for layer in self.layers]
        return layers if self.recall is None else [*layers, self.recall.zero_state(n_rails)]

    def run(self, x: Tensor, state: State, noise: Noise | None = None) -> tuple[Hidden, State]:
        """Reads vectors (T, B, D)."""
        read = x
        x, new_state = self._run_layers(x, state, noise)
        if self.recall is not None:
            x, seen = self.recall(read, x, state[len(self.layers)])
            new_state.append(seen)
        return Hidden(x, dropout(x, self.config.drop_output, noise, "output")), new_state

    def _run_layers(self, x: Tensor, state: State, noise: Noise | None) -> tuple[Tensor, State]:
        """The same without looking back."""
        c = self.config
        x = dropout(x, c.drop_input, noise, "input")
        new_state: State = []
        of_layers = state[: len(self.layers)]
        for i, (layer, layer_state) in enumerate(zip(self.layers, of_layers, strict=True)):
            if i > 0:
                x = dropout(x, c.drop_hidden, noise, f"hidden {i}")
            x, layer_state = layer(x, layer_state, c.drop_recurrent, noise, f"recurrent {i}")
            new_state.append(layer_state)
        if self.projection is not None:
            x = self.projection(x).to(self.projection.weight.dtype)
        return x, new_state

    @torch.no_grad()
    def settle(self, x: Tensor) -> None:
        """Takes from vectors of a text (T, B, D) what is usual, once the weights are final."""
        if self.recall is not None:
            self.recall.settle(x, self._run_layers(x, self.zero_state(x.shape[1]), None)[0])


class LexemeLM(LSTMStack):
    """The paper's lexeme model: an AWD-LSTM."""

    def __init__(self, config: LexemeLMConfig, n_lexemes: int) -> None:
        super().__init__(config, config.n_embed)
        self.table = LexemeTable(n_lexemes, self.n_output, config.cuts, config.tail_size)
        self.inputs = None if config.tied else nn.Parameter(torch.empty(n_lexemes, config.n_embed))

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights; `counts` are the lexemes' in training."""
        self.table.initialise(generator, counts if self.config.unigram_bias else None)
        if self.inputs is not None:
            with torch.no_grad():
                self.inputs.uniform_(-0.1, 0.1, generator=generator)
        self.initialise_layers(generator)

    def forward(
        self, ids: Tensor, state: State, noise: Noise | None = None
    ) -> tuple[Hidden, State]:
        """Reads ids (T, B); the hidden state at t has read ids[: t + 1]."""
        return self.run(self.embed(ids, noise), state, noise)

    def embed(self, ids: Tensor, noise: Noise | None = None) -> Tensor:
        """What the first layer reads: (T, B) → (T, B, D)"""
        if self.inputs is None:
            rows = cast(Tensor, self.table(ids))
        else:
            rows = nn.functional.embedding(ids, self.inputs)
        if noise is None or self.config.drop_embed == 0:
            return rows
        ones = rows.new_ones(self.table.n_lexemes)
        kept = dropout_shared(ones, self.config.drop_embed, noise, "embed")
        return rows * kept[ids].unsqueeze(-1)
