"""What may come next, one token at a time: the same probabilities that reading in pieces gives."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spellonce.adaptive import Adaptation, Learning, Reader
from spellonce.errors import ConfigError
from spellonce.lexicon import BOUNDARY_SYMBOL
from spellonce.loading import load
from spellonce.network import Dice
from spellonce.stepping import Outlook, Stepper
from spellonce.two_level import TwoLevel

from .conftest import call
from .test_adaptive import ADAPTATIONS, TEXT, some_scale
from .test_systems import TWO_LEVEL, make, shorten
from .toy import LEXEMES, make_lexicon, strings

LEARNED = {
    "nothing": Adaptation(),
    **{kind: replace(learned, renormalise=False) for kind, learned in ADAPTATIONS.items()},
}
CUTS = [(), (3,), (3, 4)]


def network_of(name: str, cuts: tuple[int, ...] = ()) -> TwoLevel:
    network = make(name, cuts=cuts)
    assert isinstance(network, TwoLevel)
    return network


def stepper_of(network: TwoLevel, adaptation: Adaptation) -> Stepper:
    return Stepper(network, make_lexicon(), adaptation, some_scale(network))


def chance(outlook: Outlook, word: str) -> float:
    """p of a word, by the choices that lead to it."""
    first, second = outlook.place(word)
    tail = outlook.tail(first)
    if tail is not None and second is not None:
        assert outlook.word(first, second) == word
        return float(outlook.within(tail)[second])
    p = float(outlook.first[first])
    if outlook.word(first) is not None:
        assert outlook.word(first) == word
        return p
    steps = outlook.spell()
    for symbol in [*outlook.lexicon.alphabet.encode(word).tolist(), BOUNDARY_SYMBOL]:
        p *= float(steps.probabilities()[symbol])
        steps.take(symbol)
    return p


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("kind", LEARNED)
@pytest.mark.parametrize("name", ["full", "mixed", "mixed-composed", "mixed-recall"])
def test_steps_are_what_reading_scores(name: str, kind: str, cuts: tuple[int, ...]) -> None:
    network, adaptation = network_of(name, cuts), LEARNED[kind]
    expected = Reader(network, make_lexicon(), adaptation, some_scale(network)).read(TEXT).nats
    stepper = stepper_of(network, adaptation)
    for token, nats in zip(TEXT, expected, strict=True):
        assert -math.log(chance(stepper.outlook(), token)) == pytest.approx(nats, rel=2e-4)
        stepper.take(token)


@pytest.mark.parametrize("name", TWO_LEVEL)
def test_every_two_level_model_can_be_taken_step_by_step(name: str) -> None:
    network = network_of(name)
    lm, spelling = network.score_tokens(make_lexicon(), TEXT)
    stepper = stepper_of(network, Adaptation())
    for token, nats in zip(TEXT, lm + spelling, strict=True):
        assert -math.log(chance(stepper.outlook(), token)) == pytest.approx(nats, rel=1e-4)
        stepper.take(token)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("kind", LEARNED)
def test_choices_add_up_to_one(kind: str, cuts: tuple[int, ...]) -> None:
    stepper = stepper_of(network_of("mixed", cuts), LEARNED[kind])
    for token in TEXT:
        outlook = stepper.outlook()
        assert outlook.first.sum() == pytest.approx(1, abs=1e-5)
        every = outlook.every()
        assert every.sum() == pytest.approx(1, abs=1e-5)
        assert len(every) == make_lexicon().n_lexemes + len(outlook.words)
        for tail in range(1, len(outlook.bounds) - 1):
            inside = outlook.within(tail)
            assert inside.sum() == pytest.approx(outlook.first[outlook.bounds[1] + tail - 1])
        steps = outlook.spell()
        assert steps.probabilities().sum() == pytest.approx(1, abs=1e-5)
        stepper.take(token)


@pytest.mark.parametrize("kind", LEARNED)
def test_reading_in_pieces_and_in_steps_may_take_turns(kind: str) -> None:
    network, adaptation = network_of("mixed"), LEARNED[kind]
    expected = stepper_of(network, adaptation).read(TEXT).nats
    stepper = stepper_of(network, adaptation)
    for token in TEXT[:4]:
        stepper.outlook()
        stepper.take(token)
    np.testing.assert_allclose(stepper.read(TEXT[4:9]).nats, expected[4:9], rtol=2e-4)
    kept = stepper.state_dict()
    again = stepper_of(network, adaptation)
    again.restore(kept)
    assert -math.log(chance(again.outlook(), TEXT[9])) == pytest.approx(expected[9], rel=2e-4)


def test_draws_follow_the_distribution() -> None:
    network = network_of("mixed", (3,))
    shorten(network)
    stepper = stepper_of(network, replace(LEARNED["all"], dynamic=None))
    stepper.read(TEXT)
    outlook = stepper.outlook()
    dice = Dice(1.0, torch.Generator().manual_seed(1))
    n = 3000
    drawn = [stepper.next_token(dice, bool) for _ in range(n)]
    for word in ["\n", *strings(2)]:
        p = chance(outlook, word)
        if word and outlook.place(word)[0] != 0:
            assert drawn.count(word) / n == pytest.approx(p, abs=4 * math.sqrt(p / n) + 1e-3)
    new = [word for word in drawn if outlook.place(word)[0] == 0]
    p = outlook.first[0]
    assert len(new) / n == pytest.approx(p, abs=4 * math.sqrt(p / n))


@pytest.mark.parametrize("kind", ["nothing", "both"])
def test_expectations_are_those_of_the_distribution(kind: str) -> None:
    stepper = stepper_of(network_of("mixed", (3,)), LEARNED[kind])
    for token in TEXT:
        outlook = stepper.outlook()
        entropy, rank = stepper.expectation(token)
        p = {word: chance(outlook, word) for word in ["\n", *LEXEMES[2:], *outlook.words]}
        p["new"] = float(outlook.first[0])
        assert entropy == pytest.approx(sum(-x * math.log2(x) for x in p.values() if x), rel=1e-4)
        own = p.get(token, p["new"])
        assert rank == 1 + sum(x > own * (1 + 1e-9) for x in p.values())
        stepper.take(token)


def test_renormalisation_is_not_for_steps() -> None:
    with pytest.raises(ConfigError, match="step by step"):
        stepper_of(network_of("full"), Adaptation(renormalise=True))


def test_a_sample_may_remember_what_it_said(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    call("sample", "-m", run, "--cache").refused("not been tuned yet", 2)
    json.loads(call("tune", run, "--tokens", 100, "--json").ok())
    static = call("sample", "-m", run, "-n", 40, "--seed", 3).ok()
    cached = call("sample", "-m", run, "-n", 40, "--seed", 3, "--cache").ok()
    assert cached == call("sample", "-m", run, "-n", 40, "--seed", 3, "--cache").ok() != static
    model = load(run)
    sample = model.sample(30, prompt="The wug", learning=Learning(cache=True), seed=1)
    assert len(sample.pieces) == 30 and sample.prompt == "The wug"
