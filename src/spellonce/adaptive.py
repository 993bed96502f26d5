"""A two-level model that learns while it reads, by any of four means.

    p(s | ctx) = π_0 · p_static(s | ctx) + Σ_k π_k · c_k(s | h)

- *Cache* (`cache`): c_k are its components, π = π(h, what the cache knows) a softmax gate.
- *Growth* (`growth`): novel words become lexemes, in a tail of the softmax that UNK stands for.
- *Dynamic evaluation* (`dynamic`): gradient steps on each segment after it was scored.
- *Renormalisation* (`trie`): UNK spells what is no lexeme and not remembered, with all its mass.

It is one distribution over lexemes ∪ remembered novel words ∪ UNK, so a coder can spend it: a
lexeme or a grown word adds up its routes, a novel word that only the cache knows has the cache's,
and UNK spells only what is in none of them. Nothing that comes later has a part in a score.

    N tokens, D width, K components, F features
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce import patience
from spellonce.cache import Component, Found, Memory, n_features
from spellonce.dynamic import DynamicSettings, Weights
from spellonce.errors import ConfigError, RunError
from spellonce.growth import Grown, GrowthSettings
from spellonce.lexeme_lm import State
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID, Lexicon, Spellings
from spellonce.speller import Speller
from spellonce.spellers import Around
from spellonce.trie import Trie
from spellonce.two_level import Followed, TwoLevel

STRIP = 500
"""Tokens that are followed at a time where weights do not change."""
_NEVER = -1e9
"""A logit of what must not be."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CacheSettings:
    """A cache and its gate."""

    window: int = 3000
    """Tokens that are remembered."""
    components: tuple[Component, ...] = (Component(0.0), Component(0.3))
    """Ways to look into what is remembered."""
    by_features: tuple[tuple[float, ...], ...] = ()
    """The gate's weights of features; rows are static, component 1, 2, …  (1 + K, F + 1)"""
    by_state: tuple[tuple[float, ...], ...] = ()
    """Its weights of the hidden state; none: it does not look at it.  (1 + K, D)"""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"the cache's window must be at least 1, got {self.window}")
        n_k = len(self.components)
        if n_k < 1:
            raise ConfigError("a cache has at least one component")
        shape = (1 + n_k, n_features(n_k) + 1)
        if self.by_features and np.shape(self.by_features) != shape:
            raise RunError(f"the cache's gate does not fit: {np.shape(self.by_features)}, {shape}")
        if self.by_state and len(self.by_state) != 1 + n_k:
            raise RunError("the cache's gate does not fit: it has rows for other components")

    @classmethod
    def fixed(cls, weight: float, sharpness: float, window: int = 3000) -> CacheSettings:
        """One component with the same weight everywhere."""
        if not 0 <= weight < 1:
            raise ConfigError(f"the cache's weight must be at least 0 and below 1, got {weight}")
        rows = np.zeros((2, n_features(1) + 1))
        rows[1, -1] = np.log(weight) - np.log1p(-weight) if weight else _NEVER
        return cls(window, (Component(sharpness),), tuple(map(tuple, rows.tolist())))

    @cached_property
    def _weights(self) -> list[Tensor]:
        """The gate's, by features and by state."""
        rows = (self.by_features, self.by_state)
        return [torch.tensor(part, dtype=torch.float64) for part in rows]

    def log_weights(self, found: Found, states: Tensor) -> Floats:
        """log π of each token.  (N, 1 + K)"""
        if not self.by_features:
            raise RunError("the cache has no gate yet: tune it")
        by_features, by_state = self._weights
        inputs = np.concatenate([found.features, np.ones((len(found.features), 1))], 1)
        scores = torch.from_numpy(inputs) @ by_features.T
        if self.by_state:
            if by_state.shape[1] != states.shape[1]:
                raise RunError("the cache's gate is that of another model: tune it again")
            scores = scores + states.double().cpu() @ by_state.T
        logits: Floats = scores.numpy()
        logits[logits < _NEVER / 2] = -np.inf
        logits[:, 1:][~found.is_there] = -np.inf
        log_weights: Floats = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
        return log_weights

    def log_p(self, found: Found, states: Tensor) -> tuple[Floats, Floats]:
        """(log Σ_k π_k c_k, log π_0) of each token.  (N,) each"""
        log_weights = self.log_weights(found, states)
        return np.logaddexp.reduce(found.log_p + log_weights[:, 1:], 1), log_weights[:, 0]


