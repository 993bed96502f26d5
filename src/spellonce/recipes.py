"""Named runs: each recipe is a function that returns a full configuration.

A recipe is data, all of it in `config.json`; `--set field=value` replaces single fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spellonce.batching import WindowConfig
from spellonce.errors import ConfigError
from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig
from spellonce.lexicon import Lexicon
from spellonce.optim import TrainingConfig
from spellonce.speller import Speller, SpellerConfig
from spellonce.text import TextFormat
from spellonce.two_level import ObjectiveConfig, TwoLevel


@dataclass(frozen=True)
class DataConfig:
    """How the training text becomes a lexicon."""

    vocab_size: int | None = 50_000
    """Types that become lexemes, EOS among them, the most frequent first; none: all of them."""
    min_char_count: int = 25
    """Characters seen less often are ◇."""
    tokenization: str | None = None
    """`reversible` or `spaces`; none: what the data set says."""
    articles: str | None = None
    """`wikitext`, `blank-line` or `line`; none: what the data set says."""
    unk: str | None = None
    """What stands for removed words in the training text; none: what the data set says."""

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size < 0:
            raise ConfigError(f"vocab_size must not be negative, got {self.vocab_size}")
        if self.min_char_count < 1:
            raise ConfigError(f"min_char_count must be at least 1, got {self.min_char_count}")
        self.apply(TextFormat())

    def apply(self, fmt: TextFormat) -> TextFormat:
        """The format of a data set with what is set here."""
        given = {
            name: value
            for name in ("tokenization", "articles", "unk")
            if (value := getattr(self, name)) is not None
        }
        return replace(fmt, **given)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what is trained, but for the text and the seed."""

    name: str
    about: str
    data: DataConfig = DataConfig()
    windows: WindowConfig = WindowConfig()
    lm: LexemeLMConfig = LexemeLMConfig()
    speller: SpellerConfig = SpellerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()


def full() -> Recipe:
    """The paper's model at the paper's size."""
    return Recipe("full", "the paper's model at the paper's size (made for a GPU)")


def full_small() -> Recipe:
    """The same model at a size for two cores."""
    return Recipe(
        name="full-small",
        about="the paper's model at a size for two CPU cores: minutes, not days",
        data=DataConfig(vocab_size=25_000),
        windows=WindowConfig(rails=32, window=70, window_spread=0, short_windows=0.0),
        lm=LexemeLMConfig(
            n_embed=320, n_hidden=512, n_layers=2,
            drop_embed=0.0, drop_input=0.1, drop_hidden=0.1, drop_output=0.1, drop_recurrent=0.0,
            cuts=(2_500, 10_000), unigram_bias=True,
        ),
        speller=SpellerConfig(n_char_embed=16, n_hidden=160, n_layers=2, drop=0.0, drop_vector=0.2),
        objective=ObjectiveConfig(lexicon_interval=20, lexicon_batch=500, alpha=0.0, beta=0.0),
        training=TrainingConfig(
            optimizer="adam", learning_rate=4e-3, clip=0.25, clip_separately=True, epochs=4.0
        ),
    )  # fmt: skip


def strong_norm(recipe: Recipe) -> Recipe:
    """The nuclear norm as strong as the authors' code makes it in effect (30 times the paper's)."""
    return replace(
        recipe,
        name=recipe.name.replace("full", "full-strong-norm"),
        about=f"{recipe.name} with the nuclear norm 30 times as strong, as in the authors' code",
        objective=replace(recipe.objective, nuclear_norm=30 * recipe.objective.nuclear_norm),
    )


_RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "full": full,
    "full-small": full_small,
    "full-strong-norm": lambda: strong_norm(full()),
    "full-strong-norm-small": lambda: strong_norm(full_small()),
}
_SHORT = {"small": "full-small"}


def names() -> list[str]:
    """All recipes."""
    return list(_RECIPES)


def get(name: str) -> Recipe:
    """The recipe of that name."""
    try:
        return _RECIPES[_SHORT.get(name, name)]()
    except KeyError:
        known = ", ".join([*_RECIPES, *_SHORT])
        raise ConfigError(f"unknown recipe {name!r}: there are {known}") from None


def build_model(recipe: Recipe, lexicon: Lexicon) -> TwoLevel:
    """The network of a recipe, not yet initialised."""
    lm = LexemeLM(recipe.lm, lexicon.n_lexemes)
    speller = Speller(recipe.speller, len(lexicon.alphabet), recipe.lm.n_embed)
    return TwoLevel(lm, lexicon_speller=speller, novel_speller=speller)


def _parts(recipe: Recipe) -> dict[str, Any]:
    return {
        field.name: getattr(recipe, field.name)
        for field in dataclasses.fields(recipe)
        if dataclasses.is_dataclass(getattr(recipe, field.name))
    }


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with `field=value` settings; a field may be named with its part, `lm.n_hidden`.

    >>> override(full(), ["vocab_size=none", "lm.n_hidden=7"]).lm.n_hidden
    7
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write field=value")
        part_name, _, field_name = name.rpartition(".")
        found = [
            (part, field.name)
            for part, value in _parts(recipe).items()
            for field in dataclasses.fields(value)
            if field.name == field_name and part_name in ("", part)
        ]
        if not found:
            raise ConfigError(f"--set {name}: {_unknown_field(recipe, field_name)}")
        if len(found) > 1:
            choices = " or ".join(f"{part}.{field}" for part, field in found)
            raise ConfigError(f"--set {name} could be {choices}: name it in full")
        part, field_name = found[0]
        config = getattr(recipe, part)
        value = parse(name, text, typing.get_type_hints(type(config))[field_name])
        recipe = replace(recipe, **{part: replace(config, **{field_name: value})})
    return recipe


def _unknown_field(recipe: Recipe, name: str) -> str:
    fields = [f.name for value in _parts(recipe).values() for f in dataclasses.fields(value)]
    close = difflib.get_close_matches(name, fields, n=1)
    hint = f"did you mean {close[0]}?" if close else "`spellonce recipes full` lists the fields"
    return f"no such field; {hint}"


def parse(name: str, text: str, kind: Any) -> Any:
    """A value of a field's type from its text, or a clear refusal.

    >>> parse("cuts", "10,20", tuple[int, ...]), parse("vocab_size", "none", int | None)
    ((10, 20), None)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", "all", ""):
            return None
        return parse(name, text, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return tuple(parse(name, item, arguments[0]) for item in text.split(",") if item)
    if origin is typing.Literal or kind is str:
        return text
    if kind is bool:
        if text.lower() in ("true", "yes", "1", "false", "no", "0"):
            return text.lower() in ("true", "yes", "1")
        raise ConfigError(f"--set {name}: {text!r} is neither true nor false")
    try:
        value = kind(text.replace("_", ""))
        if not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        what = {int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"--set {name}: {text!r} is not {what}") from None


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data."""
    return dataclasses.asdict(recipe)


def from_json(data: Mapping[str, Any]) -> Recipe:
    """The recipe that `to_json` wrote."""
    hints = typing.get_type_hints(Recipe)
    values: dict[str, Any] = {}
    try:
        for field in dataclasses.fields(Recipe):
            kind, value = hints[field.name], data[field.name]
            if dataclasses.is_dataclass(kind):
                inner = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
                value = typing.cast(Callable[..., Any], kind)(**inner)
            values[field.name] = value
        return Recipe(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the recipe cannot be read: {error}") from error
