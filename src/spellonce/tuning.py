"""Finds the cache's settings on a text: gates by maximum likelihood, the rest by trying.

The static scores and states of the text are computed once; a gate is then a small softmax
regression on them (L-BFGS), so a setting costs a look-up of the text in its own past and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.adaptive import STRIP, CacheSettings, Floats, mix
from spellonce.cache import Found, Memory
from spellonce.lexicon import EOS_ID, UNK_ID, Lexicon, Spellings
from spellonce.two_level import TwoLevel

SHARPNESS: tuple[tuple[float, ...], ...] = ((0.0, 0.1, 0.3), (0.0, 0.05, 0.2), (0.0, 0.2, 0.6))
WINDOWS = (1000, 3000)


@dataclass(frozen=True)
class Followed:
    """A text as the static model sees it."""

    static: Floats
    """−log p of each token.  (N,)"""
    strings: NDArray[np.int64]
    """What it is; novel words have numbers behind the lexemes.  (N,)"""
    is_novel: NDArray[np.bool_]
    states: Tensor
    """(N, D)"""
    n_chars: int

    def bpc(self, nats: Floats) -> float:
        """Bits per character of a score of it."""
        return float(nats.sum() / np.log(2) / max(self.n_chars, 1))


@torch.no_grad()
def follow(network: TwoLevel, lexicon: Lexicon, tokens: Sequence[str], n_chars: int) -> Followed:
    """Reads a text once."""
    ids, _ = lexicon.encode(tokens)
    is_novel = ids == UNK_ID
    words = {i: lexicon.alphabet.replace(tokens[i]) for i in np.flatnonzero(is_novel).tolist()}
    numbers = {word: lexicon.n_lexemes + n for n, word in enumerate(dict.fromkeys(words.values()))}
    strings = ids.astype(np.int64)
    for i, word in words.items():
        strings[i] = numbers[word]
    state, before = network.zero_state(1), EOS_ID
    nats, states = [np.zeros(0)], []
    for start in range(0, len(ids), STRIP):
        part = ids[start : start + STRIP]
        mine = [words[start + i] for i in np.flatnonzero(part == UNK_ID).tolist()]
        found = network.follow(part, before, Spellings.of(lexicon.alphabet, mine), state)
        nats.append(found.lm_nats + found.spell_nats)
        states.append(found.states.cpu())
        state, before = found.state, int(part[-1])
    width = network.lm.table.n_embed
    all_states = torch.cat([torch.zeros(0, width), *states])
    return Followed(np.concatenate(nats), strings, is_novel, all_states, n_chars)


def look_up(text: Followed, n_lexemes: int, settings: CacheSettings) -> Found:
    """What a cache says of every token of a text."""
    memory = Memory(
        text.states.shape[1], n_lexemes, window=settings.window, sharpness=settings.sharpness
    )
    return memory.read(text.states, text.strings)


def fit_gate(
    text: Followed, found: Found, settings: CacheSettings, *, by_state: bool, weight_decay: float
) -> CacheSettings:
    """The gate under which the text is likeliest."""
    n_rows = 1 + len(settings.sharpness)
    features = np.concatenate([found.features, np.ones((len(found.features), 1))], 1)
    scale = np.maximum(np.abs(features).max(0), 1e-9)
    inputs = torch.from_numpy(features / scale)
    rows = torch.zeros(n_rows, inputs.shape[1], dtype=torch.float64)
    rows[1:, -1] = -2.0  # more static than cache to begin with
    parameters = [rows.requires_grad_()]
    if by_state:
        width = text.states.shape[1]
        parameters.append(torch.zeros(n_rows, width, dtype=torch.float64).requires_grad_())
    states = text.states.double() if by_state else None
    cached = torch.from_numpy(found.log_p)
    known = torch.from_numpy(text.is_novel & found.is_known)
    own = torch.from_numpy(-text.static).masked_fill(known, -torch.inf)
    routes = torch.cat([own[:, None], cached], 1)[~torch.from_numpy(found.is_empty)]
    filled = ~torch.from_numpy(found.is_empty)
    inputs = inputs[filled]
    states = None if states is None else states[filled]
    optimizer = torch.optim.LBFGS(parameters, max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        logits = inputs @ parameters[0].T
        if states is not None:
            logits = logits + states @ parameters[1].T
        nats = -(torch.log_softmax(logits, 1) + routes).logsumexp(1).mean()
        return nats + weight_decay * sum(p.square().sum() for p in parameters[1:])

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    by_features = parameters[0].detach().numpy() / scale
    return replace(
        settings,
        by_features=tuple(map(tuple, by_features.tolist())),
        by_state=tuple(map(tuple, parameters[1].detach().tolist())) if by_state else (),
    )


def tune_cache(
    text: Followed,
    n_lexemes: int,
    *,
    windows: Sequence[int] = WINDOWS,
    sharpness: Sequence[tuple[float, ...]] = SHARPNESS,
    told: Callable[[CacheSettings, float], None] = lambda settings, bpc: None,
) -> tuple[CacheSettings, float]:
    """The best settings for a text, and the bpc that it has with them."""
    best: tuple[CacheSettings, float] | None = None
    for window in windows:
        for thetas in sharpness:
            settings = CacheSettings(window, thetas)
            found = look_up(text, n_lexemes, settings)
            fitted = fit_gate(text, found, settings, by_state=True, weight_decay=1e-5)
            weights = fitted.log_weights(found, text.states)
            bpc = text.bpc(mix(text.static, text.is_novel, found, weights))
            told(fitted, bpc)
            if best is None or bpc < best[1]:
                best = fitted, bpc
    assert best is not None
    return best
