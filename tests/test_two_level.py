"""The joint model on a toy world: every probability adds up, the objective is what is written."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from spellonce.batching import LexiconSampler, Rails, WindowConfig, window_cuts
from spellonce.configuration import Recipe
from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig
from spellonce.lexicon import EOS_ID, UNK_ID
from spellonce.mixture import NgramConfig, count_all
from spellonce.objective import ObjectiveConfig
from spellonce.plan import Plan
from spellonce.trainer import Trainer
from spellonce.two_level import TwoLevel

from .toy import (
    ALPHABET,
    LEXEMES,
    N_VECTOR,
    make_lexicon,
    make_network,
    make_speller,
    spell,
    strings,
)


@pytest.mark.parametrize("cuts", [(), (3,)])
def test_scores_of_all_strings_add_up_to_one_minus_the_double_route(cuts: tuple[int, ...]) -> None:
    """Σ_s score(s) = 1 − p(UNK|h)·Σ_w p_spell(σ(w)|h), no more and no less."""
    network, up_to = make_network(seed=5, cuts=cuts), 5
    lexicon = make_lexicon()
    with torch.no_grad():
        network.novel.output.bias[0] += 2.0  # short words, so that few strings are most of the mass
        history = np.array([2, UNK_ID, 3])
        total = 0.0
        words = [*strings(up_to), "\n"]
        for word in words:
            ids = np.append(history, lexicon.lexeme_id(word)).astype(np.int64)
            novel = ["ba"] + [word] * int(ids[-1] == UNK_ID)
            lm, spelling = network.score([ids], spell(novel))[0]
            total += math.exp(-lm[-1] - spelling[-1])
        inputs = torch.tensor([EOS_ID, *history])[:, None]
        hidden, _ = network.lm(inputs, network.lm.zero_state(1))
        h = hidden.states[-1]
        p_unk = network.lm.table.log_probs(h)[0, UNK_ID].exp().item()
        known = network.novel.nats(h.expand(4, -1), spell(list(LEXEMES[2:]))).neg().exp().sum()
        short = [*strings(up_to)]
        longer = 1 - network.novel.nats(h.expand(len(short), -1), spell(short)).neg().exp().sum()
    assert p_unk * float(known) > 1e-3 and float(longer) < 0.05
    assert total + p_unk * float(longer) == pytest.approx(1 - p_unk * float(known), abs=1e-5)


@pytest.mark.parametrize("window", [1, 7, 70, 10_000])
def test_windows_and_batches_do_not_change_scores(window: int) -> None:
    network = make_network()
    rng = np.random.default_rng(0)
    ids = rng.integers(0, len(LEXEMES), 900)
    words = ["".join(rng.choice(list("ab◇"), rng.integers(0, 9))) for _ in range((ids == 0).sum())]
    reference = network.score([ids], spell(words), cells=300)[0]
    scores = network.score([ids], spell(words), cells=window)[0]
    for mine, theirs in zip(scores, reference, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_later_token_changes_no_earlier_score() -> None:
    network = make_network()
    ids = np.array([2, 0, 3, 1, 4, 0])
    first = network.score([ids], spell(["b", "ba"]))[0]
    other = network.score([np.array([2, 0, 3, 1, 5, 1])], spell(["b"]))[0]
    np.testing.assert_allclose(first[0][:4], other[0][:4], rtol=1e-6)
    np.testing.assert_allclose(first[1][:4], other[1][:4], rtol=1e-6)


def make_trainer(type_ids: np.ndarray, network: TwoLevel, **objective: object) -> Trainer:
    recipe = Recipe(
        "toy", "", windows=WindowConfig(rails=2, window=5, window_spread=0, short_windows=0),
        lm=network.lm.config, speller=network.novel.config,
        objective=replace(ObjectiveConfig(), **{"alpha": 0.0, "beta": 0.0, **objective}),
    )  # fmt: skip
    return Trainer(recipe, network, make_lexicon(), type_ids, seed=0, plan=Plan.of(10))


def gradients(network: TwoLevel) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


def test_the_gradient_of_a_step_is_that_of_the_objective_divided_by_the_tokens() -> None:
    """Per step: (LM + novel nats)/(T·B) + K·n_batches/N·Σ sampled lexicon nats + ‖W‖*/N."""
    network = make_network(
        drop_embed=0, drop_input=0, drop_hidden=0, drop_output=0, drop_recurrent=0
    )
    network.novel.config = replace(network.novel.config, drop=0.0, drop_vector=0.0)
    types = np.array([2, 6, 3, 0, 1, 7, 4, 5, 2, 8, 1], dtype=np.int32)
    trainer = make_trainer(types, network, lexicon_interval=4, lexicon_batch=2)
    n = len(types)
    window = trainer.rails.window(0, 0)
    trainer._window_backward(window)
    trainer._lexicon_backward()
    found = gradients(network)
    network.zero_grad()

    inputs, targets = torch.from_numpy(window.inputs), torch.from_numpy(window.targets)
    hidden, _ = network.lm(inputs, network.lm.zero_state(2))
    h = hidden.states.flatten(0, 1)
    lm = torch.nn.functional.nll_loss(
        network.lm.table.log_probs(h), targets.flatten(), reduction="sum"
    )
    all_types = make_lexicon().types
    novel = network.novel.nats(h[window.novel], spell([all_types[i] for i in window.novel_types]))
    assert len(window.novel) >= 2 and UNK_ID in window.targets
    lexemes = trainer.sampler.batch(0)
    assert trainer.sampler.n_batches == 2
    lexical = network.novel.nats(
        network.lm.table.embeddings()[lexemes], spell([all_types[i] for i in lexemes])
    )
    loss = (lm + novel.sum()) / targets.numel()
    loss = loss + 4 * 2 / n * lexical.sum() + network.novel.nuclear_norm() / n
    loss.backward()
    for name, expected in gradients(network).items():
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("batch", [1, 3, 4, 7, 100])
def test_the_mean_over_one_pass_of_the_sampler_is_the_full_lexicon_factor(batch: int) -> None:
    network, lexicon = make_network(), make_lexicon()
    sampler = LexiconSampler(lexicon, batch, max_length=20, seed=3)
    spellings = lexicon.spellings()
    full = network.lexicon_nats(sampler.eligible, spellings.take(sampler.eligible), None)
    assert sampler.eligible.tolist() == [2, 3, 4, 5]
    for walk in range(2):
        estimates, seen = [], []
        for number in range(walk * sampler.n_batches, (walk + 1) * sampler.n_batches):
            ids = sampler.batch(number)
            seen += ids.tolist()
            nats = network.lexicon_nats(ids, spellings.take(ids), None)
            estimates.append(sampler.n_batches * nats.item())
        assert sorted(seen) == [2, 3, 4, 5], "one pass is every eligible lexeme once"
        assert np.mean(estimates) == pytest.approx(full.item(), rel=1e-5)


def test_long_spellings_are_left_out_of_the_lexicon_factor_only() -> None:
    lexicon = make_lexicon()
    assert LexiconSampler(lexicon, 2, max_length=2, seed=0).eligible.tolist() == [2, 3, 4]
    empty = LexiconSampler(lexicon, 2, max_length=0, seed=0)
    assert empty.n_batches == 0


def test_joint_and_separate_clipping() -> None:
    for separate in (False, True):
        network = make_network()
        trainer = make_trainer(np.array([2, 6, 3, 7, 1] * 4, np.int32), network)
        training = replace(trainer.recipe.training, clip=1e-3, clip_separately=separate)
        trainer.recipe = replace(trainer.recipe, training=training)
        trainer._window_backward(trainer.rails.window(0, 0))
        trainer._clip()
        norms = {
            part: torch.stack(
                [g.norm() for n, g in gradients(network).items() if n.startswith("lm.") == is_lm]
            ).norm().item()
            for part, is_lm in (("lm", True), ("speller", False))
        }  # fmt: skip
        joint = math.hypot(norms["lm"], norms["speller"])
        if separate:
            assert norms == {k: pytest.approx(1e-3, rel=1e-4) for k in norms}
        else:
            assert joint == pytest.approx(1e-3, rel=1e-4)
        line = trainer.report(5.0)
        assert line["clip"] == ("separate" if separate else "joint")


@pytest.mark.parametrize("n_tokens", [1, 2, 11, 40, 41, 97])
def test_rails_cover_every_token(n_tokens: int) -> None:
    """Every token is a target, and its input is the token before it, or EOS at the beginning."""
    ids = np.arange(10, 10 + n_tokens, dtype=np.int32)
    rails = Rails(ids, 10_000, WindowConfig(rails=4, window=7), seed=1)
    seen = set()
    for epoch in range(2):
        n_windows = len(rails.cuts(epoch)) - 1
        for i in range(n_windows):
            window = rails.window(epoch, i)
            for a, b in zip(window.inputs.ravel(), window.targets.ravel(), strict=True):
                assert a == (b - 1 if b > 10 else EOS_ID)
                seen.add(int(b))
    assert seen == set(ids.tolist())


def test_window_lengths_are_those_of_the_paper() -> None:
    cuts = np.array(window_cuts(1_000_000, WindowConfig(), [0]))
    lengths = np.diff(cuts)[:-1]
    assert lengths.max() <= 80 and lengths.min() >= 5
    short = lengths < 52
    assert 0.03 < short.mean() < 0.07
    assert abs(lengths[~short].mean() - 70) < 0.5 and abs(lengths[short].mean() - 35) < 1.5


def test_unspelled_tokens_are_unk_without_spelling() -> None:
    rails = Rails(np.array([2, 0, 7, 1], np.int32), 6, WindowConfig(rails=1, window=4), seed=0)
    window = rails.window(0, 0)
    assert window.targets[:, 0].tolist() == [2, 0, 0, 1]
    assert window.inputs[:, 0].tolist() == [1, 2, 0, 0]
    assert window.novel.tolist() == [2] and window.novel_types.tolist() == [7]


def test_rare_lexemes_are_spelled_from_the_states_before_them() -> None:
    types = np.array([2, 6, 3, 5, 1, 4, 8, 5, 0, 5], np.int32)
    counts = make_lexicon().counts
    plain = make_trainer(types, make_network())
    trainer = make_trainer(types, make_network(), spell_rare=int(counts[4]))
    n_lexemes = trainer.network.n_ids
    rare = {t for t in range(2, n_lexemes) if counts[t] <= counts[4]}
    assert rare and len(rare) < n_lexemes - 2, "some are, some are not"
    window = trainer.rails.window(0, 0)
    flat = window.targets.ravel()
    assert [int(t) for t in flat[window.rare]] == [int(t) for t in flat if int(t) in rare]
    assert not len(plain.rails.window(0, 0).rare)
    with torch.no_grad():
        found, _ = trainer.network.window_nats(window, trainer.spellings, trainer.state, None)
        without, _ = plain.network.window_nats(
            plain.rails.window(0, 0), plain.spellings, plain.state, None
        )
        states = found.hidden.states.flatten(0, 1)[torch.from_numpy(window.rare)]
        alone = trainer.network.novel.nats(states, trainer.spellings.take(flat[window.rare]))
    assert float(found.lm) == pytest.approx(float(without.lm))
    assert float(found.novel) == pytest.approx(float(without.novel)), "the score is the same"
    assert found.aside is not None
    assert float(found.aside) == pytest.approx(float(alone.sum()), rel=1e-5)
    for each in (plain, trainer):
        each.step(lexicon=False)
    gap = (trainer.network.novel.output.weight - plain.network.novel.output.weight).abs().max()
    assert float(gap.detach()) > 0, "and they are learned from"


def test_rare_lexemes_are_spelled_about_so_often_in_a_pass() -> None:
    rng = np.random.default_rng(0)
    types = rng.choice([1, 2, 3, 4, 5], 4000, p=[0.1, 0.4, 0.3, 0.15, 0.05]).astype(np.int32)
    share = np.array([0.0, 0.0, 0.0, 0.1, 1.0, 0.5])
    rails = Rails(types, 6, WindowConfig(rails=4, window=20, window_spread=0), 1, share)
    seen, spelled = np.zeros(6), np.zeros(6)
    for epoch in range(3):
        for i in range(len(rails.cuts(epoch)) - 1):
            window = rails.window(epoch, i)
            flat = window.targets.ravel()
            seen += np.bincount(flat, minlength=6)
            spelled += np.bincount(flat[window.rare], minlength=6)
            np.testing.assert_array_equal(rails.window(epoch, i).rare, window.rare)
    found = spelled / np.maximum(seen, 1)
    assert (found[[0, 1, 2]] == 0).all() and found[4] == 1
    assert abs(found[3] - 0.1) < 0.02 and abs(found[5] - 0.5) < 0.07


def test_lexemes_that_are_held_out_are_never_spelled() -> None:
    lexicon = make_lexicon()
    gone = set(np.flatnonzero(lexicon.unspelled(0.5)).tolist())
    spelled = set(range(2, lexicon.n_lexemes)) - gone
    assert gone and spelled
    types = np.array([2, 6, 3, 5, 1, 4, 8, 5, 0, 5], np.int32)
    trainer = make_trainer(types, make_network(), spell_rare=99, unspelled=0.5)
    assert set(trainer.sampler.eligible.tolist()) == spelled
    window = trainer.rails.window(0, 0)
    assert set(window.targets.ravel()[window.rare].tolist()) == spelled & set(types.tolist())
    every, some = (
        count_all(types, lexicon, NgramConfig(order=2, spelling_order=9), share).spellings
        for share in (0.0, 0.5)
    )
    spellings = lexicon.spellings()
    for i in gone:
        whole = [0, *spellings[i].tolist(), 0]
        before = np.full((every.reach, 1), -1)
        p = [m.probabilities(np.array(whole)[:, None], before)[0] for m in (every, some)]
        assert p[1][1:].prod() < p[0][1:].prod(), lexicon.types[i]


def test_shared_spellers_are_saved_once() -> None:
    network = make_network()
    names = [name for name, _ in network.named_parameters()]
    assert len(names) == len(set(names)) and not any(n.startswith("lexicon.") for n in names)
    assert network.spellers == [network.novel]
    assert len(ALPHABET) == 4


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_proximal_steps_lower_the_rank_under_either_optimiser(optimizer: str) -> None:
    ranks = {}
    for weight in (0.0, 30.0):
        network = make_network()
        types = np.array([2, 6, 3, 7, 1, 4, 8, 5] * 20, np.int32)
        trainer = make_trainer(types, network, proximal=True, nuclear_norm=weight)
        rate = 1.0 if optimizer == "sgd" else 0.01
        training = replace(trainer.recipe.training, optimizer=optimizer, learning_rate=rate)
        trainer = Trainer(
            replace(trainer.recipe, training=training),
            network,
            make_lexicon(),
            types,
            0,
            Plan.of(40),
        )
        for _ in range(40):
            trainer.step()
        ranks[weight] = sum(network.novel.ranks())
    assert ranks[30.0] < ranks[0.0] == 20, "true zeros among the singular values"


def test_the_softmax_starts_from_the_frequencies_of_all_that_is_unk() -> None:
    lexicon = make_lexicon()
    config = LexemeLMConfig(n_embed=N_VECTOR, n_hidden=7, n_layers=2, unigram_bias=True)
    speller = make_speller()
    network = TwoLevel(
        LexemeLM(config, lexicon.n_lexemes), lexicon_speller=speller, novel_speller=speller
    )
    network.initialise(0, lexicon)
    log_probs = network.lm.table.log_probs(torch.zeros(1, N_VECTOR))[0]
    n = lexicon.n_lexemes
    unk = lexicon.counts[UNK_ID] + lexicon.counts[n:].sum() + 0.5
    expected = unk / (lexicon.counts.sum() + 0.5 * n)
    assert log_probs[UNK_ID].exp().item() == pytest.approx(expected, rel=1e-5)


def test_novel_words_need_a_speller() -> None:
    network = make_network()
    network.novel = None
    assert len(network.score([np.array([2, 1])], spell([]))[0][0]) == 2
    with pytest.raises(ValueError, match="speller"):
        network.score([np.array([2, 0])], spell(["b"]))