@dataclass(frozen=True)
class Adaptation:
    """What is learned while reading; without any of it, nothing is."""

    cache: CacheSettings | None = None
    growth: GrowthSettings | None = None
    dynamic: DynamicSettings | None = None
    renormalise: bool = False

    def to_json(self) -> dict[str, Any]:
        """For `adaptive.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Adaptation:
        """What `to_json` gave."""
        try:
            cache, growth, dynamic = (kept[name] for name in ("cache", "growth", "dynamic"))
            if cache is not None:
                cache = CacheSettings(
                    int(cache["window"]), tuple(Component(**one) for one in cache["components"]),
                    tuple(tuple(map(float, row)) for row in cache["by_features"]),
                    tuple(tuple(map(float, row)) for row in cache["by_state"]),
                )  # fmt: skip
            return cls(
                cache,
                None if growth is None else GrowthSettings(**growth),
                None if dynamic is None else DynamicSettings(**dynamic),
                bool(kept["renormalise"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            raise RunError(f"adaptive.json is damaged: {error}; make it again with tune") from error


@dataclass(frozen=True)
class Learning:
    """What a model is asked to learn while it reads."""

    cache: bool = False
    """Remember words, by cache and growth."""
    dynamic: bool = False
    """Move the weights."""
    renormalise: bool = False
    """Let UNK spell only what is no lexeme."""
    reset: bool = False
    """Forget words where an article begins."""

    def __post_init__(self) -> None:
        if self.reset and not self.cache:
            raise ConfigError("--reset goes with --cache: without it, nothing is remembered")

    def __bool__(self) -> bool:
        return self.cache or self.dynamic or self.renormalise

    @property
    def name(self) -> str:
        """`cache+dynamic`, or `static`."""
        return "+".join(name for name, is_on in asdict(self).items() if is_on) or "static"

    def of(self, tuned: Adaptation) -> Adaptation:
        """What is asked for, as it was tuned."""
        for name in ("cache", "dynamic"):
            if getattr(self, name) and getattr(tuned, name) is None:
                raise ConfigError(
                    f"--{name} is not for this run: `spellonce tune` did not try it, or found that "
                    "it does not help"
                )
        return Adaptation(
            tuned.cache if self.cache else None,
            tuned.growth if self.cache else None,
            tuned.dynamic if self.dynamic else None,
            self.renormalise,
        )


@dataclass(frozen=True)
class Routes:
    """The ways to a token's string that do not lead through the cache, in nats.  (N,) each"""

    lm: Floats
    """−log p_LM of the lexeme, or of UNK."""
    spelling: Floats
    """−log p_spell of a novel word, zero for others; renormalised, if it is."""
    is_novel: NDArray[np.bool_]
    log_grown: Floats
    """log p of a grown word in UNK's tail; −∞ where it has not grown."""
    log_new: Floats
    """log p that UNK spells a new word."""

    @classmethod
    def static(cls, lm: Floats, spelling: Floats, is_novel: NDArray[np.bool_]) -> Routes:
        """Without growth."""
        return cls(lm, spelling, is_novel, np.full(len(lm), -np.inf), np.zeros(len(lm)))

    def log_p(self, is_cached: NDArray[np.bool_]) -> Floats:
        """log p of all of them together, where a novel word in the cache is not spelled."""
        spelled = np.where(is_cached, -np.inf, self.log_new - self.spelling)
        inside = np.where(self.log_grown > -np.inf, self.log_grown, spelled)
        own: Floats = np.where(self.is_novel, inside, 0.0) - self.lm
        return own


def mix(routes: Routes, cached: Floats, log_static: Floats) -> Floats:
    """−log p of each token; `cached` is log Σ_k π_k c_k of it, `log_static` log π_0.  (N,)"""
    # What has so little that no coder could spend it counts as nothing, and is spelled.
    cached = np.where(np.exp(cached) > 0, cached, -np.inf)
    nats: Floats = -np.logaddexp(log_static + routes.log_p(cached > -np.inf), cached)
    return nats


@dataclass(frozen=True)
class Piece:
    """The scores of some tokens."""

    lm_nats: Floats
    spell_nats: Floats
    """The two parts of the score without cache, growth and renormalisation."""
    nats: Floats
    """The adaptive score."""
    from_cache: Floats
    """The share of its probability that comes from the cache."""


