"""Named runs: each recipe is a function that returns a full configuration.

What a recipe is, and how single fields of it are set, stands in `configuration`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from spellonce.batching import WindowConfig
from spellonce.configuration import DataConfig, Recipe
from spellonce.errors import ConfigError, RunError
from spellonce.hclm import HCLMConfig
from spellonce.lexeme_lm import LexemeLMConfig
from spellonce.lexicon import Lexicon
from spellonce.mixture import Counted
from spellonce.network import Network
from spellonce.objective import ObjectiveConfig
from spellonce.optim import TrainingConfig
from spellonce.speller import SpellerConfig
from spellonce.systems import SYSTEMS, BPEConfig, Material
from spellonce.transformer_lm import TransformerConfig
from spellonce.units import Units


@dataclass(frozen=True)
class Means:
    """What there is to train with. A recipe may depend on it."""

    seconds: float | None = None
    """The budget, if there is one."""
    n_bytes: int | None = None
    """The size of the training text, if it is known."""
    bfloat16: bool = False
    """Whether the machine has instructions for it."""


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
        speller=SpellerConfig(
            n_char_embed=128, n_hidden=256, n_layers=1, drop=0.0, drop_vector=0.2, unigram_bias=True
        ),
        objective=ObjectiveConfig(lexicon_interval=20, lexicon_batch=500, alpha=0.0, beta=0.0),
        training=TrainingConfig(
            optimizer="adam", learning_rate=8e-3, clip=0.25, clip_separately=True, epochs=4.0
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


_ABLATIONS = {
    "no-reg": "without factor (2): the lexicon is not spelled",
    "only-reg": "without factor (4) in training: novel words are spelled at test only",
    "sep-reg": "with one speller for the lexicon and another for novel words",
    "1gram": "with a unigram over characters for a speller",
    "uncond": "with a speller that sees no word vector",
    "full-feedback": "reading the speller's last state after a novel word, not e(UNK)",
    "composed": "reading novel words as they are spelled, composed from their characters",
    "mixed": "with count-based models (Kneser-Ney) beside lexeme LM and speller",
    "mixed-composed": "with count-based models, and novel words composed from their characters",
}


def ablation(recipe: Recipe, system: str) -> Recipe:
    """Another composition of the same parts."""
    objective = recipe.objective
    if "composed" in system:  # or, where no word of the training text is novel, it learns nothing
        objective = replace(objective, read_rare=2.0)
    return replace(
        recipe,
        name=recipe.name.replace("full", system),
        about=f"{recipe.name} {_ABLATIONS[system]}",
        system=system,
        objective=objective,
    )


def pure_char() -> Recipe:
    """The paper's character baseline."""
    return Recipe(
        name="pure-char",
        about="an AWD-LSTM over characters, as in the paper (made for a GPU)",
        system="pure-char",
        windows=WindowConfig(rails=20, window=100, window_max=120),
        lm=LexemeLMConfig(
            n_embed=10, drop_embed=0.1, drop_input=0.1, drop_hidden=0.1, drop_output=0.1,
            drop_recurrent=0.1,
        ),
        training=TrainingConfig(learning_rate=5.0, epochs=150.0),
    )  # fmt: skip


def untied(recipe: Recipe) -> Recipe:
    """The same with a softmax of its own: the last layer need not be as narrow as the embedding."""
    return replace(
        recipe,
        name=recipe.name.replace("pure-char", "pure-char-untied"),
        about=f"{recipe.name} with a softmax of its own, not tied to the embeddings",
        lm=replace(recipe.lm, tied=False),
    )


def pure_char_small() -> Recipe:
    """An LSTM over characters at a size for two cores."""
    small = full_small()
    return replace(
        small,
        name="pure-char-small",
        about="an LSTM over characters at a size for two CPU cores",
        system="pure-char",
        windows=replace(small.windows, window=200, window_max=200),
        lm=replace(small.lm, n_embed=64, n_hidden=512, n_layers=1, tied=False, cuts=()),
        training=replace(small.training, learning_rate=1.6e-2),
    )


def pure_bpe() -> Recipe:
    """The paper's BPE baseline."""
    return Recipe(
        name="pure-bpe",
        about="an AWD-LSTM over 40,000 BPE merges, as in the paper (made for a GPU)",
        system="pure-bpe",
    )


def pure_bpe_small() -> Recipe:
    """An LSTM over BPE units at a size for two cores."""
    return replace(
        full_small(),
        name="pure-bpe-small",
        about="an LSTM over 20,000 BPE merges at a size for two CPU cores",
        system="pure-bpe",
        bpe=BPEConfig(merges=20_000),
    )


def hclm() -> Recipe:
    """HCLM. The sizes are ours: theirs are not known to us."""
    return Recipe(
        name="hclm",
        about="words composed from and spelled in characters (Kawakami et al. 2017)",
        system="hclm",
        lm=LexemeLMConfig(n_embed=400, n_hidden=1150, n_layers=2, drop_input=0.4),
        speller=SpellerConfig(n_char_embed=50, n_hidden=400, n_layers=1, drop=0.2, drop_vector=0.2),
    )


def hclm_small() -> Recipe:
    """The same at a size for two cores."""
    small = full_small()
    return replace(
        small,
        name="hclm-small",
        about="words composed from and spelled in characters, at a size for two CPU cores",
        system="hclm",
        windows=replace(small.windows, window=45),
        lm=replace(small.lm, n_embed=256, n_layers=1, cuts=(), unigram_bias=False),
        speller=SpellerConfig(
            n_char_embed=128,
            n_hidden=256,
            n_layers=1,
            drop=0.0,
            drop_vector=0.1,
            unigram_bias=True,
        ),
        hclm=HCLMConfig(n_char_embed=64),
        training=replace(small.training, learning_rate=1.6e-2),
    )


