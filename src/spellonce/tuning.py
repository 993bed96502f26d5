"""Finds what a model that learns while it reads is to be set to, on a text.

Static scores and states of the text are computed once. A gate is then a small softmax regression
on them (L-BFGS), growth a search over three numbers, and both cost seconds; only dynamic
evaluation must read the text, or the beginning of it, again for every setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.adaptive import STRIP, Adaptation, CacheSettings, Floats, Reader, Routes, mix
from spellonce.cache import Component, Found, Memory
from spellonce.dynamic import DynamicSettings
from spellonce.errors import ConfigError, RunError
from spellonce.growth import Chance, Grown, GrowthSettings
from spellonce.lexicon import EOS_ID, UNK_ID, Lexicon, Spellings
from spellonce.text import read
from spellonce.two_level import TwoLevel

if TYPE_CHECKING:
    from spellonce.model import Model

COMPONENTS = (
    Component(0.0), Component(0.2), Component(0.5), Component(1.0), Component(0.3, after=1),
    Component(0.3, after=2),
)  # fmt: skip
SCALES = (0.4, 1.0)
"""Times the sharpness of all of them."""
WINDOWS = (1000, 3000, 6000, 12_000)
LIKE, OFTEN, NEW = (0.05, 0.1, 0.2, 0.4, 0.8), (0.5, 1.0), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
RATES, DECAYS = (2e-5, 5e-5, 1e-4), (1e-3, 2e-4, 5e-3)


@dataclass(frozen=True)
class StaticText:
    """A text as the static model sees it.  (N,) each"""

    routes: Routes
    ids: NDArray[np.int64]
    """The lexeme that each token is, or UNK."""
    words: list[str]
    """The novel ones, in order."""
    states: Tensor
    """The states that predict them.  (N, D)"""
    n_chars: int

    def bpc(self, nats: Floats) -> float:
        """Bits per character of a score of it."""
        return float(nats.sum() / np.log(2) / max(self.n_chars, 1))

    def static_bpc(self) -> float:
        """That of the static model."""
        return self.bpc(self.routes.lm + self.routes.spelling)


@torch.no_grad()
def follow(network: TwoLevel, lexicon: Lexicon, tokens: Sequence[str], n_chars: int) -> StaticText:
    """Reads a text once."""
    ids, _ = lexicon.encode(tokens)
    places = np.flatnonzero(ids == UNK_ID)
    words = [lexicon.alphabet.replace(tokens[i]) for i in places.tolist()]
    state, before = network.zero_state(1), EOS_ID
    lm, spelling, states = [np.zeros(0)], [np.zeros(0)], []
    first = 0
    for start in range(0, len(ids), STRIP):
        part = ids[start : start + STRIP]
        n = int((part == UNK_ID).sum())
        spelled = Spellings.of(lexicon.alphabet, words[first : first + n])
        found = network.follow(part, before, spelled, state)
        first += n
        lm.append(found.lm_nats)
        spelling.append(found.spell_nats)
        states.append(found.states.cpu())
        state, before = found.state, int(part[-1])
    routes = Routes.static(np.concatenate(lm), np.concatenate(spelling), ids == UNK_ID)
    width = network.lm.table.n_embed
    return StaticText(routes, ids, words, torch.cat([torch.zeros(0, width), *states]), n_chars)


# --- growth ------------------------------------------------------------------------------------


def chances(text: StaticText, limit: int) -> Iterator[Chance]:
    """What a growing lexicon would know of every novel word before it is met, one by one."""
    grown = Grown(text.states.shape[1], limit)
    places = np.flatnonzero(text.routes.is_novel).tolist()
    for word, place in zip(text.words, places, strict=True):
        yield grown.meet(word, text.states[place])


def grow(text: StaticText, found: Iterable[Chance], settings: GrowthSettings) -> StaticText:
    """The text with the routes that growth adds."""
    routes = replace(
        text.routes, log_grown=text.routes.log_grown.copy(), log_new=text.routes.log_new.copy()
    )
    for i, chance in zip(np.flatnonzero(routes.is_novel).tolist(), found, strict=True):
        routes.log_grown[i], routes.log_new[i] = chance.log_p(settings)
    return replace(text, routes=routes)


def tune_growth(
    text: StaticText, limit: int = 2000, most: int = 2000
) -> tuple[GrowthSettings, StaticText]:
    """The settings under which novel words (the first so many of them) are likeliest."""
    found = list(islice(chances(text, limit), most))
    spelling = text.routes.spelling[text.routes.is_novel]

    def nats(settings: GrowthSettings) -> float:
        total = 0.0
        for chance, cost in zip(found, spelling.tolist(), strict=False):
            own, new = chance.log_p(settings)
            total -= own if chance.own >= 0 else new - cost
        return total

    tried = [GrowthSettings(limit, *values) for values in product(LIKE, OFTEN, NEW)]
    best = min(tried, key=nats)
    return best, grow(text, chances(text, limit), best)


# --- cache -------------------------------------------------------------------------------------


def look_up(text: StaticText, n_lexemes: int, settings: CacheSettings) -> Found:
    """What a cache says of every token of a text."""
    memory = Memory(
        text.states.shape[1], n_lexemes, window=settings.window, components=settings.components
    )
    strings, is_novel, words = text.ids.copy(), text.routes.is_novel, iter(text.words)
    found = []
    for start in range(0, len(strings), STRIP):
        part = slice(start, start + STRIP)
        n = int(is_novel[part].sum())
        strings[part][is_novel[part]] = memory.numbers(list(islice(words, n)))
        found.append(memory.read(text.states[part], strings[part]))
    return Found.joined(found, len(settings.components))


def score(text: StaticText, found: Found, settings: CacheSettings) -> Floats:
    """−log p of every token with a cache."""
    return mix(text.routes, *settings.log_p(found, text.states))


def fit_gate(
    text: StaticText, found: Found, settings: CacheSettings, *, prior: float = 5.0
) -> CacheSettings:
    """The settings with the gate under which the text is likeliest.

    `prior` is the strength of a Gaussian prior on its weights: a short text says little of them.
    """
    features = np.concatenate([found.features, np.ones((len(found.features), 1))], 1)
    scale = np.maximum(np.abs(features).max(0, initial=0.0), 1e-9)
    inputs, states = torch.from_numpy(features / scale), text.states
    is_cached: NDArray[np.bool_] = np.any(found.log_p > -np.inf, axis=1)
    own = torch.from_numpy(text.routes.log_p(is_cached))
    routes = torch.cat([own[:, None], torch.from_numpy(found.log_p)], 1)
    is_there = torch.from_numpy(np.pad(found.is_there, ((0, 0), (1, 0)), constant_values=True))
    n_rows = 1 + len(settings.components)
    by_features = torch.zeros(n_rows, inputs.shape[1], dtype=torch.float64)
    by_features[1:, -1] = -2.0  # more static than cache to begin with, or where little is known
    begin = by_features.clone()
    by_state = torch.zeros(n_rows, states.shape[1], dtype=torch.float64)
    parameters = [by_features.requires_grad_(), by_state.requires_grad_()]
    optimizer = torch.optim.LBFGS(parameters, max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        by_hidden = (states @ by_state.T.float()).double()  # a copy in doubles would be large
        logits = (inputs @ by_features.T + by_hidden).masked_fill(~is_there, -torch.inf)
        log_weights = torch.log_softmax(logits, 1)
        loss = -(log_weights + routes).logsumexp(1).sum() / max(len(routes), 1)
        penalty = by_state.square().sum() + (by_features - begin).square().sum()
        loss = loss + prior / max(len(routes), 1) * penalty
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    rows = by_features.detach().numpy() / scale
    return replace(
        settings,
        by_features=tuple(map(tuple, rows.tolist())),
        by_state=tuple(map(tuple, by_state.detach().tolist())),
    )


def tune_cache(
    text: StaticText,
    n_lexemes: int,
    *,
    windows: Sequence[int] = WINDOWS,
    scales: Sequence[float] = SCALES,
    components: Sequence[Component] = COMPONENTS,
    told: Callable[[CacheSettings, float], None] = lambda settings, bpc: None,
) -> tuple[CacheSettings, float]:
    """The best settings for a text, and the bpc that it has with them.

    First the scale of the sharpness is chosen, at the second window. From there windows grow for as
    long as that helps; if it does not help at all, the first is tried.
    """
    tried: list[tuple[CacheSettings, float]] = []

    def attempt(window: int, own: tuple[Component, ...]) -> None:
        plain = CacheSettings(window, own)
        found = look_up(text, n_lexemes, plain)
        fitted = fit_gate(text, found, plain)
        tried.append((fitted, text.bpc(score(text, found, fitted))))
        told(*tried[-1])

    def best() -> tuple[CacheSettings, float]:
        return min((one for one in tried if np.isfinite(one[1])), key=lambda one: one[1])

    first = min(1, len(windows) - 1)
    for scale in scales:
        sharper = tuple(replace(c, sharpness=scale * c.sharpness) for c in components)
        attempt(windows[first], sharper)
    chosen = best()[0].components
    for window in windows[first + 1 :]:
        attempt(window, chosen)
        if best()[0].window != window:
            break
    if first and best()[0].window == windows[first]:
        attempt(windows[0], chosen)
    return best()


# --- dynamic evaluation ------------------------------------------------------------------------


def tune_dynamic(
    network: TwoLevel,
    lexicon: Lexicon,
    tokens: Sequence[str],
    scale: Mapping[str, Tensor],
    *,
    beside: Adaptation | None = None,
    rates: Sequence[float] = RATES,
    decays: Sequence[float] = DECAYS,
    told: Callable[[DynamicSettings | None, float], None] = lambda settings, nats: None,
) -> tuple[DynamicSettings | None, float]:
    """The best settings for the beginning of a text, and the nats that a token has with them.

    None: it is best without. `beside`: what else is learned. First the rate is chosen, at the first
    of the decays, and then the decay.
    """
    tried: list[tuple[DynamicSettings | None, float]] = []

    def attempt(settings: DynamicSettings | None) -> None:
        adaptation = replace(beside or Adaptation(), dynamic=settings)
        reader = Reader(network, lexicon, adaptation, scale)
        tried.append((settings, float(reader.read(tokens).nats.mean())))
        told(*tried[-1])

    def best() -> tuple[DynamicSettings | None, float]:
        return min((one for one in tried if np.isfinite(one[1])), key=lambda one: one[1])

    attempt(None)
    for rate in rates:
        attempt(DynamicSettings(rate=rate, decay=decays[0]))
    chosen, _ = best()
    if chosen is not None:
        for decay in decays[1:]:
            attempt(replace(chosen, decay=decay))
    return best()


# --- a run -------------------------------------------------------------------------------------


def tune_run(
    model: Model,
    *,
    n_tokens: int | None = None,
    n_dynamic: int = 20_000,
    status: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Tunes a run on its validation split and stores what was found; all that was tried.

    Growth is kept if text with cache and growth is likelier than with the cache alone. `n_tokens`:
    of the split, if not all; `n_dynamic`: of these, for trying rates of dynamic evaluation.
    """
    network, folder = model.network, model.folder
    if not isinstance(network, TwoLevel) or folder is None:
        raise ConfigError("only a run of a two-level model can be tuned")
    own = folder.model_sum
    reading = read(model.split_lines("valid"), model.format)
    n_chars = reading.text_chars
    if n_tokens is not None and n_tokens < len(reading):
        reading = reading.head(n_tokens)
        n_chars = int(reading.n_chars.sum())
    status("reading the validation split")
    text = follow(network, model.lexicon, reading.tokens, n_chars)
    tried: list[dict[str, Any]] = [{"what": "static", "bpc": text.static_bpc()}]
    status("growth")
    growth, grown = tune_growth(text)
    alone = grown.bpc(-grown.routes.log_p(np.zeros(len(reading), dtype=bool)))
    tried.append({"what": f"growth ({_numbers(growth)})", "bpc": alone})
    status("cache")

    def cached(settings: CacheSettings, bpc: float) -> None:
        ways = ", ".join(f"{c.sharpness:g} after {c.after}" for c in settings.components)
        tried.append({"what": f"cache (window {settings.window}; {ways})", "bpc": bpc})
        status(tried[-1]["what"])

    cache, bpc = tune_cache(text, model.lexicon.n_lexemes, told=cached)
    both, bpc_of_both = tune_cache(
        grown, model.lexicon.n_lexemes, windows=(cache.window,), scales=(1.0,),
        components=cache.components,
    )  # fmt: skip
    tried.append({"what": "cache and growth", "bpc": bpc_of_both})
    is_better = bpc_of_both < bpc
    adaptation = Adaptation(both if is_better else cache, growth if is_better else None)
    scale = folder.read_gradients()
    if n_dynamic and scale is not None:
        part = reading.head(n_dynamic)
        bits_per_nat = len(part) / np.log(2) / max(int(part.n_chars.sum()), 1)

        def told(settings: DynamicSettings | None, nats: float) -> None:
            how = "without" if settings is None else f"with ({_numbers(settings)})"
            what = f"{len(part):,} tokens, cache, {how} dynamic evaluation"
            if np.isfinite(nats):  # a rate that is too high may lead anywhere
                tried.append({"what": what, "bpc": nats * bits_per_nat})
            status(what)

        dynamic, _ = tune_dynamic(
            network, model.lexicon, part.tokens, scale, beside=adaptation, told=told
        )
        adaptation = replace(adaptation, dynamic=dynamic)
    if folder.model_sum != own:
        raise RunError(f"{folder} was trained anew meanwhile: tune it again")
    kept = {**adaptation.to_json(), "tried": tried, "model": own}
    folder.write_json("adaptive.json", kept)
    return {"run": str(folder), "tried": tried, "adaptive": adaptation.to_json()}


def _numbers(settings: GrowthSettings | DynamicSettings) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in asdict(settings).items())
