"""A toy world: two letters, a few lexemes, a network small enough to enumerate."""

from __future__ import annotations

from itertools import product

import numpy as np

from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig
from spellonce.lexicon import Alphabet, Lexicon, Spellings
from spellonce.speller import Speller, SpellerConfig
from spellonce.two_level import TwoLevel

ALPHABET = Alphabet("ab")
LEXEMES = ("", "\n", "a", "ab", "bb", "aab")
"""UNK, EOS and four words."""
NOVEL = ("b", "ba", "a◇")
N_VECTOR = 5


def make_lexicon(n_lexemes: int = len(LEXEMES)) -> Lexicon:
    types = LEXEMES + NOVEL
    return Lexicon(ALPHABET, types, np.arange(len(types), 0, -1), n_lexemes)


def make_speller(**fields: float) -> Speller:
    config = SpellerConfig(n_char_embed=3, n_hidden=6, n_layers=2, **fields)  # type: ignore[arg-type]
    return Speller(config, len(ALPHABET), N_VECTOR)


def make_network(seed: int = 0, cuts: tuple[int, ...] = (), **drops: float) -> TwoLevel:
    config = LexemeLMConfig(n_embed=N_VECTOR, n_hidden=7, n_layers=2, cuts=cuts, **drops)  # type: ignore[arg-type]
    speller = make_speller()
    network = TwoLevel(
        LexemeLM(config, len(LEXEMES)), lexicon_speller=speller, novel_speller=speller
    )
    network.initialise(seed, make_lexicon())
    return network


def strings(up_to: int) -> list[str]:
    """All strings over the toy alphabet (◇ included) up to a length, the empty one among them."""
    return ["".join(s) for n in range(up_to + 1) for s in product("ab◇", repeat=n)]


def spell(words: list[str]) -> Spellings:
    return Spellings.of(ALPHABET, words)
