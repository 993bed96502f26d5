"""The speller: its probabilities enumerated, its norm against NumPy, its bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spellonce import speller as spellers
from spellonce.lexicon import BOUNDARY_SYMBOL, Spellings
from spellonce.noise import Noise
from spellonce.speller import (
    Speller,
    SpellerConfig,
    _NuclearNorm,
    buckets,
    draw,
    padded,
)
from spellonce.spellers import UnigramSpeller

from .toy import ALPHABET, N_VECTOR, make_speller, spell, strings


def make(seed: int = 0, **fields: float) -> Speller:
    speller = make_speller(**fields)
    speller.initialise(torch.Generator().manual_seed(seed))
    return speller


def vectors(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, N_VECTOR, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_all_strings_and_the_mass_of_longer_ones_sum_to_one() -> None:
    speller, up_to = make(), 4
    with torch.no_grad():
        speller.output.bias[BOUNDARY_SYMBOL] += 1.0
    vector = vectors(1)
    words = strings(up_to)
    nats = speller.nats(vector.expand(len(words), -1), spell(words))
    mass = nats.double().neg().exp().sum().item()
    # The mass of longer strings: of every prefix of length up_to + 1, whatever follows.
    prefixes = [w for w in strings(up_to + 1) if len(w) == up_to + 1]
    inputs, _ = padded(spell(prefixes), np.arange(len(prefixes)))
    states, _ = speller.run(
        inputs[: up_to + 1], vector.expand(len(prefixes), -1), speller.zero_state(len(prefixes)),
        None,
    )  # fmt: skip
    logits = speller.output(states)
    _, targets = padded(spell(prefixes), np.arange(len(prefixes)))
    steps = torch.log_softmax(logits.double(), 2).gather(2, targets[: up_to + 1, :, None])
    longer = steps.sum(0).exp().sum().item()
    assert longer > 0.01, "the test would prove nothing if long words had no mass"
    assert mass + longer == pytest.approx(1, abs=1e-5)


def test_batch_composition_does_not_matter() -> None:
    speller = make()
    words = ["a", "", "abab◇b", "b" * 30, "ba", "a" * 7]
    together = speller.nats(vectors(6), spell(words))
    for i, word in enumerate(words):
        alone = speller.nats(vectors(6)[[i]], spell([word]))
        torch.testing.assert_close(alone[0], together[i], rtol=1e-5, atol=1e-5)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = speller.nats(vectors(6)[order], spell([words[i] for i in order]))
    torch.testing.assert_close(shuffled, together[order], rtol=1e-5, atol=1e-5)


def test_long_spellings_are_read_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    speller = make()
    words = ["ab" * 100, "b" * 150, "a"]
    whole = speller.nats(vectors(3), spell(words))
    monkeypatch.setattr(spellers, "STEP_WINDOW", 7)
    with torch.no_grad():
        torch.testing.assert_close(speller.nats(vectors(3), spell(words)), whole)


def test_gradients_reach_the_vectors() -> None:
    given_vectors = vectors(2).requires_grad_()
    make().nats(given_vectors, spell(["ab", "b"])).sum().backward()
    assert given_vectors.grad is not None and (given_vectors.grad != 0).all()


def test_dropout_needs_noise() -> None:
    speller = make(drop=0.5, drop_vector=0.5)
    quiet = [speller.nats(vectors(2), spell(["ab", "b"])) for _ in range(2)]
    assert torch.equal(*quiet)
    noisy = [speller.nats(vectors(2), spell(["ab", "b"]), Noise(s)) for s in (1, 2)]
    assert not torch.allclose(*noisy)


@settings(deadline=None)
@given(st.lists(st.text("ab◇", max_size=6), min_size=1, max_size=8))
def test_padding(words: list[str]) -> None:
    spellings = spell(words)
    inputs, targets = padded(spellings, np.arange(len(words)))
    for i, word in enumerate(words):
        symbols = ALPHABET.encode(word).tolist()
        assert inputs[: len(word) + 1, i].tolist() == [0, *symbols]
        assert targets[: len(word) + 1, i].tolist() == [*symbols, 0]
        assert (targets[len(word) + 1 :, i] == -100).all()


@given(st.lists(st.integers(0, 3000), max_size=300))
def test_buckets_partition_and_are_bounded(lengths: list[int]) -> None:
    array = np.array(lengths, dtype=np.int64)
    groups = list(buckets(array))
    assert sorted(np.concatenate([*groups, []]).tolist()) == list(range(len(lengths)))
    for group in groups:
        cells = len(group) * (array[group].max() + 1)
        assert len(group) == 1 or cells <= spellers._CELLS


@pytest.mark.parametrize("kind", ["random", "rank one", "zero", "repeated", "wide", "tall"])
def test_nuclear_norm_and_gradient_equal_numpy_svd(kind: str) -> None:
    rng = np.random.default_rng(0)
    matrix = {
        "random": rng.normal(size=(4, 6, 6)),
        "rank one": rng.normal(size=(4, 6, 1)) @ rng.normal(size=(4, 1, 5)),
        "zero": np.zeros((4, 5, 7)),
        "repeated": np.broadcast_to(np.eye(5), (4, 5, 5)).copy(),
        "wide": rng.normal(size=(4, 3, 9)),
        "tall": rng.normal(size=(4, 9, 3)),
    }[kind]
    tensor = torch.from_numpy(matrix).requires_grad_()
    norm = _NuclearNorm.apply(tensor)
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(norm.detach(), s.sum(-1), atol=1e-10)
    norm.sum().backward()
    assert tensor.grad is not None and torch.isfinite(tensor.grad).all()
    kept = s > 1e-9
    expected = (u * kept[:, None, :]) @ vh
    np.testing.assert_allclose(tensor.grad, expected, atol=1e-8)


def test_nuclear_norm_is_of_the_vector_columns_of_each_gate() -> None:
    speller = make()
    weight = speller.layers[0].weight_ih.detach().numpy()
    h, c = speller.config.n_hidden, speller.config.n_char_embed
    expected = sum(
        np.linalg.svd(weight[g * h : (g + 1) * h, c:], compute_uv=False).sum() for g in range(4)
    )
    assert speller.nuclear_norm().item() == pytest.approx(expected, rel=1e-5)
    speller.nuclear_norm().backward()
    grad = speller.layers[0].weight_ih.grad
    assert grad is not None and (grad[:, :c] == 0).all() and (grad[:, c:] != 0).any()


def test_proximal_steps_give_true_low_rank() -> None:
    speller = make()
    before = torch.linalg.svdvals(speller.gate_blocks().detach())
    characters = speller.layers[0].weight_ih[:, : speller.config.n_char_embed].detach().clone()
    threshold = float(before.median())
    speller.proximal_step(threshold)
    after = torch.linalg.svdvals(speller.gate_blocks().detach())
    torch.testing.assert_close(after, (before - threshold).clamp_min(0), atol=1e-5, rtol=1e-4)
    assert speller.ranks() == (before > threshold).sum(1).tolist()
    assert max(speller.ranks()) < N_VECTOR
    assert torch.equal(speller.layers[0].weight_ih[:, : speller.config.n_char_embed], characters)


def test_samples_follow_the_distribution() -> None:
    speller = make(seed=3)
    with torch.no_grad():
        speller.output.bias[BOUNDARY_SYMBOL] += 1.5
    vector, n = vectors(1, seed=4), 4000
    drawn = speller.sample(vector.expand(n, -1), torch.Generator().manual_seed(0), 1.0, 30)
    words = [ALPHABET.decode(s) for s in drawn]
    for word in ("", "a", "b", "ab"):
        with torch.no_grad():
            p = float(speller.nats(vector, spell([word])).neg().exp())
        error = 4 * (p * (1 - p) / n) ** 0.5
        assert abs(words.count(word) / n - p) < error + 1e-9


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    assert draw(logits, 0, torch.Generator()).item() == 1


def test_unigram_speller_counts() -> None:
    speller = UnigramSpeller.from_counts(np.array([1, 0, 3, 5]))
    nats = speller.nats(torch.zeros(2, 1), spell(["ab", ""]))
    p = np.array([2, 1, 4, 6]) / 13
    np.testing.assert_allclose(nats.detach(), [-np.log(p[2] * p[3] * p[0]), -np.log(p[0])])
    words = speller.sample(torch.zeros(5, 1), torch.Generator().manual_seed(0), 1.0, 10)
    assert len(words) == 5 and all(BOUNDARY_SYMBOL not in word for word in words)


def test_a_spelling_that_was_cut_is_not_charged_for_its_end() -> None:
    whole, rows = spell(["abba", "ab"]), np.arange(2)
    cut = whole.take(rows, limit=3)
    assert cut.ends().tolist() == [False, True] and cut.take(rows).ends().tolist() == [False, True]
    for speller in (make(), UnigramSpeller(len(ALPHABET))):
        assert isinstance(speller, Speller | UnigramSpeller)
        full, part = (speller.nats(vectors(2), s) for s in (whole, cut))
        torch.testing.assert_close(part[1], full[1])
        with_end = speller.nats(vectors(2), spell(["abb", "ab"]))
        assert part[0] < with_end[0] and part[0] < full[0]


def test_nothing_to_spell() -> None:
    empty = Spellings(np.zeros(0, np.int32), np.zeros(1, np.int64))
    assert make().nats(torch.zeros(0, N_VECTOR), empty).shape == (0,)


@pytest.mark.parametrize("fields", [{"n_hidden": 0}, {"drop": 1.0}, {"drop_vector": -1}])
def test_nonsense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(Exception, match="speller"):
        SpellerConfig(**fields)  # type: ignore[arg-type]