class Reader:
    """Reads one stream, piece by piece, and scores every token before it learns from it."""

    def __init__(
        self,
        network: TwoLevel,
        lexicon: Lexicon,
        adaptation: Adaptation,
        scale: Mapping[str, Tensor] | None = None,
    ) -> None:
        """`scale`: what gradients were like in training, for dynamic evaluation."""
        self.lexicon, self.adaptation, self.scale = lexicon, adaptation, scale
        self.trained = network
        self.weights: Weights | None = None
        if adaptation.dynamic is not None:
            if scale is None:
                raise RunError("this run has no record of its gradients: train it again")
            self.weights = Weights(network, adaptation.dynamic, scale)
            network = self.weights.network
        self.network = network
        width = network.lm.table.n_embed
        self.memory: Memory | None = None
        if (cache := adaptation.cache) is not None:
            self.memory = Memory(
                width, lexicon.n_lexemes, window=cache.window, components=cache.components
            )
        growth = adaptation.growth
        self.grown = None if growth is None else Grown(width, growth.limit)
        self._lexemes = _lexeme_trie(network, lexicon) if adaptation.renormalise else None
        self._state = network.zero_state(1)
        self._before = EOS_ID
        self._segment = _Segment(self._state, self._before)

    def forget(self) -> None:
        """Remembers no word any longer; hidden state and weights stay."""
        for part in (self.memory, self.grown):
            if part is not None:
                part.forget()

    def read(self, tokens: Sequence[str]) -> Piece:
        """Scores the next tokens of the stream."""
        pieces = [self._read(part) for part in self._parts(tokens)]
        none = np.zeros(0)
        return Piece(*(
            np.concatenate([none, *(getattr(piece, name) for piece in pieces)])
            for name in ("lm_nats", "spell_nats", "nats", "from_cache")
        ))  # fmt: skip

    def _parts(self, tokens: Sequence[str]) -> Iterator[Sequence[str]]:
        """The tokens in parts: weights stay within one; renormalised, all that is remembered."""
        start = 0
        while start < len(tokens):
            size = 1 if self.adaptation.renormalise else STRIP
            if self.adaptation.dynamic is not None:
                room = self.adaptation.dynamic.segment - len(self._segment.tokens)
                size = min(size, room)
            patience.check()
            yield tokens[start : start + size]
            start += size

    def _read(self, tokens: Sequence[str]) -> Piece:
        ids, _ = self.lexicon.encode(tokens)
        is_novel = ids == UNK_ID
        words = _novel_words(self.lexicon, tokens, is_novel)
        # Where a whole segment comes at once, what is learned from it need not read it again.
        whole = self.weights is not None and len(tokens) == self.weights.settings.segment
        with torch.set_grad_enabled(whole):
            followed = self._follow(ids, words, self._state, self._before)
        routes = self._routes(followed, is_novel, words)
        cached, log_static = self._look_up(followed, ids, is_novel, words)
        nats = mix(routes, cached, log_static)
        self._state, self._before = followed.state, int(ids[-1])
        self._learn(tokens, followed.loss if whole else None)
        return Piece(followed.lm_nats, followed.spell_nats, nats, np.exp(cached + nats))

    def states_of_novel(self, tokens: Sequence[str]) -> Iterator[tuple[int, Tensor]]:
        """(place, the state that predicts it) of every novel token, while they are read.  (D,)"""
        start = 0
        for part in self._parts(tokens):
            ids, _ = self.lexicon.encode(part)
            words = _novel_words(self.lexicon, part, ids == UNK_ID)
            with torch.no_grad():
                followed = self._follow(ids, words, self._state, self._before)
            for i in np.flatnonzero(ids == UNK_ID).tolist():
                yield start + i, followed.states[i]
            self._state, self._before = followed.state, int(ids[-1])
            start += len(part)

    def _follow(
        self, ids: NDArray[np.int64], words: list[str], state: State, before: int
    ) -> Followed:
        spelled = Spellings.of(self.lexicon.alphabet, words)
        return self.network.follow(ids, before, spelled, state)

    def _look_up(
        self,
        followed: Followed,
        ids: NDArray[np.int64],
        is_novel: NDArray[np.bool_],
        words: list[str],
    ) -> tuple[Floats, Floats]:
        """(log Σ_k π_k c_k, log π_0) of each token; it is then remembered."""
        if self.memory is None or self.adaptation.cache is None:
            return np.full(len(ids), -np.inf), np.zeros(len(ids))
        strings = ids.astype(np.int64)
        strings[is_novel] = self.memory.numbers(words)
        found = self.memory.read(followed.states, strings)
        return self.adaptation.cache.log_p(found, followed.states)

    def _routes(self, followed: Followed, is_novel: NDArray[np.bool_], words: list[str]) -> Routes:
        """What leads to each token but for the cache; novel words then have grown."""
        routes = Routes.static(followed.lm_nats, followed.spell_nats.copy(), is_novel)
        for i, word in zip(np.flatnonzero(is_novel).tolist(), words, strict=True):
            state = followed.states[i]
            if self._lexemes is not None:
                routes.spelling[i] += self._log_of_others(state, word)
            if self.grown is not None and self.adaptation.growth is not None:
                chance = self.grown.meet(word, state)
                routes.log_grown[i], routes.log_new[i] = chance.log_p(self.adaptation.growth)
        return routes

    def _log_of_others(self, state: Tensor, word: str) -> float:
        """log of what p_spell spends on strings that are neither lexemes nor can be summoned."""
        remembered = set() if self.grown is None else set(self.grown.words())
        if self.memory is not None and self.adaptation.cache is not None:
            strings, found = self.memory.distribution(state)
            shares = np.exp(self.adaptation.cache.log_p(found, state[None])[0])
            there = strings[(shares > 0) & (strings >= self.lexicon.n_lexemes)]
            remembered |= {self.memory.word(number) for number in there.tolist()}
        if self._lexemes is None or word in remembered:  # then it is not spelled
            return 0.0
        speller = _speller_of(self.network)
        if isinstance(self.network.novel, Around):
            state = self.network.novel.seen(state)
        with torch.no_grad():
            mass = float(self._lexemes.mass(speller, state[None]))
            spelled = Spellings.of(self.lexicon.alphabet, sorted(remembered))
            nats = speller.nats(state.expand(len(spelled), -1), spelled)
            mass += float(nats.double().neg().exp().sum())
        return float(np.log1p(-min(mass, 1 - 1e-9)))

    def _learn(self, tokens: Sequence[str], loss: Tensor | None = None) -> None:
        """Takes a gradient step on a segment that is complete, which was scored before.

        `loss`: that of the tokens, if they are all of it.
        """
        if self.weights is None:
            return
        self._segment.tokens.extend(tokens)
        if len(self._segment.tokens) < self.weights.settings.segment:
            return
        segment = self._segment
        with torch.enable_grad():
            if loss is None:
                ids, _ = self.lexicon.encode(segment.tokens)
                words = _novel_words(self.lexicon, segment.tokens, ids == UNK_ID)
                loss = self._follow(ids, words, segment.state, segment.before).loss
            self.weights.step(loss / len(segment.tokens))
        self._segment = _Segment(self._state, self._before)

    # --- keeping it -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that it carries from piece to piece."""
        segment = self._segment
        return {
            "state": self._state,
            "before": self._before,
            "segment": (segment.state, segment.before, list(segment.tokens)),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "grown": None if self.grown is None else self.grown.state_dict(),
            "weights": None if self.weights is None else self.weights.state_dict(),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        device = self.network.device
        self._state, self._before = _on(kept["state"], device), kept["before"]
        state, before, tokens = kept["segment"]
        self._segment = _Segment(_on(state, device), before, list(tokens))
        if self.memory is not None:
            self.memory.restore(kept["memory"])
        if self.grown is not None:
            self.grown.restore(kept["grown"])
        if self.weights is not None:
            self.weights.restore(kept["weights"])


class _Segment:
    """What was read since the last gradient step, and where that was."""

    def __init__(self, state: State, before: int, tokens: list[str] | None = None) -> None:
        self.state, self.before, self.tokens = state, before, tokens or []


def _on(state: State, device: torch.device) -> State:
    return [tuple(part.to(device) for part in parts) for parts in state]


def _novel_words(lexicon: Lexicon, tokens: Sequence[str], is_novel: NDArray[np.bool_]) -> list[str]:
    return [lexicon.alphabet.replace(tokens[i]) for i in np.flatnonzero(is_novel).tolist()]


def _lexeme_trie(network: TwoLevel, lexicon: Lexicon) -> Trie:
    _speller_of(network)
    spelled = lexicon.spellings()
    return Trie(spelled[i].tolist() for i in range(N_SPECIAL, lexicon.n_lexemes))


def _speller_of(network: TwoLevel) -> Speller:
    """The speller of novel words, if it is a character LSTM."""
    speller = getattr(network.novel, "speller", network.novel)
    if not isinstance(speller, Speller):
        raise ConfigError("renormalisation needs a speller that is a character LSTM")
    return speller
