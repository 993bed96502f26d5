"""Every system of the paper on the toy world: probabilities add up, ablations are what they say."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spellonce import configuration, ngrams, recipes
from spellonce.batching import Rails, Window, WindowConfig
from spellonce.configuration import Recipe
from spellonce.feedback import CompositionConfig
from spellonce.hclm import HCLM, HCLMConfig
from spellonce.lexeme_lm import LexemeLMConfig
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID
from spellonce.mixture import Counted, NgramConfig, count_all
from spellonce.model import Model
from spellonce.network import Dice, Network
from spellonce.ngrams import Ngrams
from spellonce.noise import Noise
from spellonce.plan import Plan
from spellonce.speller import Speller, SpellerConfig
from spellonce.spellers import OnlyAtTest
from spellonce.systems import SYSTEMS, BPEConfig
from spellonce.text import TextFormat
from spellonce.trainer import Trainer
from spellonce.transformer_lm import TransformerConfig
from spellonce.two_level import TwoLevel
from spellonce.unit_lm import UnitLM
from spellonce.word_cache import follow

from .toy import ALPHABET, make_lexicon, spell, strings

NO_DROPOUT = {f"drop_{name}": 0.0 for name in ("embed", "input", "hidden", "output", "recurrent")}
LM = LexemeLMConfig(n_embed=5, n_hidden=7, n_layers=2, **NO_DROPOUT)  # type: ignore[arg-type]
TWO_LEVEL = ["full", "no-reg", "only-reg", "sep-reg", "1gram", "uncond", "full-feedback",
             "full-transformer", "composed", "mixed", "mixed-composed", "mixed-recall",
             "composed-recall"]  # fmt: skip
ALL = [*TWO_LEVEL, "pure-char", "pure-char-untied", "pure-bpe", "hclm", "hclm-cache"]
HISTORY = ["ab", "ba", "\n", "ab", "b", "ba"]
TYPES = np.array([2, 6, 3, 7, 1, 4, 8, 5, 0, 2, 6, 1] * 5, np.int32)


def toy_recipe(name: str, cuts: tuple[int, ...] = ()) -> Recipe:
    system = {"hclm-cache": "hclm", "pure-char-untied": "pure-char"}.get(name, name)
    system = system.removesuffix("-recall")
    return Recipe(
        name, "", system=system,
        windows=WindowConfig(rails=2, window=5, window_spread=0, short_windows=0),
        lm=replace(LM, tied="untied" not in name, reach=3 * ("recall" in name), cuts=cuts),
        transformer=TransformerConfig(
            n_embed=6, n_feed=8, n_layers=2, n_heads=2, reach=4, drop=0.0, drop_output=0.0
        ),
        hclm=HCLMConfig(n_char_embed=3, slots=3 if name == "hclm-cache" else 0),
        bpe=BPEConfig(merges=2),
        ngrams=NgramConfig(order=3, spelling_order=3),
        composition=CompositionConfig(n_char_embed=3, n_filters=4, widths=(1, 3)),
        speller=SpellerConfig(n_char_embed=3, n_hidden=6, n_layers=2, drop=0.0, drop_vector=0.0),
    )  # fmt: skip


def make(
    name: str,
    seed: int = 0,
    cuts: tuple[int, ...] = (),
    fields: Mapping[str, Any] | None = None,
) -> Network:
    recipe, lexicon = replace(toy_recipe(name, cuts), **(fields or {})), make_lexicon()
    units = recipes.make_units(recipe, lexicon)
    counted = count_all(TYPES, lexicon, recipe.ngrams)
    network = recipes.build_model(recipe, lexicon, units, counted)
    network.initialise(seed, lexicon)
    with torch.no_grad():  # away from symmetric beginnings
        generator = torch.Generator().manual_seed(seed + 1)
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return network


def make_trainer(name: str, network: Network | None = None, **objective: object) -> Trainer:
    recipe = toy_recipe(name)
    recipe = replace(
        recipe,
        objective=replace(recipe.objective, **{"alpha": 0.0, "beta": 0.0, **objective}),
        training=replace(recipe.training, optimizer="adam", learning_rate=0.01),
    )
    network = network or make(name)
    ids = stream(network, TYPES)
    return Trainer(recipe, network, make_lexicon(), ids, seed=0, plan=Plan.of(100))


def shorten(network: Network) -> None:
    """Makes short words likely, so that few strings are most of the mass."""
    with torch.no_grad():
        if isinstance(network, UnitLM):
            ends = torch.from_numpy(network.units.ends_word())
            network.lm.table.biases[0][ends] += 3.0
        elif isinstance(network, HCLM):
            network.decoder.output.bias[0] += 3.0
        else:
            for speller in network.spellers:
                inner = getattr(speller, "speller", speller)
                bias = inner.logits if hasattr(inner, "logits") else inner.output.bias
                bias[0] += 3.0


def mass(network: Network, words: list[str], history: list[str] | None = None) -> float:
    """Σ p(word | history), each scored as the end of a text of its own."""
    lexicon = make_lexicon()
    history = HISTORY if history is None else history
    total = 0.0
    for word in words:
        lm, spelling = network.score_tokens(lexicon, [*history, word])
        total += math.exp(-lm[-1] - spelling[-1])
    return total


@pytest.mark.parametrize("history", [HISTORY, [], ["\n"]], ids=["words", "nothing", "eos"])
@pytest.mark.parametrize("name", ["pure-char", "pure-char-untied", "hclm", "hclm-cache"])
def test_probabilities_of_all_words_add_up_to_one(name: str, history: list[str]) -> None:
    """All strings up to five characters and EOS; what is longer is bounded by what is that long."""
    network = make(name)
    shorten(network)
    words = strings(5)
    total = mass(network, [*words, "\n"], history)
    longest = mass(network, [w for w in words if len(w) == 5], history)
    assert total <= 1 + 1e-5
    assert total > 1 - max(3 * longest, 1e-4)
    assert longest < 0.02


def test_probabilities_of_canonical_segmentations_add_up_to_less() -> None:
    network = make("pure-bpe")
    shorten(network)
    words = [w for w in strings(5) if w]
    assert isinstance(network, UnitLM) and network.units.merges
    total = mass(network, [*words, "\n"])
    assert 0.5 < total < 1 - 1e-3


@pytest.mark.parametrize("name", TWO_LEVEL)
def test_two_level_systems_lose_the_double_route_and_nothing_else(name: str) -> None:
    """Σ_s p(s) + p(UNK)·(Σ_w p_spell(σ(w)|h) + Σ_longer) = 1."""
    network, lexicon = make(name), make_lexicon()
    assert isinstance(network, TwoLevel)
    shorten(network)
    short = strings(5)
    total = mass(network, [*short, "\n"])
    moment = network.begin(lexicon, HISTORY)
    with torch.no_grad():
        p_unk = network.lexeme_log_probs(moment)[0, UNK_ID].exp().item()
        speller = network.novel
        known = [lexicon.types[i] for i in range(2, lexicon.n_lexemes)]
        masses = [
            float(speller.nats(moment.hidden.expand(len(ws), -1), spell(ws)).neg().exp().sum())
            for ws in (known, short)
        ]
    assert total + p_unk * (masses[0] + 1 - masses[1]) == pytest.approx(1, abs=1e-5)
    assert p_unk * masses[0] > 1e-4


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8)
@given(texts=st.lists(st.lists(st.sampled_from(["a", "ab", "bb", "ba", "a◇", "\n"]), max_size=9),
                      max_size=5))  # fmt: skip
def test_texts_side_by_side_are_scored_as_each_alone(name: str, texts: list[list[str]]) -> None:
    network, lexicon = make(name), make_lexicon()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spellonce.streams.SIDE_BY_SIDE", 3)
        together = network.score_texts(lexicon, texts)
    assert len(together) == len(texts)
    for text, found in zip(texts, together, strict=True):
        for mine, alone in zip(found, network.score_tokens(lexicon, text), strict=True):
            assert len(mine) == len(text)
            np.testing.assert_allclose(mine, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_windows_do_not_change_scores_nor_does_reading_step_by_step(name: str) -> None:
    """Scoring a text at once equals predicting it token by token, state in hand."""
    network, lexicon = make(name), make_lexicon()
    rng = np.random.default_rng(1)
    words = ["a", "ab", "bb", "aab", "b", "ba", "a◇", "bab", "\n"]
    tokens = [words[i] for i in rng.integers(0, len(words), 60)]
    lm, spelling = network.score_tokens(lexicon, tokens)
    if isinstance(network, HCLM | UnitLM):
        again = network.score_texts(lexicon, [tokens], cells=7)[0][0]
    else:
        ids, spelled = _encoded(tokens)
        again = network.score([ids], spelled, cells=7)[0][0]
    np.testing.assert_allclose(again, lm, rtol=1e-4, atol=1e-5)
    moment = network.begin(lexicon, [])
    for i, token in enumerate(tokens[:20]):
        at_once = network.begin(lexicon, tokens[:i])
        torch.testing.assert_close(moment.hidden, at_once.hidden, rtol=1e-4, atol=1e-5)
        moment = network.advance(lexicon, moment, token)
    assert np.isfinite(lm + spelling).all() and ((lm + spelling) > 0).all()


def _encoded(tokens: list[str]) -> tuple[np.ndarray, object]:
    ids, _ = make_lexicon().encode(tokens)
    return ids, spell([tokens[i] for i in np.flatnonzero(ids == UNK_ID)])


def stream(network: Network, types: np.ndarray) -> np.ndarray:
    """Type ids, or unit ids where the network reads units."""
    if not isinstance(network, UnitLM):
        return types
    names = make_lexicon().types
    parts = [[i] if i < 2 else network.units.segment(names[i]) for i in types.tolist()]
    return np.array([unit for part in parts for unit in part], np.int32)


def window_sum(network: Network, types: np.ndarray) -> float:
    """What one long window costs."""
    config = WindowConfig(rails=1, window=500, window_max=500)
    rails = Rails(stream(network, types), network.n_ids, config, 0)
    window = rails.window(0, 0)
    spellings = make_lexicon().spellings()
    with torch.no_grad():
        nats, _ = network.window_nats(window, spellings, network.zero_state(1), None)
    return float(nats.lm + nats.novel)


@pytest.mark.parametrize("name", ALL)
def test_a_window_costs_what_its_tokens_score(name: str) -> None:
    """Training and scoring agree: without dropout, the sum of a window is that of its tokens."""
    network = make(name)
    lexicon = make_lexicon()
    types = TYPES[TYPES != UNK_ID]
    expected = network.score_tokens(lexicon, [lexicon.types[t] for t in types.tolist()])
    if name == "only-reg":
        assert isinstance(network, TwoLevel)
        network.novel = network.lexicon  # which costs nothing while it trains
    with pytest.MonkeyPatch.context() as patch:
        counts = Ngrams.probabilities  # what was counted is left out while it trains
        patch.setattr(Ngrams, "probabilities", lambda *args, left_out=False: counts(*args))
        found = window_sum(network, types)
    assert found == pytest.approx(sum(map(np.sum, expected)), rel=1e-4)
    if "mixed" in name:
        assert window_sum(network, types) != found


@pytest.mark.parametrize("name", ["pure-char", "pure-bpe", "hclm", "hclm-cache"])
def test_a_word_that_nobody_knows_is_read_but_not_predicted(name: str) -> None:
    network = make(name)
    known = np.array([2, 6, 3], np.int32)
    assert window_sum(network, np.append(known, 0).astype(np.int32)) == pytest.approx(
        window_sum(network, known), rel=1e-5
    )


@pytest.mark.parametrize("name", ALL)
def test_all_systems_train(name: str) -> None:
    trainer = make_trainer(name, lexicon_interval=2, lexicon_batch=2)
    first = trainer.step() or trainer.report(1.0)["train_bpc"]
    for _ in range(60):
        trainer.step()
    trainer.report(1.0)
    for _ in range(10):
        trainer.step()
    assert trainer.report(1.0)["train_bpc"] < first
    lexicon = make_lexicon()
    assert trainer.has_lexicon_factor == (name in set(TWO_LEVEL) - {"no-reg"})
    assert np.isfinite(trainer.network.score_tokens(lexicon, HISTORY)[0]).all()


@pytest.mark.parametrize("name", ALL)
def test_all_systems_write_and_spell(name: str) -> None:
    config = {"seed": 0, "data": {"name": "toy", "splits": {}}}
    model = Model(make(name), make_lexicon(), toy_recipe(name), TextFormat("spaces"), config)
    sample = model.sample(40, temperature=1.0, seed=2)
    assert len(sample.pieces) == 40 and sample == model.sample(40, temperature=1.0, seed=2)
    assert sample != model.sample(40, temperature=1.0, seed=3)
    words = model.spell(context="ab ba", n=5)
    assert 1 <= len(words) <= 5 and all(words)
    result = model.evaluate(["ab ba a\n", "zz b\n"])
    assert result["bpc"] > 0 and (result["bpc_lm"] is None) == (name not in TWO_LEVEL)


@pytest.mark.parametrize("history", [["ab"], HISTORY], ids=["one", "many"])
@pytest.mark.parametrize("name", ["pure-char", "pure-bpe", "hclm", "hclm-cache"])
def test_tokens_are_drawn_as_they_are_scored(name: str, history: list[str]) -> None:
    """Shares of 1500 draws against probabilities; the empty word is never accepted."""
    network, lexicon = make(name), make_lexicon()
    shorten(network)
    moment = network.begin(lexicon, history)
    dice = Dice(1.0, torch.Generator().manual_seed(0))
    n = 1500
    drawn = [network.next_token(lexicon, moment, dice, bool) for _ in range(n)]
    p = {
        word: math.exp(-network.score_tokens(lexicon, [*history, word])[0][-1])
        for word in ("\n", "a", "b", "ab", *([] if name == "pure-bpe" else [""]))
    }
    # Of what is drawn again when the word is empty, the units' draw may be EOS, HCLM's is a word.
    again = p.pop("", 0.0)
    scale = dict.fromkeys(p, 1 - again)
    if isinstance(network, HCLM):
        scale = dict.fromkeys(p, 1 - again / (1 - p["\n"])) | {"\n": 1.0}
    for word, probability in p.items():
        expected = probability / scale[word]
        error = (expected * (1 - expected) / n) ** 0.5
        assert abs(drawn.count(word) / n - expected) < 4.5 * error + 0.002, word


@pytest.mark.parametrize("name", ALL)
def test_rails_do_not_touch_each_other(name: str) -> None:
    """Three rails over four windows cost what each of them costs alone."""
    network = make(name)
    spellings = make_lexicon().spellings()
    ids = stream(network, np.tile(TYPES, 3))
    length = len(ids) // 3
    columns = np.stack([np.roll(ids, -7 * i)[:length] for i in range(3)], 1)  # (T, 3)

    def cost(rails: list[int]) -> float:
        state, total = network.zero_state(len(rails)), 0.0
        n = network.n_ids
        for part in np.array_split(np.arange(1, length), 4):
            before, types = columns[part - 1][:, rails], columns[part][:, rails]
            flat = types.ravel()
            novel = np.flatnonzero(flat >= n)
            window = Window(
                np.where(before < n, before, UNK_ID).astype(np.int64),
                np.where(types < n, types, UNK_ID).astype(np.int64), novel, flat[novel], novel[:0],
                novel[:0], np.zeros_like(types),
            )  # fmt: skip
            with torch.no_grad():
                nats, state = network.window_nats(window, spellings, state, None)
            total += float(nats.lm + nats.novel)
        return total

    alone = [cost([rail]) for rail in range(3)]
    assert len({round(x, 3) for x in alone}) == 3
    assert cost([0, 1, 2]) == pytest.approx(sum(alone), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_every_system_can_be_continued_from_a_checkpoint(name: str) -> None:
    """Weights, state and a plan that was corrected on the way: to the last bit."""

    def fresh() -> Trainer:
        return make_trainer(name, lexicon_interval=2, lexicon_batch=2)

    whole = fresh()
    for step in range(14):
        if step == 3:
            whole.plan = whole.plan.revised(3, 40)
        if step == 6:
            tensors = {n: t.clone() for n, t in whole.tensors().items()}
            state = json.loads(json.dumps(whole.state_dict()))
        whole.step()
    again = fresh()
    again.restore(tensors, state)
    assert again.plan.marks == ((0, 100), (3, 40))
    while again.cursor.step < 14:
        again.step()
    for parameter, found in again.parameters.items():
        assert torch.equal(found, whole.parameters[parameter]), parameter


# --- ablations ------------------------------------------------------------------------------------


def gradients(trainer: Trainer, *, lexicon: bool) -> dict[str, Tensor]:
    trainer.network.zero_grad()
    trainer._window_backward(trainer.rails.window(0, 0))
    if lexicon:
        trainer._lexicon_backward()
    return {n: p.grad for n, p in trainer.network.named_parameters() if p.grad is not None}


def copy_weights(source: TwoLevel, target: TwoLevel) -> None:
    target.lm.load_state_dict(source.lm.state_dict())
    for speller in target.spellers:
        speller.load_state_dict(source.novel.state_dict())


def test_no_reg_is_full_without_factor_2_gradient_by_gradient() -> None:
    full, no_reg = make("full"), make("no-reg")
    copy_weights(full, no_reg)
    mine = gradients(make_trainer("full", full), lexicon=False)
    theirs = gradients(make_trainer("no-reg", no_reg), lexicon=False)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=0, msg=name)
    assert not make_trainer("no-reg").has_lexicon_factor


def test_sep_reg_with_tied_spellers_is_full() -> None:
    """Two spellers with the same weights: the gradients of the one are the sum of the two's."""
    full, sep = make("full"), make("sep-reg")
    copy_weights(full, sep)
    mine = gradients(make_trainer("full", full, nuclear_norm=0.0), lexicon=True)
    theirs = gradients(make_trainer("sep-reg", sep, nuclear_norm=0.0), lexicon=True)
    for name, expected in mine.items():
        found = theirs[name]
        if name.startswith("novel."):
            found = found + theirs[name.replace("novel.", "lexicon.")]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7, msg=name)
    tied = TwoLevel(sep.lm, lexicon_speller=sep.novel, novel_speller=sep.novel)
    again = gradients(make_trainer("full", tied, nuclear_norm=0.0), lexicon=True)
    for name, expected in mine.items():
        torch.testing.assert_close(again[name], expected, rtol=0, atol=0, msg=name)


