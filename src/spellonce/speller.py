"""p_spell(σ | vector): a character LSTM conditioned on a word vector at every step (paper §2.3).

The vector is an embedding e(w) when the lexicon is spelled, a hidden state h when a novel word is.
The nuclear norm of the four gate blocks that read the vector is part of the loss; `proximal_step`
is the alternative that makes singular values exactly zero.

    N words, L steps, A symbols, D vector, H hidden
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce import patience
from spellonce.errors import ConfigError
from spellonce.lexeme_lm import LSTMLayer, LSTMState, State
from spellonce.lexicon import BOUNDARY_SYMBOL, Spellings
from spellonce.mixture import SpellingMixture
from spellonce.noise import Noise, check_dropout, dropout

_PAD = -100
STEP_WINDOW = 512
"""Steps of a long spelling read at a time when no gradient is wanted."""
_CELLS = 1 << 16
"""Padded characters in one batch of words."""
_CELLS_SCORED = 1 << 12
"""The same when no gradient is wanted: more are no faster, and take more memory."""


@dataclass(frozen=True)
class SpellerConfig:
    """The speller. The defaults are the paper's."""

    n_char_embed: int = 5
    """Width of the character embeddings."""
    n_hidden: int = 100
    """Units per layer."""
    n_layers: int = 3
    """LSTM layers."""
    drop: float = 0.2
    """Dropout after every layer."""
    drop_vector: float = 0.5
    """Dropout on the word vector."""
    unigram_bias: bool = False
    """Start from the frequencies of characters. Otherwise the first thing that the vectors learn is
    to be these, all of them alike, and the lexeme LM learns nothing meanwhile."""

    def __post_init__(self) -> None:
        for name in ("n_char_embed", "n_hidden", "n_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"speller.{name} must be at least 1, got {getattr(self, name)}")
        check_dropout("speller.drop", self.drop)
        check_dropout("speller.drop_vector", self.drop_vector)


class SpellerModel(Protocol):
    """What the two-level model asks of a speller."""

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights; `counts` are those of symbols among the types in training."""

    def nats(
        self,
        vectors: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
        *,
        counted: bool = False,
    ) -> Tensor:
        """−log p_spell of each spelling given its vector, EOW included.  (N, D) → (N,)

        `counted`: they are types of the training text. A speller that counts leaves each out.
        """

    def sample(
        self,
        vectors: Tensor,
        generator: torch.Generator,
        temperature: float,
        max_length: int,
        prefix: Sequence[int] = (),
    ) -> list[list[int]]:
        """One spelling for each vector, as symbols; all of them begin with the prefix."""

    def begin(self, vector: Tensor) -> SpellingSteps:
        """Spells one word symbol by symbol, given its vector.  (D,)"""


class SpellingSteps(Protocol):
    """A word while it is being spelled."""

    def probabilities(self) -> NDArray[np.float64]:
        """Of each symbol to be the next, EOW among them.  (A,)"""

    def take(self, symbol: int) -> None:
        """The next symbol."""


def padded(spellings: Spellings, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Inputs and targets (L, N) of some spellings: BOW + σ and σ + EOW, padded at the end.

    >>> s = Spellings(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]))
    >>> [x.T.tolist() for x in padded(s, np.array([0, 1]))]
    [[[0, 5, 6], [0, 7, 0]], [[5, 6, 0], [7, 0, -100]]]
    """
    starts, lengths = spellings.offsets[rows], spellings.lengths()[rows]
    n_steps = int(lengths.max(initial=0)) + 1
    step = np.arange(n_steps)[:, None]
    inside = step < lengths  # (L, N)
    at = np.where(inside, starts + step, 0)
    symbols = spellings.symbols[at] if len(spellings.symbols) else np.zeros_like(at)
    inputs = np.zeros((n_steps, len(rows)), dtype=np.int64)
    inputs[1:] = np.where(inside, symbols, 0)[:-1]
    ends = (step == lengths) & spellings.ends()[rows]
    targets = np.where(inside, symbols, np.where(ends, BOUNDARY_SYMBOL, _PAD))
    return torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64))


