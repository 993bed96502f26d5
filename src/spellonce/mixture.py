"""Count-based models beside learned ones: p = (1 − λ) · p_LSTM + λ · p_counts, word by word and
character by character.

λ is a logistic unit on the LSTM's state and on the kind of context that the counts have: how much
of what came before was seen together, and how often. It is learned with everything else, from what
the counts say of a word when its own occurrence is left out. The speller is trained as what the
counts leave to say; the lexeme LM too, or as if it were alone, or anything between (`complement`).

    N positions, T window, B rails, L steps, D width, V lexemes, A symbols
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce import ngrams
from spellonce.errors import ConfigError
from spellonce.lexicon import BOUNDARY_SYMBOL, N_SPECIAL, UNK_ID, Lexicon
from spellonce.ngrams import Ngrams


@dataclass(frozen=True)
class NgramConfig:
    """The count-based models."""

    order: int = 4
    """Words in the longest n-grams, the predicted one among them."""
    spelling_order: int = 7
    """Characters in the longest n-grams of spellings."""
    max_tokens: int = 20_000_000
    """No more of the training text is counted."""
    complement: float = 0.0
    """How far the lexeme LM is trained for the mixture (1) and not as if it were alone (0)."""
    spelling_complement: float = 1.0
    """The same for the speller. Alone, it learns of vectors also what counts say without them."""
    embeddings: bool = False
    """Whether lexemes that have the same neighbours start with like embeddings."""

    def __post_init__(self) -> None:
        for name in ("order", "spelling_order", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"ngrams.{name} must be at least 1, got {getattr(self, name)}")
        if self.embeddings and self.order < 2:
            raise ConfigError("ngrams.embeddings needs pairs of words: ngrams.order=2 or more")
        for name in ("complement", "spelling_complement"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be between 0 and 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Counted:
    """The n-grams of a training text."""

    text: Ngrams
    """Of its lexemes."""
    spellings: Ngrams
    """Of the characters of its types, each once."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, by name."""
        parts = {"text": self.text, "spellings": self.spellings}
        return {
            f"{part}.{name}": array
            for part, model in parts.items()
            for name, array in model.arrays().items()
        }

    def check_fits(self, lexicon: Lexicon) -> None:
        """ValueError: these are the counts of another lexicon."""
        sizes = (self.text.n_words, self.spellings.n_words)
        if sizes != (lexicon.n_lexemes, len(lexicon.alphabet)):
            raise ValueError(f"these are counts of {sizes[0]} lexemes and {sizes[1]} symbols")

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Counted:
        """What `arrays` gave."""
        parts: dict[str, dict[str, NDArray[Any]]] = {"text": {}, "spellings": {}}
        for full_name, array in arrays.items():
            part, _, name = full_name.partition(".")
            parts[part][name] = array
        return cls(**{part: Ngrams.of_arrays(own) for part, own in parts.items()})


def count_all(
    type_ids: NDArray[np.int32], lexicon: Lexicon, config: NgramConfig, unspelled: float = 0.0
) -> Counted:
    """Counts a text and its types, but for the share that is not to be spelled."""
    known = type_ids[: config.max_tokens]
    words = np.where(known < lexicon.n_lexemes, known, UNK_ID)
    counted = np.ones(len(lexicon.types), dtype=bool)
    counted[: lexicon.n_lexemes] = ~lexicon.unspelled(unspelled)
    counted[:N_SPECIAL] = False  # UNK and EOS have no symbols
    spellings = lexicon.spellings().take(np.flatnonzero(counted))
    lengths = spellings.lengths()
    begins = np.arange(len(lengths)) * 3 + np.cumsum(lengths) - lengths
    stream = np.full(3 * len(lengths) + int(lengths.sum()), BOUNDARY_SYMBOL)
    stream[begins] = -1  # no n-gram goes from one word into another; BOW and EOW are around each
    place = np.repeat(begins + 2 - (np.cumsum(lengths) - lengths), lengths)
    stream[place + np.arange(len(place))] = spellings.symbols
    is_given = np.zeros(len(stream), dtype=bool)
    is_given[begins + 1] = True  # BOW is where a spelling begins, and nothing that is spelled
    return Counted(
        ngrams.count(words, lexicon.n_lexemes, config.order),
        ngrams.count(stream, len(lexicon.alphabet), config.spelling_order, is_given),
    )


