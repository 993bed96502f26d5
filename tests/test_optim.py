"""Schedules, averages and recipes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from spellonce import configuration, recipes
from spellonce.api import parse_duration
from spellonce.errors import ConfigError
from spellonce.optim import Averages, TrainingConfig, learning_rate, should_average
from spellonce.text import TextFormat


def test_averages_equal_those_of_torch_asgd() -> None:
    torch.manual_seed(0)
    mine, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(mine.state_dict())
    sgd = torch.optim.SGD(mine.parameters(), lr=0.1)
    asgd = torch.optim.ASGD(theirs.parameters(), lr=0.1, lambd=0.0, alpha=0.0, t0=0)
    averages = Averages(dict(mine.named_parameters()))
    for step in range(7):
        x = torch.randn(4, 3)
        for model, optimizer in ((mine, sgd), (theirs, asgd)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        if step > 0:  # torch's average begins with the second step
            averages.update()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(averages.means[name], asgd.state[parameter]["ax"])
    own = mine.weight.detach().clone()
    with averages.swapped_in():
        torch.testing.assert_close(mine.weight, asgd.state[theirs.weight]["ax"])
    assert torch.equal(mine.weight, own)


def test_averaging_begins_when_validation_stops_improving() -> None:
    falling = [5.0, 4, 3, 2, 1]
    assert not should_average(falling, 2)
    assert not should_average([1.0, 2.0], 5), "too early to tell"
    assert should_average([3.0, 1.0, 2.0, 2.0, 2.0, 1.5], 3)
    assert not should_average([3.0, 2.0, 1.0, 2.0, 1.5], 3), "the best is within the window"


def test_one_cycle_rises_and_falls() -> None:
    config = TrainingConfig(optimizer="adam", learning_rate=2.0, warm_up=0.25)
    rates = [learning_rate(config, (step + 0.5) / 400) for step in range(400)]
    peak = rates.index(max(rates))
    assert peak in (99, 100) and max(rates) == pytest.approx(2.0, rel=0.01)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert learning_rate(TrainingConfig(), 0.3) == 30


def test_recipes_survive_json() -> None:
    for name in recipes.names():
        recipe = recipes.get(name)
        assert recipe.name == name and recipe.about
        stored = json.dumps(configuration.to_json(recipe))
        assert configuration.from_json(json.loads(stored)) == recipe


def test_full_is_the_paper() -> None:
    full = recipes.get("full")
    assert (full.lm.n_embed, full.lm.n_hidden, full.lm.n_layers) == (400, 1150, 3)
    assert (full.speller.n_hidden, full.speller.n_char_embed, full.speller.n_layers) == (100, 5, 3)
    assert full.training.learning_rate == 30 and full.training.clip == 0.25
    assert (full.windows.rails, full.windows.window) == (40, 70)
    assert (full.objective.lexicon_interval, full.objective.lexicon_batch) == (50, 1500)
    assert full.data.vocab_size == 50_000 and not full.lm.cuts
    assert recipes.get("full-strong-norm").objective.nuclear_norm == 30
    assert recipes.get("small") == recipes.get("full-small")


def test_overrides_are_typed() -> None:
    recipe = configuration.override(
        recipes.full(),
        ["vocab_size=1_000", "lm.n_hidden=3", "cuts=10,20", "proximal=yes", "drop_input=0.5",
         "tokenization=spaces", "articles=none"],
    )  # fmt: skip
    assert recipe.data.vocab_size == 1000 and recipe.lm.n_hidden == 3
    assert recipe.lm.cuts == (10, 20) and recipe.objective.proximal
    assert recipe.data.tokenization == "spaces" and recipe.data.articles is None
    assert configuration.override(recipe, ["vocab_size=all"]).data.vocab_size is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("vocab_sise=3", "did you mean vocab_size"),
        ("vocab_size=abc", "not a whole number"),
        ("vocab_size", "field=value"),
        ("n_hidden=3", "lm.n_hidden or speller.n_hidden"),
        ("proximal=perhaps", "neither true nor false"),
        ("learning_rate=nan", "not a number"),
        ("learning_rate=-1", "above 0"),
        ("optimizer=lion", "sgd or adam"),
        ("rails=0", "at least 1"),
        ("tokenization=words", "reversible, spaces"),
        ("nothing.vocab_size=3", "no such field"),
    ],
)
def test_bad_overrides_say_what_is_wrong(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration.override(recipes.full(), [setting])


def test_an_unknown_recipe_is_told_of_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean full-small"):
        recipes.get("ful-small")


def test_what_a_data_set_says_can_be_taken_back() -> None:
    declared = TextFormat(unk="<unk>")
    for setting, unk in (("unk=none", "<unk>"), ("unk=", ""), ("unk=[x]", "[x]")):
        recipe = configuration.override(recipes.full(), [setting])
        assert recipe.data.apply(declared).unk == unk


def test_fields_that_a_system_does_not_use_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match="no such field"):
        configuration.override(recipes.get("full-small"), ["merges=3"])
    assert configuration.override(recipes.get("pure-bpe-small"), ["merges=3"]).bpe.merges == 3
    with pytest.raises(ConfigError, match="no such field"):
        configuration.override(recipes.get("full-transformer-small"), ["lm.n_embed=3"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5m", 90)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3m", "5x", "1..2m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match="length of time"):
        parse_duration(text)


def test_a_strong_norm_is_thirty_times_as_strong() -> None:
    recipe = recipes.strong_norm(replace(recipes.full_small()))
    assert recipe.objective.nuclear_norm == 30 and recipe.name == "full-strong-norm-small"
