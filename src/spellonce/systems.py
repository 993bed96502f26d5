"""The systems of the paper (table 1), each a composition of the same few objects.

    full        one speller for the lexicon and for novel words
    no-reg      the lexicon is not spelled: no factor (2)
    only-reg    novel words are not spelled in training: no factor (4) there
    sep-reg     one speller for the lexicon, another for novel words
    1gram       the speller is a unigram over characters
    uncond      the speller sees no vector
    pure-char   one LM over characters
    pure-bpe    one LM over BPE units
    hclm        words composed from and spelled in characters; with a cache, hclm-cache

and some that are not in its tables: `full` with a Transformer as the lexeme LM, with the speller's
last state as the input after a novel word, with an input composed from its characters (`composed`),
with count-based models beside lexeme LM and speller (`mixed`), and with both (`mixed-composed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from spellonce import units as unit_sets
from spellonce.errors import ConfigError
from spellonce.feedback import Composed, CompositionConfig, LastState
from spellonce.hclm import HCLM, Composer, HCLMConfig
from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig, LSTMStack
from spellonce.lexicon import Lexicon
from spellonce.mixture import Counted, NgramConfig, SpellingMixture, TextMixture
from spellonce.network import Network
from spellonce.speller import Speller, SpellerConfig
from spellonce.spellers import OnlyAtTest, Unconditional, UnigramSpeller
from spellonce.transformer_lm import TransformerConfig, TransformerLM
from spellonce.two_level import TwoLevel
from spellonce.unit_lm import UnitLM
from spellonce.units import Units
from spellonce.word_cache import WordCache


@dataclass(frozen=True)
class BPEConfig:
    """The units of pure-bpe."""

    merges: int = 40_000
    """Merges that are learned on the words of the training text."""

    def __post_init__(self) -> None:
        if self.merges < 0:
            raise ConfigError(f"merges must not be negative, got {self.merges}")


class Parts(Protocol):
    """The configurations that a system is built from: a recipe has them."""

    @property
    def lm(self) -> LexemeLMConfig: ...
    @property
    def speller(self) -> SpellerConfig: ...
    @property
    def transformer(self) -> TransformerConfig: ...
    @property
    def hclm(self) -> HCLMConfig: ...
    @property
    def bpe(self) -> BPEConfig: ...
    @property
    def ngrams(self) -> NgramConfig: ...
    @property
    def composition(self) -> CompositionConfig: ...


@dataclass(frozen=True)
class Material:
    """What some systems are made from beside a recipe and a lexicon."""

    units: Units | None = None
    counted: Counted | None = None


def _lm(parts: Parts, lexicon: Lexicon) -> LexemeLM:
    if not parts.lm.tied:
        raise ConfigError("lm.tied=no is for pure-char and pure-bpe: a speller needs embeddings")
    return LexemeLM(parts.lm, lexicon.n_lexemes)


def _speller(parts: Parts, lexicon: Lexicon, n_vector: int | None = None) -> Speller:
    return Speller(parts.speller, len(lexicon.alphabet), n_vector or parts.lm.n_embed)


def full(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """The paper's model."""
    speller = _speller(parts, lexicon)
    return TwoLevel(_lm(parts, lexicon), lexicon_speller=speller, novel_speller=speller)


