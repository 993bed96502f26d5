"""The weights of the joint objective (paper, equation 3), and what each factor is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from spellonce.errors import ConfigError

LexiconTypes = Literal["all", "hapax"]


SpellerNorm = Literal["nuclear", "l2"]


@dataclass(frozen=True)
class ObjectiveConfig:
    """The weights of the joint objective. The defaults are the paper's."""

    lexicon_interval: int = 50
    """Every how many steps the lexicon factor (2) is sampled."""
    lexicon_batch: int = 1500
    """Lexemes in such a sample."""
    lexicon_max_length: int = 20
    """Longer spellings are left out of factor (2), and of nothing else."""
    lexicon_types: LexiconTypes = "all"
    """Which lexemes factor (2) is about: `all`, or `hapax`, those seen once in training."""
    novel_max_length: int = 500
    """Training reads no further into a novel word; evaluation reads all of it."""
    spell_rare: int = 0
    """Lexemes seen at most so often in training are spelled from their states too, as if they were
    novel: where a text has few novel words, factor (4) learns from these. Nothing is scored so."""
    spell_rare_times: float = 0.0
    """How often, about, each of them is spelled so in a pass through the text; 0: every time."""
    read_rare: float = 0.0
    """A lexeme that was seen n times in training is read as if it were novel with a probability of
    read_rare / (read_rare + n), so that a system that reads novel words as they are spelled learns
    to do so where a text has few of them."""
    unspelled: float = 0.0
    """Share of lexemes that are never spelled in training, so that one can ask how they would be.
    Which ones follows from their spelling (`Lexicon.unspelled`)."""
    nuclear_norm: float = 1.0
    """Weight of the norm of the speller's vector input, in total nats."""
    speller_norm: SpellerNorm = "nuclear"
    """Which norm: `nuclear`, the sum of singular values, or `l2`, the sum of squares."""
    proximal: bool = False
    """Apply the nuclear norm by proximal steps, which give true low rank, not by sub-gradients."""
    alpha: float = 2.0
    """AR: weight of the squared activations."""
    beta: float = 1.0
    """TAR: weight of the squared change of activations."""

    def __post_init__(self) -> None:
        for name in ("lexicon_interval", "lexicon_batch", "novel_max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lexicon_max_length", "spell_rare", "spell_rare_times", "read_rare",
                     "nuclear_norm", "alpha", "beta"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 <= self.unspelled < 1:
            raise ConfigError(f"unspelled must be at least 0 and below 1, got {self.unspelled}")
        for name, kind in (("lexicon_types", LexiconTypes), ("speller_norm", SpellerNorm)):
            if getattr(self, name) not in get_args(kind):
                choices = " or ".join(get_args(kind))
                raise ConfigError(f"{name} must be {choices}, not {getattr(self, name)!r}")
        if self.proximal and self.speller_norm != "nuclear":
            raise ConfigError("proximal steps are for speller_norm=nuclear")