def with_cache(recipe: Recipe) -> Recipe:
    """HCLMcache: about 100 words, as in theirs."""
    return replace(
        recipe,
        name=recipe.name.replace("hclm", "hclm-cache"),
        about=f"{recipe.name} with a learned cache of 100 words",
        hclm=replace(recipe.hclm, slots=100),
    )


def full_transformer() -> Recipe:
    """`full` with a Transformer for a lexeme LM."""
    return Recipe(
        name="full-transformer",
        about="the two-level model over a Transformer instead of an LSTM (made for a GPU)",
        system="full-transformer",
        objective=ObjectiveConfig(alpha=0.0, beta=0.0),
        training=TrainingConfig(
            optimizer="adam", learning_rate=5e-4, clip_separately=True, epochs=50.0
        ),
    )


def full_transformer_small() -> Recipe:
    """The same at a size for two cores."""
    small = full_small()
    return replace(
        small,
        name="full-transformer-small",
        about="full-small with a Transformer instead of an LSTM as the lexeme LM",
        system="full-transformer",
        transformer=TransformerConfig(
            n_embed=320, n_feed=960, n_layers=3, n_heads=5, reach=64, cuts=small.lm.cuts
        ),
        training=replace(small.training, learning_rate=2e-3, beta1=0.9),
    )


def cpu(means: Means) -> Recipe:
    """The best known use of some minutes on two cores (docs/log.md has what was tried)."""
    minutes = (means.seconds or 1800.0) / 60
    n_bytes = means.n_bytes or 10_000_000
    # A larger model for more time and for more text.
    growth = min(max(1.05 * (minutes / 30) ** 0.27 * (n_bytes / 1e7) ** 0.1, 0.5), 2.0)
    # About so many passes: seconds of a token at that size, and 5.5 bytes of text in it.
    per_token = (0.025 + 0.075 * growth**2) / 1000 * (1.0 if means.bfloat16 else 1.7)
    passes = minutes * 60 / per_token / (n_bytes / 5.5)
    drop = min(max(0.1 * (passes / 3) ** 0.7, 0.05), 0.5)
    small = ablation(full_small(), "mixed")
    return replace(
        small,
        name="cpu",
        about="the best known use of a --budget on two CPU cores; sizes follow it and the text",
        data=DataConfig(vocab_size=60_000, min_count=2),
        windows=replace(small.windows, rails=64),
        lm=replace(
            small.lm,
            n_embed=16 * round(20 * growth), n_hidden=32 * round(16 * growth),
            drop_embed=drop / 6, drop_input=drop, drop_hidden=drop, drop_output=drop,
            drop_recurrent=max(drop - 0.1, 0.0), reach=200, cuts=(2_500, 7_500, 15_000, 30_000),
        ),
        speller=replace(small.speller, drop=drop / 2, drop_vector=max(drop, 0.2)),
        # Trained for the mixture alone, the speller leaves to counts what it could have learned of
        # vectors, and words made up to resemble another one do not.
        ngrams=replace(small.ngrams, embeddings=True, spelling_complement=0.0),
        # The nuclear norm would take 5 to 8 % of the time, and with a weight of 1 in the total of
        # millions of tokens it changes nothing that one can see.
        objective=replace(
            small.objective, spell_rare=5, nuclear_norm=0.0, lexicon_interval=10
        ),
        training=replace(
            small.training,
            learning_rate=min(9.5e-3 / growth, 1.3e-2),
            precision="bfloat16" if means.bfloat16 else "float32",
        ),
    )  # fmt: skip


def _all(means: Means) -> dict[str, Callable[[], Recipe]]:
    made: list[Callable[[], Recipe]] = [full, full_small]
    for base in (full, full_small):
        made += [partial(ablation, base(), system) for system in _ABLATIONS]
    made += [pure_char, partial(untied, pure_char()), pure_char_small, pure_bpe, pure_bpe_small]
    for base in (hclm, hclm_small):
        made += [base, partial(with_cache, base())]
    made += [full_transformer, full_transformer_small]
    made += [partial(strong_norm, full()), partial(strong_norm, full_small())]
    made += [partial(cpu, means)]
    return {make().name: make for make in made}


_SHORT = {"small": "full-small"}


def names() -> list[str]:
    """All recipes."""
    return list(_all(Means()))


def get(name: str, means: Means = Means()) -> Recipe:
    """The recipe of that name."""
    recipes = _all(means)
    try:
        return recipes[_SHORT.get(name, name)]()
    except KeyError:
        close = difflib.get_close_matches(name, recipes, n=1)
        hint = f"did you mean {close[0]}?" if close else "`spellonce recipes` lists them"
        raise ConfigError(f"unknown recipe {name!r}: {hint}") from None


def make_units(recipe: Recipe, lexicon: Lexicon) -> Units | None:
    """The units that the recipe's system reads, if it does not read words."""
    make = SYSTEMS[recipe.system].units
    return None if make is None else make(recipe, lexicon)


def build_model(
    recipe: Recipe, lexicon: Lexicon, units: Units | None = None, counted: Counted | None = None
) -> Network:
    """The network of a recipe, not yet initialised."""
    system = SYSTEMS[recipe.system]
    for name, is_needed, material in (
        ("units.tsv", system.units is not None, units),
        ("ngrams.safetensors", system.is_counted, counted),
    ):
        if is_needed and material is None:
            raise RunError(f"a {recipe.system} model needs its {name}, which is not there")
    return system.build(recipe, lexicon, Material(units, counted))