def blend(log_probs: Tensor, counts: Tensor, logit: Tensor) -> Tensor:
    """log((1 − λ) · p + λ · p_counts), given log p, p_counts and the logit of λ."""
    return torch.logaddexp(
        functional.logsigmoid(-logit) + log_probs, functional.logsigmoid(logit) + counts.log()
    )


class _Gate(nn.Module):
    """How far counts are trusted."""

    def __init__(self, model: Ngrams, n_vector: int, complement: float) -> None:
        super().__init__()
        self.ngrams, self.complement = model, complement
        self.gate = nn.Linear(n_vector, 1, bias=False)
        self.trust = nn.Parameter(torch.empty(model.n_kinds))

    def initialise(self) -> None:
        """Half and half."""
        with torch.no_grad():
            self.gate.weight.zero_()
            self.trust.zero_()

    def nats(
        self,
        lstm_nats: Tensor,
        hidden: Tensor,
        p: NDArray[np.float64],
        kinds: NDArray[np.int64],
    ) -> Tensor:
        """Nats of the mixture, given those of the LSTM.  (…), (…, D) → (…)"""
        counts = torch.from_numpy(p).to(lstm_nats)
        return -self._mix(-lstm_nats, counts, hidden, torch.from_numpy(kinds).to(hidden.device))

    def share(
        self,
        lstm_nats: Tensor,
        hidden: Tensor,
        p: NDArray[np.float64],
        kinds: NDArray[np.int64],
    ) -> Tensor:
        """How much each word is to count in the training of the LSTM.  (…), (…, D) → (…)

        The gradient of the mixture's nats is that of the LSTM's, times the LSTM's part in it.
        """
        logit = self.logit(hidden, torch.from_numpy(kinds).to(hidden.device))
        mixed = self.nats(lstm_nats, hidden, p, kinds)
        part = (functional.logsigmoid(-logit) - lstm_nats + mixed).exp()
        return 1 - self.complement * (1 - part)

    def log_probs(self, log_probs: Tensor, hidden: Tensor, before: list[list[int]]) -> Tensor:
        """The mixture over all that may come, after some words or characters each.  (N, V)"""
        reach = self.ngrams.reach
        recent = np.full((reach, len(before)), -1)
        for i, history in enumerate(before):
            last = history[max(0, len(history) - reach) :]
            recent[reach - len(last) :, i] = last
        p, kinds = self.ngrams.distributions(recent)
        counts = torch.from_numpy(p).to(log_probs)
        kind = torch.from_numpy(kinds).to(hidden.device)[:, None]
        return self._mix(log_probs, counts, hidden[:, None], kind)

    def _mix(self, log_probs: Tensor, counts: Tensor, hidden: Tensor, kinds: Tensor) -> Tensor:
        return blend(log_probs, counts, self.logit(hidden, kinds))

    def logit(self, hidden: Tensor, kinds: Tensor) -> Tensor:
        """Of λ, given states and kinds of contexts."""
        # A sum, not a product of matrices: as exact as the weights, whatever `hidden` is.
        return (hidden * self.gate.weight[0]).sum(-1) + self.trust[kinds]