def test_only_reg_learns_from_the_lexicon_alone_but_scores_as_full() -> None:
    full, only = make("full"), make("only-reg")
    only.lm.load_state_dict(full.lm.state_dict())
    only.lexicon.load_state_dict(full.novel.state_dict())
    tokens = ["ab", "ba", "b", "\n"]
    for a, b in zip(
        full.score_tokens(make_lexicon(), tokens), only.score_tokens(make_lexicon(), tokens),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(a, b)
    trainer = make_trainer("only-reg", only, nuclear_norm=0.0)
    assert not any("speller" in n for n in gradients(trainer, lexicon=False))
    with_lexicon = gradients(trainer, lexicon=True)
    assert any(float(g.abs().sum()) > 0 for n, g in with_lexicon.items() if not n.startswith("lm."))
    assert isinstance(only.novel, OnlyAtTest)


def test_uncond_and_1gram_do_not_change_with_the_vector() -> None:
    for name in ("uncond", "1gram"):
        speller = make(name).novel
        a, b = (speller.nats(torch.randn(3, 5), spell(["a", "bb", ""])) for _ in range(2))
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        words = [
            speller.sample(torch.randn(20, 5), torch.Generator().manual_seed(0), 1.0, 9)
            for _ in range(2)
        ]
        assert words[0] == words[1]
    speller = make("full").novel
    a, b = (speller.nats(torch.randn(3, 5), spell(["a", "bb", ""])) for _ in range(2))
    assert not torch.allclose(a, b)


# --- the paper's asides ---------------------------------------------------------------------------


def test_the_lexicon_factor_may_be_about_hapax_legomena_only() -> None:
    lexicon = replace(make_lexicon(), counts=np.array([0, 9, 5, 3, 1, 1, 1, 1, 1]))
    recipe = toy_recipe("full")
    recipe = replace(recipe, objective=replace(recipe.objective, lexicon_types="hapax"))
    trainer = Trainer(recipe, make("full"), lexicon, TYPES, 0, Plan.of(9))
    assert trainer.sampler.eligible.tolist() == [4, 5]


def test_l2_instead_of_the_nuclear_norm() -> None:
    trainer = make_trainer("full", nuclear_norm=3.0, speller_norm="l2")
    speller = trainer.network.novel
    expected = speller.gate_blocks().square().sum()
    torch.testing.assert_close(trainer._speller_norm(), expected)
    with pytest.raises(recipes.ConfigError, match="proximal"):
        make_trainer("full", speller_norm="l2", proximal=True)


def test_both_spellers_of_sep_reg_have_the_norm() -> None:
    trainer = make_trainer("sep-reg")
    network = trainer.network
    expected = network.novel.nuclear_norm() + network.lexicon.nuclear_norm()
    torch.testing.assert_close(trainer._speller_norm(), expected)


def test_feedback_feeds_how_a_word_was_spelled() -> None:
    """After a novel word, the future depends on its spelling; with e(UNK) it does not."""
    lexicon = make_lexicon()
    for name in TWO_LEVEL:
        differs = "feedback" in name or "composed" in name
        network = make(name)
        a, b = (network.score_tokens(lexicon, [word, "ab", "a"]) for word in ("ba", "b"))
        assert np.allclose(a[0][1:], b[0][1:]) != differs
        assert np.allclose(a[0][0], b[0][0])


def test_feedback_reaches_the_speller_with_gradients() -> None:
    """Of the lexeme part alone: what is spelled now changes what can be summoned later."""
    network = make("full-feedback")
    trainer = make_trainer("full-feedback", network)
    window = trainer.rails.window(0, 0)
    nats, _ = network.window_nats(window, trainer.spellings, trainer.state, None)
    nats.lm.backward()
    for name in ("feedback.map.weight", "novel.layers.0.weight_hh", "novel.characters"):
        gradient = dict(network.named_parameters())[name].grad
        assert gradient is not None and float(gradient.abs().sum()) > 0, name


@pytest.mark.parametrize("vocab_size", [0, 1])
def test_a_vocabulary_of_unk_and_eos(vocab_size: int) -> None:
    network = recipes.build_model(toy_recipe("full"), make_lexicon(2))
    network.initialise(0, make_lexicon())
    lm, spelling = network.score_tokens(make_lexicon(2), ["ab", "\n"])
    assert spelling[0] > 0 and spelling[1] == 0 and (lm > 0).all()


def segmentations(network: UnitLM, word: str) -> Iterator[list[int]]:
    """All ways to write a word in units, by brute force."""
    ends = network.units.ends_word()

    def extend(at: int, ids: list[int]) -> Iterator[list[int]]:
        for unit in range(2, len(network.units)):
            piece = network.units.spelling(unit)
            if not word.startswith(piece, at):
                continue
            stop = at + len(piece)
            if ends[unit]:
                if stop == len(word):
                    yield [*ids, unit]
            elif piece and stop < len(word) + (network.units.kind == "characters"):
                yield from extend(stop, [*ids, unit])

    yield from extend(0, [])


def test_importance_sampling_finds_the_mass_of_all_segmentations() -> None:
    network, lexicon = make("pure-bpe"), make_lexicon()
    assert isinstance(network, UnitLM)
    tokens = ["ab", "aab", "\n", "abab"]
    units, _ = network._segments(lexicon, tokens[:3])
    exact = 0.0
    found = list(segmentations(network, "abab"))
    assert len(found) > 1 and network.units.segment("abab") in found
    with torch.no_grad():
        for segment in found:
            ids = np.array([*units, *segment])
            inputs = torch.from_numpy(np.concatenate([[EOS_ID], ids[:-1]]))
            hidden, _ = network.lm(inputs[:, None], network.zero_state(1))
            nats = network._nats(hidden.states[:, 0], inputs, torch.from_numpy(ids))[1]
            exact += math.exp(-float(nats[len(units) :].sum()))
    estimate = network.all_segmentations_nats(lexicon, tokens, [3, 2], n_samples=600, seed=0)
    canonical = network.score_tokens(lexicon, tokens)[0]
    assert estimate[0] == pytest.approx(-math.log(exact), abs=0.03)
    assert estimate[0] < canonical[3]
    assert estimate[1] == pytest.approx(canonical[2], rel=1e-5), "EOS has one segmentation"
    for seed in range(20):  # with any number of draws, the canonical one is there
        few = network.all_segmentations_nats(lexicon, tokens, [0, 1, 3], n_samples=1, seed=seed)
        assert (few <= canonical[[0, 1, 3]] + 1e-5).all()


def test_characters_have_one_segmentation() -> None:
    network, lexicon = make("pure-char"), make_lexicon()
    assert isinstance(network, UnitLM)
    tokens = ["ab", "ba"]
    estimate = network.all_segmentations_nats(lexicon, tokens, [0, 1], n_samples=2, seed=0)
    np.testing.assert_allclose(estimate, network.score_tokens(lexicon, tokens)[0], rtol=1e-4)


# --- HCLM's cache ---------------------------------------------------------------------------------


def test_the_course_of_a_cache_is_that_of_a_plain_simulation() -> None:
    rng = np.random.default_rng(0)
    n_steps, n_slots = 40, 3
    tokens = rng.integers(0, 9, (n_steps, 2))
    words, uses = np.full((2, n_slots), -1), np.full((2, n_slots), -1.0)
    course = follow(tokens, words, uses, 0.9)
    states = rng.normal(size=(2, n_steps, 4))
    carried = np.zeros((2, n_slots, 4))
    keys = np.concatenate(
        [carried, course.blend.astype(float) @ np.concatenate([carried, states], 1)], 1
    )
    for b in range(2):
        slots: list[tuple[int, float, np.ndarray]] = []
        for t in range(n_steps):
            token = int(tokens[t, b])
            live = {tuple(np.round(k, 6)) for k in keys[b, course.live[b, t]]}
            assert live == {tuple(np.round(k, 6)) for _, _, k in slots}
            held = [i for i, (word, _, _) in enumerate(slots) if word == token]
            assert (course.hit[b, t] >= 0) == bool(held)
            if held:
                np.testing.assert_allclose(keys[b, course.hit[b, t]], slots[held[0]][2], atol=1e-6)
            slots = [(word, use * 0.9, key) for word, use, key in slots]
            if token < 2:
                continue
            if held:
                word, use, key = slots[held[0]]
                slots[held[0]] = (word, use + 1, (key + states[b, t]) / 2)
            elif len(slots) < n_slots:
                slots.append((token, 1.0, states[b, t]))
            else:
                least = min(range(n_slots), key=lambda i: slots[i][1])
                slots[least] = (token, 1.0, states[b, t])
        assert sorted(course.words[b].tolist()) == sorted(word for word, _, _ in slots)


def test_a_cached_word_costs_less_when_it_comes_again() -> None:
    network, lexicon = make("hclm-cache"), make_lexicon()
    assert isinstance(network, HCLM) and network.cache is not None
    with torch.no_grad():
        network.cache.gate.bias.fill_(0.0)
    nats = network.score_tokens(lexicon, ["abba◇", "abba◇", "a"])[0]
    assert nats[1] < nats[0] - 1


def test_hclm_reads_every_letter_of_what_came_before() -> None:
    for name in ("hclm", "hclm-cache"):
        network, lexicon = make(name), make_lexicon()
        reference = network.score_tokens(lexicon, ["aab", "b", "a"])[0]
        for changed in (["bab", "b", "a"], ["abb", "b", "a"], ["aaa", "b", "a"]):
            assert abs(network.score_tokens(lexicon, changed)[0][2] - reference[2]) > 1e-6, changed


def test_advancing_fills_the_cache_as_reading_at_once_does() -> None:
    network, lexicon = make("hclm-cache"), make_lexicon()
    tokens = ["ab", "ba", "\n", "ab", "b", "ba", "bb", "ba"]
    moment = network.begin(lexicon, [])
    for token in tokens:
        moment = network.advance(lexicon, moment, token)
    at_once = network.begin(lexicon, tokens)
    for mine, theirs in zip(moment.state[-1], at_once.state[-1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert set(at_once.state[-1][1][0].tolist()) - {-1}, "something is in it"


def test_how_far_the_cache_is_trusted_depends_on_the_state() -> None:
    trainer = make_trainer("hclm-cache")
    for _ in range(4):
        trainer.step()  # until there is something in the cache that comes again
    found = gradients(trainer, lexicon=False)
    for name in ("cache.gate.weight", "cache.query.weight"):
        assert float(found[name].abs().sum()) > 0, name


def test_nothing_is_left_to_chance_at_temperature_zero() -> None:
    network, lexicon = make("hclm-cache"), make_lexicon()
    moment = network.begin(lexicon, HISTORY)
    with torch.no_grad():
        network.cache.gate.bias.fill_(0.3)
    drawn = {
        network.next_token(lexicon, moment, Dice(0.0, torch.Generator().manual_seed(seed)), bool)
        for seed in range(8)
    }
    assert len(drawn) == 1
    early = network.begin(lexicon, ["ab"])
    hot = network.spell(lexicon, early, 50, Dice(1e9, torch.Generator().manual_seed(0)), 5)
    assert len(hot) == 50, "a slot that is empty is never drawn, however hot"


@pytest.mark.parametrize("name", ["composed", "mixed-composed"])
def test_rare_lexemes_are_read_as_if_they_were_novel(name: str) -> None:
    trainer = make_trainer(name, read_rare=1e9)  # all of them, that is
    network, lexicon = trainer.network, trainer.lexicon
    window = trainer.rails.window(0, 0)
    assert set(window.read) == set(np.flatnonzero(window.targets.ravel() >= N_SPECIAL))
    few = make_trainer(name, read_rare=1.0)
    chosen = [len(few.rails.window(epoch, 0).read) for epoch in range(300)]
    counts = lexicon.counts[few.rails.window(0, 0).targets]
    expected = (1 / (1 + counts))[few.rails.window(0, 0).targets >= N_SPECIAL].sum()
    assert np.mean(chosen) == pytest.approx(expected, rel=0.2)

    states = []
    for read in (window.read, window.read[:0]):
        _, state = network.window_nats(
            replace(window, read=read), trainer.spellings, trainer.state, None
        )
        states.append(state)
    novel = window.targets[-1] >= N_SPECIAL
    given = [state[len(state) - 1 - ("mixed" in name)][1][:, 0].tolist() for state in states]
    assert given[0] == (novel | (window.targets[-1] == UNK_ID)).tolist()
    assert not torch.equal(states[0][0][0], states[1][0][0])


def test_what_is_composed_does_not_depend_on_the_words_beside_it() -> None:
    composition = make("composed").feedback
    words = ["a", "ab", "b" * 9, "abbab", "ba" * 40, "a◇"]
    together = composition.vectors(spell(words))
    for word, vector in zip(words, together, strict=True):
        torch.testing.assert_close(composition.vectors(spell([word]))[0], vector)
    assert len({tuple(v.tolist()) for v in together.detach()}) == len(words)


@pytest.mark.parametrize("name", ["full", "composed"])
def test_inputs_are_what_is_read(name: str) -> None:
    network, lexicon = make(name), make_lexicon()
    words = ["ab", "ba", "a", "b" * 7, "\n"]
    inputs = network.inputs_of(lexicon, ["\n", *words])[:, None]
    with torch.no_grad():
        hidden, _ = network.lm.run(inputs, network.lm.zero_state(1))
    torch.testing.assert_close(hidden.states[-1], network.begin(lexicon, words).hidden)


@pytest.mark.parametrize("name", ["hclm", "full-feedback", "composed"])
def test_a_very_long_word_is_read_in_pieces(name: str) -> None:
    network, lexicon = make(name), make_lexicon()
    tokens = ["ab" * 300, "a", "b" * 512, "ab"]
    reference = network.score_tokens(lexicon, tokens)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("speller", "feedback"):
            patch.setattr(f"spellonce.{module}.STEP_WINDOW", 7)
        pieces = network.score_tokens(lexicon, tokens)
    for mine, theirs in zip(pieces, reference, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)


def test_averaged_sgd_averages_all_of_a_system_but_a_speller() -> None:
    for name, averaged in (
        ("full", {"lm"}),
        ("hclm", {"lm", "composer", "decoder", "ends_line"}),
    ):
        recipe = toy_recipe(name)  # its optimiser is the paper's
        trainer = Trainer(recipe, make(name), make_lexicon(), TYPES, seed=0, plan=Plan.of(9))
        trainer.averages.update()
        assert {parameter.split(".")[0] for parameter in trainer.averages.means} == averaged


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, {}) for name in ALL),
        ("mixed", {"ngrams": NgramConfig(order=3, spelling_order=3, complement=0.9)}),
        ("pure-char", {"lm": replace(LM, projected=True)}),
        ("full", {"lm": replace(LM, projected=True, cuts=(3, 5))}),
    ],
    ids=str,
)
def test_products_in_bfloat16_give_nearly_the_same_gradients(
    name: str, fields: dict[str, Any]
) -> None:
    gradients = {}
    for precision in ("float32", "bfloat16"):
        trainer = make_trainer(name, make(name, fields=fields))
        trainer.recipe = replace(
            trainer.recipe,
            training=replace(trainer.recipe.training, precision=precision, clip=1e9),
        )
        trainer.step(lexicon=trainer.has_lexicon_factor)
        assert all(tensor.dtype != torch.bfloat16 for part in trainer.state for tensor in part)
        gradients[precision] = {
            parameter: p.grad.double() for parameter, p in trainer.parameters.items()
            if p.grad is not None
        }  # fmt: skip
    exact, low = gradients["float32"], gradients["bfloat16"]
    assert exact.keys() == low.keys()
    size = torch.cat([g.flatten() for g in exact.values()]).norm()
    wrong = torch.cat([(exact[k] - low[k]).flatten() for k in exact]).norm()
    assert 0 < wrong < 0.02 * size