def buckets(
    lengths: NDArray[np.int64], n_smallest: int = 64, most: int = _CELLS
) -> Iterator[NDArray[np.int64]]:
    """Row numbers in groups of similar length, none with more than `most` padded characters.

    >>> [b.tolist() for b in buckets(np.array([3, 90, 2, 3]), n_smallest=1)]
    [[2, 0, 3], [1]]
    """
    order = np.argsort(lengths, kind="stable")
    rising = lengths[order]
    start = 0
    while start < len(order):
        shortest = int(rising[start])
        alike = int(np.searchsorted(rising, shortest + max(1, shortest // 8), side="right"))
        near = rising[start : start + most]  # each has a cell at least
        cells = np.arange(1, len(near) + 1) * (near + 1)
        room = start + max(1, int(np.searchsorted(cells, most, side="right")))
        stop = min(max(alike, start + n_smallest), room)
        yield order[start:stop]
        start = stop


def by_length(spellings: Spellings, of: Callable[[NDArray[np.int64], Tensor], Tensor]) -> Tensor:
    """A function of groups of spellings of similar length (rows, as an array and as a tensor),
    its results put back into the order of the spellings."""
    parts, order = [], []
    most = _CELLS if torch.is_grad_enabled() else _CELLS_SCORED
    for rows in buckets(spellings.lengths(), most=most):
        patience.check()
        place = torch.from_numpy(rows)
        order.append(place)
        parts.append(of(rows, place))
    inverse = torch.empty(len(spellings), dtype=torch.int64)
    inverse[torch.cat(order)] = torch.arange(len(spellings))
    return torch.cat(parts)[inverse.to(parts[0].device)]


def last_states(
    symbols: Tensor,
    lengths: NDArray[np.int64],
    state: State,
    run: Callable[[Tensor, State], tuple[Tensor, State]],
) -> Tensor:
    """What `run` gives for symbols (L, N) at step `lengths[n]` of each: (L, N, H) → (N, H).

    Without gradients, long words are read piece by piece: no single one can fill the memory.
    """
    window = len(symbols) if torch.is_grad_enabled() else STEP_WINDOW
    found: Tensor | None = None
    for start in range(0, len(symbols), window):
        out, state = run(symbols[start : start + window], state)
        here = np.flatnonzero((lengths >= start) & (lengths < start + window))
        place = torch.from_numpy(here).to(out.device)
        last = out[torch.from_numpy(lengths[here] - start).to(out.device), place]
        found = out.new_zeros(out.shape[1:]) if found is None else found
        found = found.index_copy(0, place, last)
    assert found is not None
    return found


class Speller(nn.Module):
    """The conditioned character LSTM."""

    def __init__(
        self,
        config: SpellerConfig,
        n_symbols: int,
        n_vector: int,
        mixture: SpellingMixture | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.mixture = mixture
        self.characters = nn.Parameter(torch.empty(n_symbols, config.n_char_embed))
        widths = [config.n_char_embed + n_vector, *[config.n_hidden] * config.n_layers]
        self.layers = nn.ModuleList(LSTMLayer(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(config.n_hidden, n_symbols)

    def initialise(self, generator: torch.Generator, counts: Tensor | None = None) -> None:
        """Seeded weights; `counts` are those of symbols in training."""
        bound = self.config.n_hidden**-0.5
        with torch.no_grad():
            self.characters.uniform_(-1, 1, generator=generator)
            self.output.weight.uniform_(-bound, bound, generator=generator)
            self.output.bias.zero_()
            if counts is not None and self.config.unigram_bias:
                self.output.bias.copy_(((counts + 0.5) / (counts + 0.5).sum()).log())
        for layer in self.layers:
            cast(LSTMLayer, layer).initialise(generator)
        if self.mixture is not None:
            self.mixture.initialise()

    def run(
        self, symbols: Tensor, vectors: Tensor, state: State, noise: Noise | None
    ) -> tuple[Tensor, State]:
        """The last layer's states: symbols (L, N), vectors (N, D) → (L, N, H)"""
        chars = functional.embedding(symbols, self.characters)
        x = torch.cat([chars, vectors.expand(len(symbols), -1, -1)], 2)  # (L, N, C + D)
        new_state: State = []
        for i, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True)):
            x, layer_state = layer(x, layer_state)
            x = dropout(x, self.config.drop, noise, f"speller {i}")
            new_state.append(layer_state)
        return x, new_state

    def prepare(self, vectors: Tensor) -> Tensor:
        """What vectors (N, D) add to the first layer's gates: the same at every step.  (N, 4 H)"""
        first = cast(LSTMLayer, self.layers[0])
        weight = first.weight_ih[:, self.config.n_char_embed :]
        return torch.addmm(first.bias_ih + first.bias_hh, vectors, weight.T)

    def step(self, symbols: Tensor, prepared: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of `run`, without gradients: symbols (N,), vectors prepared (N, 4 H) → (N, H)"""
        first, *others = (cast(LSTMLayer, layer) for layer in self.layers)
        weight = first.weight_ih[:, : self.config.n_char_embed].T
        if len(symbols) > len(self.characters):
            from_characters = (self.characters @ weight)[symbols]
        else:
            from_characters = self.characters[symbols] @ weight
        x, layer_state = first.step_from(prepared + from_characters, cast(LSTMState, state[0]))
        new_state: State = [layer_state]
        for layer, earlier in zip(others, state[1:], strict=True):
            last, layer_state = layer(x[None], earlier)
            x = last[0]
            new_state.append(layer_state)
        return x, new_state

    def zero_state(self, n_words: int) -> State:
        """The state before BOW."""
        return [cast(LSTMLayer, layer).zero_state(n_words) for layer in self.layers]

    def nats(
        self,
        vectors: Tensor,
        spellings: Spellings,
        noise: Noise | None = None,
        *,
        counted: bool = False,
    ) -> Tensor:
        """−log p_spell(σ | vector), EOW included.  (N, D) → (N,)"""
        vectors = dropout(vectors, self.config.drop_vector, noise, "speller vector")
        if not len(spellings):
            return vectors.new_zeros(0)
        return by_length(
            spellings,
            lambda rows, place: self._bucket_nats(
                vectors[place.to(vectors.device)],
                padded(spellings, rows),
                None if noise is None else noise.take(place),
                counted,
            ),
        )

    def _bucket_nats(
        self,
        vectors: Tensor,
        batch: tuple[Tensor, Tensor],
        noise: Noise | None,
        counted: bool,
    ) -> Tensor:
        state = self.zero_state(len(vectors))
        history = None if self.mixture is None else self.mixture.zero_history(len(vectors))
        total = vectors.new_zeros(len(vectors), dtype=torch.float64)
        n_steps = len(batch[0])
        window = n_steps if torch.is_grad_enabled() else STEP_WINDOW
        for start in range(0, n_steps, window):
            inputs, targets = (x[start : start + window].to(vectors.device) for x in batch)
            x, state = self.run(inputs, vectors, state, noise)
            logits = self.output(x).flatten(0, 1).to(self.characters.dtype)
            nats = functional.cross_entropy(
                logits, targets.flatten(), ignore_index=_PAD, reduction="none"
            ).view_as(targets)
            if self.mixture is not None and history is not None:
                p, kinds, history = self.mixture.steps(inputs, targets, history, counted)
                mix = self.mixture.nats if noise is None else self.mixture.training_nats
                nats = mix(nats, x, p, kinds)
                nats = nats.masked_fill(targets == _PAD, 0.0)
            total = total + nats.double().sum(0)
        return total.to(self.characters.dtype)

    def final_states(
        self, vectors: Tensor, spellings: Spellings, noise: Noise | None = None
    ) -> Tensor:
        """The last layer's state when all of the spelling has been read.  (N, D) → (N, H)"""

        def of(rows: NDArray[np.int64], place: Tensor) -> Tensor:
            mine = vectors[place.to(vectors.device)]
            own = None if noise is None else noise.take(place)
            return last_states(
                padded(spellings, rows)[0].to(vectors.device),
                spellings.lengths()[rows],
                self.zero_state(len(rows)),
                lambda symbols, state: self.run(symbols, mine, state, own),
            )

        vectors = dropout(vectors, self.config.drop_vector, noise, "speller vector")
        return by_length(spellings, of)

    @torch.no_grad()
    def sample(
        self,
        vectors: Tensor,
        generator: torch.Generator,
        temperature: float,
        max_length: int,
        prefix: Sequence[int] = (),
    ) -> list[list[int]]:
        """One spelling for each vector; one that grows past `max_length` is cut there."""
        n = len(vectors)
        words: list[list[int]] = [list(prefix) for _ in range(n)]
        alive = np.arange(n)  # those that have not ended yet
        prepared, state = self.prepare(vectors), self.zero_state(n)
        for symbol in [BOUNDARY_SYMBOL, *prefix][:-1]:
            _, state = self.step(torch.full((n,), symbol, device=vectors.device), prepared, state)
        symbols = torch.full((n,), [BOUNDARY_SYMBOL, *prefix][-1], device=vectors.device)
        for _ in range(max_length - len(prefix)):
            x, state = self.step(symbols, prepared, state)
            log_probs = torch.log_softmax(self.output(x), 1)
            if self.mixture is not None:
                before = [[BOUNDARY_SYMBOL, *words[i]] for i in alive]
                log_probs = self.mixture.log_probs(log_probs, x, before)
            symbols = draw(log_probs, temperature, generator)
            goes_on = symbols != BOUNDARY_SYMBOL
            alive, symbols = alive[goes_on.cpu().numpy()], symbols[goes_on]
            if not len(alive):
                break
            for i, symbol in zip(alive, symbols.tolist(), strict=True):
                words[i].append(symbol)
            if len(alive) < len(goes_on):
                prepared = prepared[goes_on]
                state = [tuple(part[:, goes_on] for part in layer) for layer in state]
        return words

    def begin(self, vector: Tensor) -> SpellingSteps:
        """Spells one word symbol by symbol, given its vector.  (D,)"""
        return _Steps(self, vector)

    @property
    def vector_weight(self) -> nn.Parameter:
        """The first layer's input weights: columns for the character, then for the vector."""
        return cast(LSTMLayer, self.layers[0]).weight_ih

    def gate_blocks(self) -> Tensor:
        """The columns of the first layer's input weights that read the word vector.  (4, H, D)"""
        weight = self.vector_weight[:, self.config.n_char_embed :]
        return weight.reshape(4, self.config.n_hidden, -1)

    def nuclear_norm(self) -> Tensor:
        """Σ over the four gates of the sum of singular values, in the objective's total nats."""
        norms: Tensor = _NuclearNorm.apply(self.gate_blocks())  # type: ignore[no-untyped-call]
        return norms.sum()

    def squared_norm(self) -> Tensor:
        """Σ of the squares of the same weights: what the nuclear norm is compared with."""
        return self.gate_blocks().square().sum()

    @torch.no_grad()
    def proximal_step(self, threshold: float) -> None:
        """Shrinks every singular value by `threshold`, those below it to zero."""
        u, s, vh = torch.linalg.svd(self.gate_blocks(), full_matrices=False)
        shrunk = (u * (s - threshold).clamp_min(0).unsqueeze(-2)) @ vh
        self.vector_weight[:, self.config.n_char_embed :] = shrunk.flatten(0, 1)

    @torch.no_grad()
    def ranks(self, share: float = 0.01) -> list[int]:
        """Effective rank of each gate block: singular values above a share of the largest."""
        s = torch.linalg.svdvals(self.gate_blocks())
        largest = s.amax(1, keepdim=True).clamp_min(1e-12)
        return [int(n) for n in (s > share * largest).sum(1)]


class _Steps:
    """A word that the LSTM is spelling."""

    def __init__(self, speller: Speller, vector: Tensor) -> None:
        with torch.no_grad():
            self._speller, self._prepared = speller, speller.prepare(vector[None])
        self._state = speller.zero_state(1)
        self._read = [BOUNDARY_SYMBOL]

    @torch.no_grad()
    def probabilities(self) -> NDArray[np.float64]:
        """Of each symbol to be the next. To be asked once before the next is taken."""
        symbols = torch.tensor(self._read[-1:], device=self._prepared.device)
        x, self._state = self._speller.step(symbols, self._prepared, self._state)
        log_probs = torch.log_softmax(self._speller.output(x), 1)
        if self._speller.mixture is not None:
            log_probs = self._speller.mixture.log_probs(log_probs, x, [self._read])
        found: NDArray[np.float64] = log_probs[0].double().exp().cpu().numpy()
        return found

    def take(self, symbol: int) -> None:
        """The next symbol."""
        self._read.append(symbol)


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One id for each row of logits, at a temperature; 0 takes the likeliest."""
    if temperature < 1e-6:  # a division by less leaves no numbers
        return logits.argmax(-1)
    probs = torch.softmax(logits.double() / temperature, -1)
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


class _NuclearNorm(torch.autograd.Function):
    """Sum of singular values, with the sub-gradient U·Vᵀ over the values that are not zero.

    (The gradient of the SVD itself is undefined for equal or zero singular values; this is not.)
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        epsilon = torch.finfo(s.dtype).eps * max(matrix.shape[-2:])
        kept = s > epsilon * s.amax(-1, keepdim=True)
        ctx.save_for_backward((u * kept.unsqueeze(-2)) @ vh)
        total: Tensor = s.sum(-1)
        return total

    @staticmethod
    def backward(ctx: Any, d_norm: Tensor) -> Tensor:
        (sub_gradient,) = ctx.saved_tensors
        return cast(Tensor, sub_gradient * d_norm[..., None, None])