class TextMixture(_Gate):
    """Beside a lexeme LM."""

    def __init__(self, model: Ngrams, n_vector: int, config: NgramConfig) -> None:
        super().__init__(model, n_vector, config.complement)
        self.config = config

    def embeddings(self, generator: torch.Generator) -> Tensor:
        """Embeddings to start from: words with the same neighbours have like ones.  (V, D)"""
        return neighbour_vectors(self.ngrams, self.gate.in_features, generator)

    def zero_history(self, n_rails: int) -> Tensor:
        """What was read before anything was: (reach, B)."""
        return torch.full((self.ngrams.reach, n_rails), -1, device=self.trust.device)

    def remember(self, history: Tensor, ids: Tensor) -> Tensor:
        """The history after some more ids (T, B)."""
        return torch.cat([history, ids])[len(ids) :]

    def window(
        self,
        history: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        left_out: bool | NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(p, kind of context) of targets (T, B); `left_out`: which were counted; without each."""
        before = self.remember(history, inputs[:1]).cpu().numpy()
        p, kinds = self.ngrams.probabilities(targets.cpu().numpy(), before, left_out=left_out)
        return p.ravel(), kinds.ravel()


class SpellingMixture(_Gate):
    """Beside a speller."""

    def __init__(self, model: Ngrams, n_vector: int, config: NgramConfig) -> None:
        super().__init__(model, n_vector, config.spelling_complement)

    def training_nats(
        self, nats: Tensor, hidden: Tensor, p: NDArray[np.float64], kinds: NDArray[np.int64]
    ) -> Tensor:
        """Nats of the mixture, from which the speller and the gate learn what each is to learn."""
        if self.complement == 1:
            return self.nats(nats, hidden, p, kinds)
        with torch.no_grad():
            share = self.share(nats, hidden, p, kinds)
        alone = share * nats
        return self.nats(nats.detach(), hidden.detach(), p, kinds) + alone - alone.detach()

    def zero_history(self, n_words: int) -> NDArray[np.int64]:
        """What is before BOW: (reach, N)."""
        return np.full((self.ngrams.reach, n_words), -1)

    def steps(
        self, inputs: Tensor, targets: Tensor, history: NDArray[np.int64], left_out: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """(p, kind of context) of targets (L, N) after inputs, and the history behind them.

        `left_out`: the words are types that were counted, and each is looked at without itself.
        """
        symbols = inputs.cpu().numpy()
        before = np.concatenate([history, symbols[:1]])[1:]
        wanted = targets.clamp_min(0).cpu().numpy()  # what is not scored may be anything
        p, kinds = self.ngrams.probabilities(wanted, before, left_out=left_out)
        return p, kinds, np.concatenate([history, symbols])[len(symbols) :]


def neighbour_vectors(model: Ngrams, width: int, generator: torch.Generator) -> Tensor:
    """A vector for each word, from the words that stand before and after it.  (V, D)

    (Each pair counts as often as the bigrams of the model do: below the highest order, by how many
    words stand before it.) The left singular vectors of positive pointwise mutual information
    (Levy & Goldberg 2014), by randomised subspace iteration (Halko et al. 2011), as large as
    embeddings usually start.
    """
    if model.reach == 0:  # a text of one word
        return torch.zeros(model.n_words, width)
    n, pairs = model.n_words, model.orders[1]
    before = torch.from_numpy(pairs.contexts())
    word = torch.from_numpy(pairs.words.astype(np.int64))
    together = torch.from_numpy(pairs.counts.astype(np.float64))
    alone = [together.new_zeros(n).index_add_(0, place, together) for place in (before, word)]
    information = (together * together.sum() / (alone[0][before] * alone[1][word])).log()
    places = torch.cat([torch.stack([word, before]), torch.stack([before, n + word])], 1)
    values = information.clamp_min(0).float().repeat(2)
    matrix = sparse_matrix(places, values, (n, 2 * n))
    turned = sparse_matrix(places.flip(0), values, (2 * n, n))
    k = min(width + 10, n)
    basis = torch.linalg.qr(matrix @ torch.randn(2 * n, k, generator=generator)).Q
    basis = torch.linalg.qr(matrix @ (turned @ basis)).Q
    small = turned @ basis
    squares, u = torch.linalg.eigh((small.T @ small).double())  # by rising size
    singular = squares.clamp_min(0).sqrt().float()
    vectors = torch.zeros(n, width)
    vectors[:, : min(k, width)] = (basis @ u.float() * singular.sqrt()).flip(1)[:, :width]
    return vectors * (0.1 / 3**0.5 / vectors.std().clamp_min(1e-9))


def sparse_matrix(places: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix, row by row: so its products take all cores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that this is new
        matrix = torch.sparse_coo_tensor(places, values, shape, check_invariants=True)
        return matrix.coalesce().to_sparse_csr()