def test_hclm_has_output_dropout() -> None:
    network = make("hclm")
    network.lm.config = replace(network.lm.config, drop_output=0.5)
    trainer = make_trainer("hclm", network)
    window = trainer.rails.window(0, 0)
    sums = set()
    for seed in range(2):
        nats, _ = network.window_nats(window, trainer.spellings, trainer.state, Noise(seed))
        sums.add(float(nats.lm.detach()))
    assert len(sums) == 2


def test_drawing_a_word_is_as_likely_as_it_scores() -> None:
    """The mixture's distribution over lexemes, by the history in hand, against the scores."""
    network, lexicon = make("mixed"), make_lexicon()
    assert isinstance(network, TwoLevel) and network.mixture is not None
    moment = network.begin(lexicon, HISTORY)
    log_probs = network.lexeme_log_probs(moment)
    assert float(log_probs.exp().sum()) == pytest.approx(1, abs=1e-5)
    for lexeme in range(1, network.n_ids):
        nats = network.score_tokens(lexicon, [*HISTORY, lexicon.types[lexeme]])[0][-1]
        assert float(log_probs[0, lexeme]) == pytest.approx(-nats, abs=1e-5)
    alone = network.lm.table.log_probs(moment.hidden).detach()
    assert float((alone - log_probs).abs().max()) > 0.1, "the counts have their say"


