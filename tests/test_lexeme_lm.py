"""The lexeme LM against PyTorch's own LSTM and softmax."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from spellonce.errors import ConfigError
from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig, LSTMLayer
from spellonce.noise import Noise, dropout
from spellonce.softmax import LexemeTable, _blockwise, sum_of_nats

PLAIN = {f"drop_{name}": 0.0 for name in ("embed", "input", "hidden", "output", "recurrent")}


def make_lm(n_lexemes: int = 11, seed: int = 0, **fields: object) -> LexemeLM:
    config = LexemeLMConfig(**{"n_embed": 6, "n_hidden": 9, "n_layers": 3, **fields})  # type: ignore[arg-type]
    lm = LexemeLM(config, n_lexemes)
    lm.initialise(torch.Generator().manual_seed(seed))
    return lm


def ids(t: int, b: int, n: int = 11) -> Tensor:
    return torch.randint(n, (t, b), generator=torch.Generator().manual_seed(1))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("projected", [False, True])
def test_without_dropout_it_is_a_stack_of_nn_lstm(projected: bool) -> None:
    lm = make_lm(**PLAIN, projected=projected)
    x = lm.table.embeddings()[ids(7, 3)]
    states = []
    for layer in lm.layers:
        assert isinstance(layer, LSTMLayer)
        reference = nn.LSTM(x.shape[2], layer.n_hidden)
        with torch.no_grad():
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(reference, f"{name}_l0").copy_(getattr(layer, name))
        x, state = reference(x)
        states.append(state)
    if projected:
        assert lm.projection is not None and x.shape[2] == 9
        x = x @ lm.projection.weight.T + lm.projection.bias
    hidden, new_state = lm(ids(7, 3), lm.zero_state(3), Noise(0))
    assert hidden.states.shape[2] == 6
    torch.testing.assert_close(hidden.states, x)
    torch.testing.assert_close(hidden.dropped, x)
    for mine, theirs in zip(new_state, states, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_weight_drop_is_functional() -> None:
    lm = make_lm(**{**PLAIN, "drop_recurrent": 0.5})
    layer = lm.layers[0]
    before = layer.weight_hh.detach().clone()
    a, _ = lm(ids(5, 2), lm.zero_state(2), Noise(1))
    b, _ = lm(ids(5, 2), lm.zero_state(2), Noise(2))
    again, _ = lm(ids(5, 2), lm.zero_state(2), Noise(1))
    assert not torch.allclose(a.states, b.states), "training outputs vary with the noise"
    assert torch.equal(a.states, again.states), "and only with the noise"
    a.states.sum().backward()
    assert layer.weight_hh.grad is not None
    share_untouched = (layer.weight_hh.grad == 0).float().mean().item()
    assert 0.3 < share_untouched < 0.7, "the gradient reaches exactly the weights that were kept"
    assert torch.equal(layer.weight_hh, before), "the raw weights stay as they are"
    quiet = [lm(ids(5, 2), lm.zero_state(2))[0].states for _ in range(2)]
    assert torch.equal(*quiet), "without noise it is deterministic"


@pytest.mark.parametrize("name", ["embed", "input", "hidden", "output", "recurrent"])
def test_each_dropout_changes_training_and_not_evaluation(name: str) -> None:
    lm, plain = make_lm(**{**PLAIN, f"drop_{name}": 0.5}), make_lm(**PLAIN)
    noisy, _ = lm(ids(6, 4), lm.zero_state(4), Noise(0))
    quiet, _ = lm(ids(6, 4), lm.zero_state(4))
    reference, _ = plain(ids(6, 4), plain.zero_state(4))
    assert not torch.allclose(noisy.dropped, reference.dropped)
    assert torch.equal(quiet.dropped, reference.dropped)


def test_dropout_masks_are_locked_over_the_window() -> None:
    x = torch.ones(50, 3, 4)
    y = dropout(x, 0.5, Noise(0), "input")
    assert torch.equal(y, y[:1].expand_as(y))
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_embedding_dropout_drops_whole_lexemes() -> None:
    lm = make_lm(n_lexemes=40, **{**PLAIN, "drop_embed": 0.5})
    words = torch.arange(40).repeat(2)[:, None]
    rows = lm.embed(words, Noise(0))[:, 0]
    torch.testing.assert_close(rows[:40], rows[40:])
    dropped = (rows[:40] == 0).all(1)
    assert 0 < int(dropped.sum()) < 40
    torch.testing.assert_close(rows[:40][~dropped], 2 * lm.table.embeddings()[~dropped])


def test_activation_penalties_are_those_of_awd_lstm() -> None:
    lm = make_lm(drop_output=0.5)
    hidden, _ = lm(ids(6, 4), lm.zero_state(4), Noise(0))
    expected = 2 * hidden.dropped.pow(2).mean()
    expected = expected + (hidden.states[1:] - hidden.states[:-1]).pow(2).mean()
    torch.testing.assert_close(hidden.activation_penalty(2.0, 1.0), expected)
    one, _ = lm(ids(1, 4), lm.zero_state(4))
    assert torch.isfinite(one.activation_penalty(2.0, 1.0))


@pytest.mark.parametrize("window", [1, 7, 70, 10_000])
def test_windows_do_not_matter(window: int) -> None:
    lm = make_lm()
    stream = ids(200, 1)
    whole, _ = lm(stream, lm.zero_state(1))
    state, parts = lm.zero_state(1), []
    for start in range(0, 200, window):
        hidden, state = lm(stream[start : start + window], state)
        parts.append(hidden.states)
    torch.testing.assert_close(torch.cat(parts), whole.states, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tail_size", [0, 1, 3, 50])
@pytest.mark.parametrize("cuts", [(), (3,), (2, 5), (4, 50)])
def test_distributions_sum_to_one_and_agree_with_nats(
    cuts: tuple[int, ...], tail_size: int
) -> None:
    table = LexemeTable(12, 5, cuts, tail_size)
    table.initialise(generator(), torch.arange(12))
    hidden = torch.randn(12, 5, generator=generator(3))
    log_probs = table.log_probs(hidden)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(12))
    targets = torch.arange(12)
    total, nats = table.nats(hidden, targets)
    torch.testing.assert_close(nats, -log_probs[targets, targets])
    torch.testing.assert_close(total, nats.sum())


@pytest.mark.parametrize("cuts", [(), (2, 5)])
def test_unigram_bias_starts_from_the_counts(cuts: tuple[int, ...]) -> None:
    counts = torch.tensor([0, 7, 30, 20, 10, 5, 4, 3, 2, 1])
    table = LexemeTable(10, 4, cuts)
    table.initialise(generator(), counts)
    probs = table.log_probs(torch.zeros(1, 4)).exp()[0].double()
    torch.testing.assert_close(
        probs, (counts + 0.5).double() / (counts + 0.5).sum(), rtol=1e-5, atol=1e-7
    )


def test_a_step_touches_only_the_tails_that_occur_in_it() -> None:
    table = LexemeTable(20, 4, (2, 5), tail_size=4)
    table.initialise(generator())
    assert table.bounds == [0, 2, 5, 9, 14, 20]
    hidden = table(torch.tensor([1, 6, 1]))
    table.nats(hidden, torch.tensor([19, 0, 3]))[0].backward()
    touched = [weight.grad is not None for weight in table.weights]
    assert touched == [True, True, True, False, True]


@pytest.mark.parametrize("tail_size", [0, 2])
@pytest.mark.parametrize("cuts", [(), (2, 5)])
def test_embeddings_are_one_thing(cuts: tuple[int, ...], tail_size: int) -> None:
    table = LexemeTable(10, 4, cuts, tail_size)
    table.initialise(generator())
    words = torch.tensor([[9, 0], [4, 5]])
    torch.testing.assert_close(table(words), table.embeddings()[words])
    table(words).sum().backward()
    grads = torch.cat([
        (torch.zeros_like(w) if w.grad is None else w.grad.to_dense())[: b - a]
        for w, a, b in zip(table.weights, table.bounds, table.bounds[1:], strict=False)
    ])  # fmt: skip
    assert grads.sum(1).tolist() == [4 * (i in (9, 0, 4, 5)) for i in range(10)]


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(0, 9), v=st.integers(1, 9), rows=st.integers(1, 4), seed=st.integers(0, 99),
    shared=st.booleans(), few=st.sampled_from([0, 5]),
)  # fmt: skip
def test_blockwise_softmax_equals_cross_entropy(
    n: int, v: int, rows: int, seed: int, shared: bool, few: int
) -> None:
    g, d = generator(seed), 3
    tensors = [torch.randn(*s, generator=g).requires_grad_() for s in ((n, d), (v, d), (v,))]
    targets = torch.randint(v, (n,), generator=g)
    hidden, weight, bias = tensors
    reference = nn.functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")
    share = torch.rand(n, generator=g) if shared else None
    summed = reference.sum() if share is None else (share * reference).sum()
    expected = torch.autograd.grad(3 * summed, tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spellonce.softmax._BLOCK", rows * v)
        patch.setattr("spellonce.softmax._ROWS", 1)
        patch.setattr("spellonce.softmax._FEW", few)
        total, nats = sum_of_nats(hidden, weight, bias, targets, share)
        with torch.no_grad():
            torch.testing.assert_close(_blockwise(*tensors, targets, share, None), nats)
    torch.testing.assert_close(nats, reference)
    torch.testing.assert_close(total, summed)
    torch.testing.assert_close(torch.autograd.grad(3 * total, tensors), expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
def test_blockwise_softmax_in_bfloat16_is_near_the_exact_one(rows: int, shared: bool) -> None:
    g, n, v, d = generator(5), 40, 30, 16
    tensors = [torch.randn(*s, generator=g).requires_grad_() for s in ((n, d), (v, d), (v,))]
    targets = torch.randint(v, (n,), generator=g)
    share = torch.rand(n, generator=g) if shared else None
    exact = sum_of_nats(*tensors, targets, share)
    expected = torch.autograd.grad(exact[0], tensors)
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr("spellonce.softmax._BLOCK", rows * v)
        patch.setattr("spellonce.softmax._ROWS", 1)
        total, nats = sum_of_nats(*tensors, targets, share)
    assert total.dtype == nats.dtype == torch.float32
    torch.testing.assert_close(total, exact[0], rtol=5e-3, atol=0)
    torch.testing.assert_close(nats, exact[1], rtol=2e-2, atol=5e-2)
    for mine, theirs in zip(torch.autograd.grad(total, tensors), expected, strict=True):
        assert mine.dtype == torch.float32 and float((mine - theirs).norm() / theirs.norm()) < 1e-2


def test_a_peaked_softmax_stays_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4]])
    weight = torch.tensor([[1.0], [-1.0], [0.0]]).requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        for few in (0, 16):
            patch.setattr("spellonce.softmax._FEW", few)
            total, nats = sum_of_nats(hidden, weight, torch.zeros(3), torch.tensor([1, 1]))
            assert nats.tolist() == [2e4, 0.0]
            assert torch.autograd.grad(total, weight)[0].tolist() == [[1e4], [-1e4], [0.0]]


@pytest.mark.parametrize(
    "fields", [{"n_layers": 0}, {"drop_input": 1.0}, {"drop_hidden": -0.1}, {"cuts": (1,)}]
)
def test_nonsense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        LexemeLMConfig(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_rails", [1, 3])
def test_a_single_step_is_that_of_torch(n_rails: int) -> None:
    layer = LSTMLayer(5, 7)
    layer.initialise(torch.Generator().manual_seed(0))
    x = torch.randn(6, n_rails, 5, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole, last = layer(x, layer.zero_state(n_rails))
        state, steps = layer.zero_state(n_rails), []
        for one in x:
            out, state = layer(one[None], state)
            steps.append(out)
    torch.testing.assert_close(torch.cat(steps), whole)
    for mine, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(mine, theirs)