def no_reg(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Without factor (2)."""
    return TwoLevel(
        _lm(parts, lexicon), lexicon_speller=None, novel_speller=_speller(parts, lexicon)
    )


def only_reg(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Without factor (4) in training."""
    speller = _speller(parts, lexicon)
    return TwoLevel(_lm(parts, lexicon), lexicon_speller=speller, novel_speller=OnlyAtTest(speller))


def sep_reg(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Two spellers."""
    return TwoLevel(
        _lm(parts, lexicon),
        lexicon_speller=_speller(parts, lexicon),
        novel_speller=_speller(parts, lexicon),
    )


def one_gram(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """A unigram for a speller."""
    speller = UnigramSpeller(len(lexicon.alphabet))
    return TwoLevel(_lm(parts, lexicon), lexicon_speller=speller, novel_speller=speller)


def uncond(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """A speller that is blind to use."""
    speller = Unconditional(_speller(parts, lexicon))
    return TwoLevel(_lm(parts, lexicon), lexicon_speller=speller, novel_speller=speller)


def full_feedback(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """The speller's last state instead of e(UNK) as the next input."""
    speller = _speller(parts, lexicon)
    feedback = LastState(parts.speller.n_hidden, parts.lm.n_embed)
    return TwoLevel(
        _lm(parts, lexicon), lexicon_speller=speller, novel_speller=speller, feedback=feedback
    )


def composed(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Novel words are read as they are spelled."""
    speller = _speller(parts, lexicon)
    return TwoLevel(
        _lm(parts, lexicon),
        lexicon_speller=speller,
        novel_speller=speller,
        feedback=_composition(parts, lexicon),
    )


def _composition(parts: Parts, lexicon: Lexicon) -> Composed:
    return Composed(parts.composition, len(lexicon.alphabet), parts.lm.n_embed)


def full_transformer(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Another lexeme LM."""
    speller = _speller(parts, lexicon, parts.transformer.n_embed)
    lm = TransformerLM(parts.transformer, lexicon.n_lexemes)
    return TwoLevel(lm, lexicon_speller=speller, novel_speller=speller)


def mixed(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Counts beside the lexeme LM and beside the speller."""
    return _mixed(parts, lexicon, material, None)


def mixed_composed(parts: Parts, lexicon: Lexicon, material: Material) -> TwoLevel:
    """Both: counts, and novel words that are read as they are spelled."""
    return _mixed(parts, lexicon, material, _composition(parts, lexicon))


def _mixed(
    parts: Parts, lexicon: Lexicon, material: Material, composition: Composed | None
) -> TwoLevel:
    assert material.counted is not None
    mixture = SpellingMixture(material.counted.spellings, parts.speller.n_hidden, parts.ngrams)
    speller = Speller(parts.speller, len(lexicon.alphabet), parts.lm.n_embed, mixture)
    return TwoLevel(
        _lm(parts, lexicon),
        lexicon_speller=speller,
        novel_speller=speller,
        feedback=composition,
        mixture=TextMixture(material.counted.text, parts.lm.n_embed, parts.ngrams),
    )


def pure(parts: Parts, lexicon: Lexicon, material: Material) -> UnitLM:
    """One LM over units."""
    assert material.units is not None
    return UnitLM(LexemeLM(parts.lm, len(material.units)), material.units)


def hclm(parts: Parts, lexicon: Lexicon, material: Material) -> HCLM:
    """HCLM; with slots, HCLMcache."""
    lm = LSTMStack(parts.lm, parts.lm.n_embed)
    n_symbols, config = len(lexicon.alphabet), parts.hclm
    return HCLM(
        lm,
        Composer(n_symbols, config.n_char_embed, parts.lm.n_embed),
        Speller(parts.speller, n_symbols, lm.n_output),
        WordCache(config.slots, config.decay, lm.n_output) if config.slots else None,
    )


@dataclass(frozen=True)
class System:
    """How a system is built, and what of a recipe it uses."""

    build: Callable[[Parts, Lexicon, Material], Network]
    parts: tuple[str, ...]
    """The parts of a recipe, beside data, windows, objective and training."""
    unused: tuple[str, ...] = ()
    """Fields of these parts that change nothing, as `part.field`."""
    sized_by: str | None = "vocab_size"
    """The field that says how large its vocabulary is; None: it has none."""
    units: Callable[[Parts, Lexicon], Units] | None = None
    """What makes its units out of a lexicon; None: it reads words."""
    is_counted: bool = False
    """Whether it has count-based models of the training text and of its types."""


_TWO_LEVEL = ("lm", "speller")
_LEXICON_FACTOR = tuple(
    f"objective.lexicon_{x}" for x in ("interval", "batch", "max_length", "types")
)
_NORM = tuple(f"objective.{x}" for x in ("nuclear_norm", "speller_norm", "proximal"))
_FEEDBACK = ("objective.read_rare",)
_NOT_TWO_LEVEL = (
    "data.vocab_size",
    "data.min_count",
    *_LEXICON_FACTOR,
    *_NORM,
    "objective.spell_rare",
    "objective.spell_rare_times",
    *_FEEDBACK,
    "objective.unspelled",
)
_NOT_UNITS = (*_NOT_TWO_LEVEL, "objective.novel_max_length")
_NOT_HCLM = (*_NOT_TWO_LEVEL, "lm.cuts", "lm.tail_size", "lm.unigram_bias", "lm.drop_embed")
SYSTEMS: Mapping[str, System] = {
    "full": System(full, _TWO_LEVEL, _FEEDBACK),
    "no-reg": System(no_reg, _TWO_LEVEL, (*_LEXICON_FACTOR, *_FEEDBACK)),
    "only-reg": System(only_reg, _TWO_LEVEL, _FEEDBACK),
    "sep-reg": System(sep_reg, _TWO_LEVEL, _FEEDBACK),
    "1gram": System(one_gram, ("lm",), (*_NORM, *_FEEDBACK)),
    "uncond": System(uncond, _TWO_LEVEL, (*_NORM, *_FEEDBACK)),
    "pure-char": System(
        pure, ("lm",), _NOT_UNITS, None, lambda parts, lexicon: unit_sets.characters(lexicon)
    ),
    "pure-bpe": System(
        pure,
        ("lm", "bpe"),
        _NOT_UNITS,
        "merges",
        lambda parts, lexicon: unit_sets.bpe(lexicon, parts.bpe.merges),
    ),
    "hclm": System(hclm, (*_TWO_LEVEL, "hclm"), _NOT_HCLM, None),
    "full-transformer": System(full_transformer, ("transformer", "speller"), _FEEDBACK),
    "full-feedback": System(full_feedback, _TWO_LEVEL),
    "composed": System(composed, (*_TWO_LEVEL, "composition")),
    "mixed": System(mixed, (*_TWO_LEVEL, "ngrams"), _FEEDBACK, is_counted=True),
    "mixed-composed": System(
        mixed_composed, (*_TWO_LEVEL, "ngrams", "composition"), is_counted=True
    ),
}