def test_the_lexeme_lm_learns_beside_counts_as_if_alone() -> None:
    mixed = make("mixed")
    assert isinstance(mixed, TwoLevel) and isinstance(mixed.novel, Speller)
    gates = mixed.mixture, mixed.novel.mixture
    mixed.novel.mixture = None
    found = gradients(make_trainer("mixed", mixed), lexicon=False)
    mixed.mixture = None
    alone = gradients(make_trainer("full", mixed), lexicon=False)
    for name, expected in alone.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-7)
    assert float(found["mixture.trust"].abs().sum()) > 0
    assert float(found["mixture.gate.weight"].abs().sum()) > 0
    mixed.mixture, mixed.novel.mixture = gates
    beside = gradients(make_trainer("mixed", mixed), lexicon=True)
    for name in ("novel.mixture.trust", "novel.mixture.gate.weight"):
        assert float(beside[name].abs().sum()) > 0, name


def test_the_lexeme_lm_learns_what_counts_leave_to_say() -> None:
    """`complement`: the gradient is that of the mixture, by plain differentiation."""
    mixed = make("mixed")
    assert isinstance(mixed, TwoLevel) and mixed.mixture is not None
    mixed.mixture.complement = 1.0
    trainer = make_trainer("mixed", mixed)
    window, names = trainer.rails.window(0, 0), ["lm.table.weights.0", "lm.layers.0.weight_hh"]
    parameters = [trainer.parameters[name] for name in names]
    nats, _ = mixed.window_nats(window, trainer.spellings, trainer.state, None)
    assert nats.aside is not None
    found = torch.autograd.grad(nats.aside, parameters)
    inputs, targets = torch.from_numpy(window.inputs), torch.from_numpy(window.targets)
    counted = mixed.mixture.window(trainer.state[-1][0], inputs, targets, left_out=True)
    hidden, _ = mixed.lm(inputs, trainer.state[:-1])
    h = hidden.states.flatten(0, 1)
    log_probs = mixed.lm.table.log_probs(h)
    each = -log_probs.gather(1, targets.flatten()[:, None])[:, 0]
    plain = mixed.mixture.nats(each, h.detach(), *counted).sum()
    torch.testing.assert_close(nats.lm, plain)
    for mine, theirs in zip(found, torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("complement", [0.0, 0.5, 1 - 1e-9])
def test_the_speller_learns_alone_or_what_counts_leave_to_say(complement: float) -> None:
    mixed = make("mixed")
    assert isinstance(mixed, TwoLevel) and isinstance(mixed.novel, Speller)
    speller, gate = mixed.novel, mixed.novel.mixture
    assert gate is not None
    spellings = make_lexicon().spellings().take(np.arange(2, 8))
    vectors = torch.randn(6, mixed.lm.table.n_embed, generator=torch.Generator().manual_seed(1))
    inner = [p for p in speller.parameters() if all(p is not q for q in gate.parameters())]
    outer = list(gate.parameters())
    torch.nn.init.zeros_(gate.gate.weight)  # else what the gate sees learns from it too
    quiet = Noise(0)

    def slopes(parameters: list[torch.nn.Parameter]) -> list[Tensor]:
        nats = speller.nats(vectors, spellings, quiet, counted=True)
        return [nats, *torch.autograd.grad(nats.sum(), parameters)]

    gate.complement = 1.0
    plain, *beside = slopes([*inner, *outer])
    speller.mixture = None
    _, *alone = slopes(inner)
    speller.mixture = gate
    gate.complement = complement
    value, *found = slopes([*inner, *outer])
    torch.testing.assert_close(value, plain)
    for mine, a, b in zip(found, alone, beside, strict=False):
        torch.testing.assert_close(mine, (1 - complement) * a + complement * b)
    for mine, b in zip(found[len(inner) :], beside[len(inner) :], strict=True):
        torch.testing.assert_close(mine, b)


def test_spellings_are_counted_word_by_word() -> None:
    lexicon = make_lexicon()
    counted = count_all(TYPES, lexicon, NgramConfig(order=2, spelling_order=3))
    stream: list[int] = []
    for word in lexicon.types[2:]:
        stream += [-1, 0, *lexicon.alphabet.encode(word).tolist(), 0]
    text = np.array(stream)
    is_given = np.concatenate([[False], text[:-1] == -1])  # BOW
    expected = ngrams.count(text, len(lexicon.alphabet), 3, is_given)
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(counted.spellings.arrays()[name], array)
    again = Counted.of_arrays(counted.arrays())
    assert again.text.distribution([2])[0].tolist() == counted.text.distribution([2])[0].tolist()
    assert again.spellings.n_kinds == counted.spellings.n_kinds


def test_drawing_a_spelling_is_as_likely_as_it_scores() -> None:
    network, lexicon = make("mixed"), make_lexicon()
    moment = network.begin(lexicon, HISTORY)
    assert isinstance(network, TwoLevel) and isinstance(network.novel, Speller)
    shorten(network)
    n = 4000
    drawn = Counter(network.spell(lexicon, moment, n, Dice(1.0, torch.Generator()), 30))
    with torch.no_grad():
        words = [word for word, _ in drawn.most_common(5)]
        vectors = moment.hidden.expand(len(words), -1)
        p = network.novel.nats(vectors, spell(words)).neg().exp().tolist()
    for word, expected in zip(words, p, strict=True):
        error = (expected * (1 - expected) / n) ** 0.5
        assert abs(drawn[word] / n - expected) < 5 * error, word


def test_every_system_is_built_by_some_recipe() -> None:
    assert {recipes.get(name).system for name in recipes.names()} == set(SYSTEMS)
    for name in recipes.names():
        recipe = recipes.get(name)
        assert recipe.name == name and recipe.about
        assert configuration.from_json(configuration.to_json(recipe)) == recipe
    assert len(ALPHABET) == 4
