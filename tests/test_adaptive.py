"""The cache: a mixture that sums to one, looks at nothing that comes later, and can be cut."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spellonce.adaptive import CacheSettings, Reader, mix
from spellonce.cache import Memory, n_features
from spellonce.tuning import fit_gate, follow, look_up
from spellonce.two_level import TwoLevel

from .test_systems import HISTORY, make, shorten
from .toy import make_lexicon, strings

TEXT = [*HISTORY, "bb", "ab", "bb", "\n", "aab", "bb", "ab", "\n", "aab", "b"]
SYSTEMS = ["full", "no-reg", "only-reg", "sep-reg", "1gram", "uncond", "mixed"]


def network_of(name: str) -> TwoLevel:
    network = make(name)
    assert isinstance(network, TwoLevel)
    return network


def some_gate(n_components: int, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 0.4, (1 + n_components, n_features(n_components) + 1))
    return tuple(map(tuple, rows.tolist()))


GATED = CacheSettings(4, (0.0, 0.5), some_gate(2))


@pytest.mark.parametrize("name", SYSTEMS)
def test_without_a_cache_it_is_the_static_model(name: str) -> None:
    network, lexicon = network_of(name), make_lexicon()
    lm, spelling = network.score_tokens(lexicon, TEXT)
    for cache in (None, CacheSettings.fixed(0.0, 1.0)):
        piece = Reader(network, lexicon, cache).read(TEXT)
        np.testing.assert_allclose(piece.lm_nats, lm, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(piece.spell_nats, spelling, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(piece.nats, piece.lm_nats + piece.spell_nats, rtol=1e-12)


@pytest.mark.parametrize("name", ["full", "1gram", "mixed"])
@pytest.mark.parametrize("n_read", [0, 1, 7, len(TEXT)])
def test_all_that_may_come_adds_up_to_one(name: str, n_read: int) -> None:
    """But for what the static model loses itself, and what UNK would spell of words in memory."""
    network, lexicon = network_of(name), make_lexicon()
    shorten(network)
    reader = Reader(network, lexicon, GATED)
    reader.read(TEXT[:n_read])
    kept = reader.state_dict()
    assert reader.memory is not None
    remembered = {reader.memory.words().get(n) for n in reader.memory.strings.tolist()}
    static, adaptive = {}, {}
    for word in ["\n", *strings(5)[1:]]:
        again = Reader(network, lexicon, GATED)
        again.restore(kept)
        piece = again.read([word])
        static[word] = math.exp(-float(piece.lm_nats[0] + piece.spell_nats[0]))
        adaptive[word] = math.exp(-float(piece.nats[0]))
    share = adaptive["babab"] / static["babab"]  # of the static model: this was never read
    assert share == pytest.approx(1) if n_read == 0 else share < 1
    lost = 1 - sum(static.values()) + sum(static[word] for word in remembered & static.keys())
    assert sum(adaptive.values()) == pytest.approx(1 - share * lost, abs=1e-5)
    assert 0 <= lost < 0.6


def test_the_cache_against_a_plain_one() -> None:
    """Token by token, straight from the definition."""
    network, lexicon = network_of("full"), make_lexicon()
    theta, weight, window = 0.7, 0.3, 5
    piece = Reader(network, lexicon, CacheSettings.fixed(weight, theta, window)).read(TEXT)
    text = follow(network, lexicon, TEXT, n_chars=1)
    h = text.states.double().numpy()
    for i, word in enumerate(TEXT):
        past = range(max(0, i - window), i)
        scores = {j: math.exp(theta * float(h[i] @ h[j])) for j in past}
        total = sum(scores.values())
        cached = sum(s for j, s in scores.items() if TEXT[j] == word) / total if past else 0.0
        static = math.exp(-float(text.static[i]))
        if not past:
            expected = static
        elif text.is_novel[i] and cached > 0:
            expected = weight * cached
        else:
            expected = (1 - weight) * static + weight * cached
        assert piece.nats[i] == pytest.approx(-math.log(expected), rel=1e-5), (i, word)


@pytest.mark.parametrize("name", ["full", "mixed"])
@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=4))
def test_pieces_score_as_the_whole(name: str, cuts: list[int]) -> None:
    network, lexicon = network_of(name), make_lexicon()
    whole = Reader(network, lexicon, GATED).read(TEXT)
    reader = Reader(network, lexicon, GATED)
    found = []
    borders = sorted({0, *cuts, len(TEXT)})
    for a, b in itertools.pairwise(borders):
        kept = reader.state_dict()
        reader = Reader(network, lexicon, GATED)
        reader.restore(kept)
        found.append(reader.read(TEXT[a:b]).nats)
    np.testing.assert_allclose(np.concatenate(found), whole.nats, rtol=1e-4, atol=1e-5)


def test_what_comes_later_changes_nothing() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    whole = Reader(network, lexicon, GATED).read(TEXT)
    for n in range(1, len(TEXT)):
        other = Reader(network, lexicon, GATED).read([*TEXT[:n], "bab", "aab"])
        np.testing.assert_allclose(other.nats[:n], whole.nats[:n], rtol=1e-4, atol=1e-5)


def test_a_gate_is_fitted_to_a_text() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    tokens = TEXT * 20
    text = follow(network, lexicon, tokens, n_chars=100)
    plain = CacheSettings(8, (0.0, 0.5))
    found = look_up(text, lexicon.n_lexemes, plain)
    fitted = fit_gate(text, found, plain, by_state=True, weight_decay=1e-4)
    bits = [
        text.bpc(mix(text.static, text.is_novel, found, s.log_weights(found, text.states)))
        for s in (fitted, CacheSettings(8, (0.0, 0.5), some_gate(2)))
    ]
    assert bits[0] < text.bpc(text.static) and bits[0] < bits[1]
    read = Reader(network, lexicon, fitted).read(tokens)
    assert text.bpc(read.nats) == pytest.approx(bits[0], rel=1e-4)


def test_memory_is_bounded() -> None:
    memory = Memory(2, 3, window=10, sharpness=(0.0,))
    for i in range(3000):
        memory.read(torch.zeros(1, 2), np.array([memory.number(f"w{i}")]))
    assert len(memory.strings) == 10 and len(memory.words()) <= 1021 + 1
    names = memory.words()
    assert [names[n] for n in memory.strings.tolist()] == [f"w{i}" for i in range(2990, 3000)]
