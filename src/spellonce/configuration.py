"""A recipe: everything that decides what is trained, as data.

All of it stands in `config.json`; `--set field=value` replaces single fields. Parts that a recipe's
system does not use (see `systems`) are not stored; fields that it does not use are not shown, and
cannot be set.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spellonce.batching import WindowConfig
from spellonce.errors import ConfigError, RunError
from spellonce.feedback import CompositionConfig
from spellonce.hclm import HCLMConfig
from spellonce.lexeme_lm import LexemeLMConfig
from spellonce.mixture import NgramConfig
from spellonce.objective import ObjectiveConfig
from spellonce.optim import TrainingConfig
from spellonce.speller import SpellerConfig
from spellonce.systems import SYSTEMS, BPEConfig
from spellonce.text import TextFormat
from spellonce.transformer_lm import TransformerConfig

_LIMIT = 2**53
"""No field is larger: whole numbers up to here are the same in JSON everywhere."""


@dataclass(frozen=True)
class DataConfig:
    """How the training text becomes a lexicon."""

    vocab_size: int | None = 50_000
    """Types that become lexemes, EOS among them, the most frequent first; none: all of them."""
    min_count: int = 1
    """Types seen less often are no lexemes."""
    min_char_count: int = 25
    """Characters seen less often are ◇."""
    tokenization: str | None = None
    """`reversible` or `spaces`; none: what the data set says."""
    articles: str | None = None
    """`wikitext`, `blank-line` or `line`; none: what the data set says."""
    unk: str | None = None
    """What stands for removed words in the training text; none: what the data set says; empty:
    nothing does."""

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size < 0:
            raise ConfigError(f"vocab_size must not be negative, got {self.vocab_size}")
        for name in ("min_count", "min_char_count"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
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
    system: str = "full"
    """A key of `systems.SYSTEMS`."""
    data: DataConfig = DataConfig()
    windows: WindowConfig = WindowConfig()
    lm: LexemeLMConfig = LexemeLMConfig()
    transformer: TransformerConfig = TransformerConfig()
    hclm: HCLMConfig = HCLMConfig()
    bpe: BPEConfig = BPEConfig()
    ngrams: NgramConfig = NgramConfig()
    composition: CompositionConfig = CompositionConfig()
    speller: SpellerConfig = SpellerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        if self.system not in SYSTEMS:
            raise ConfigError(f"there is no system {self.system!r}")
        for field in dataclasses.fields(self)[3:]:
            if field.name not in self.parts():  # what is not used is not to make a difference
                object.__setattr__(self, field.name, field.default)

    def parts(self) -> dict[str, Any]:
        """The configurations that its system uses, by name."""
        used = {"data", "windows", "objective", "training", *SYSTEMS[self.system].parts}
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in used}

    def fields(self) -> list[tuple[str, str]]:
        """The fields that make a difference to its system, as (part, field)."""
        unused = SYSTEMS[self.system].unused
        return [
            (part, field.name)
            for part, config in self.parts().items()
            for field in dataclasses.fields(config)
            if f"{part}.{field.name}" not in unused
        ]


def override(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with `field=value` settings; a field may be named with its part, `lm.n_hidden`.

    >>> override(Recipe("mine", ""), ["vocab_size=none", "lm.n_hidden=7"]).lm.n_hidden
    7
    """
    changes: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write field=value")
        part_name, _, field_name = name.rpartition(".")
        found = [
            (part, field)
            for part, field in recipe.fields()
            if field == field_name and part_name in ("", part)
        ]
        if not found:
            raise ConfigError(f"--set {name}: {_unknown_field(recipe, field_name)}")
        if len(found) > 1:
            choices = " or ".join(f"{part}.{field}" for part, field in found)
            raise ConfigError(f"--set {name} could be {choices}: name it in full")
        part, field_name = found[0]
        kinds = typing.get_type_hints(type(getattr(recipe, part)))
        changes.setdefault(part, {})[field_name] = parse(name, text, kinds[field_name])
    # All at once: some go together.
    parts = {part: replace(getattr(recipe, part), **own) for part, own in changes.items()}
    return replace(recipe, **parts)


def _unknown_field(recipe: Recipe, name: str) -> str:
    fields = [field for _, field in recipe.fields()]
    close = difflib.get_close_matches(name, fields, n=1)
    hint = (
        f"did you mean {close[0]}?" if close
        else f"`spellonce recipes {recipe.name}` lists its fields"
    )  # fmt: skip
    return f"{recipe.name} has no such field; {hint}"


def parse(name: str, text: str, kind: Any) -> Any:
    """A value of a field's type from its text, or a clear refusal.

    >>> parse("cuts", "10,20", tuple[int, ...]), parse("vocab_size", "none", int | None)
    ((10, 20), None)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", "all"):
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
        if not abs(value) < _LIMIT:
            raise ValueError
        return value
    except ValueError:
        what = {int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"--set {name}: {text!r} is not {what}") from None


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data: what its system uses."""
    head = {name: getattr(recipe, name) for name in ("name", "about", "system")}
    return head | {name: dataclasses.asdict(part) for name, part in recipe.parts().items()}


def from_json(data: Mapping[str, Any]) -> Recipe:
    """The recipe that `to_json` wrote."""
    hints = typing.get_type_hints(Recipe)
    try:
        values = {name: data[name] for name in ("name", "about", "system")}
        for part in Recipe(**values).parts():
            kinds = typing.get_type_hints(hints[part])
            for name, value in data[part].items():
                if not _is_a(value, kinds[name]):
                    raise TypeError(f"{part}.{name} is {value!r}")
            fields = {k: tuple(v) if isinstance(v, list) else v for k, v in data[part].items()}
            values[part] = typing.cast(Callable[..., Any], hints[part])(**fields)
        return Recipe(**values)
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise RunError(f"the recipe in config.json is damaged: {error}") from error


def _is_a(value: object, kind: Any) -> bool:
    """Whether a value from JSON is of a field's type.

    >>> [_is_a(x, int | None) for x in (3, None, True, 3.0, 10**30)], _is_a([1, 2], tuple[int, ...])
    ([True, True, False, False, False], True)
    """
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_is_a(value, one) for one in arguments)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_is_a(one, arguments[0]) for one in value)
    if typing.get_origin(kind) is typing.Literal:
        return value in arguments
    if kind in (int, float):
        kinds = (int,) if kind is int else (int, float)
        return type(value) in kinds and abs(typing.cast(float, value)) < _LIMIT
    return type(value) is kind
