"""What else there is to know of the tokens of a text, step by step: how the spelling of novel words
adds up, how uncertain the model was, whether a word ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError
from spellonce.lexicon import Lexicon
from spellonce.scoring import spelled_bits
from spellonce.stepping import Stepper
from spellonce.surprisal import Part
from spellonce.text import EOS, Reading, TextFormat, join_tokens, read, split_lines
from spellonce.two_level import TwoLevel

Begin = Callable[[], Stepper]
"""Makes somebody who has read nothing yet."""


def _readings(parts: Sequence[Part], fmt: TextFormat) -> Iterator[tuple[Reading, int]]:
    """(what is read, how many tokens of it come before the part) for each part of a text."""
    for part in parts:
        reading = read(split_lines(part.before + part.text), fmt)
        yield reading, int((reading.start < len(part.before)).sum())


def spellings(
    parts: Sequence[Part], fmt: TextFormat, network: TwoLevel, lexicon: Lexicon
) -> dict[int, list[tuple[str, float]]]:
    """(character, its bits) of each novel token, by the token's place."""
    found: dict[int, list[tuple[str, float]]] = {}
    start = 0
    for reading, n_before in _readings(parts, fmt):
        spelled = spelled_bits(network, lexicon, reading)
        found |= {start + i - n_before: bits for i, bits in spelled.items() if i >= n_before}
        start += len(reading) - n_before
    return found


def expectations(parts: Sequence[Part], fmt: TextFormat, begin: Begin) -> list[tuple[float, int]]:
    """(entropy before it, in bits; its rank among all that might have come) of each token."""
    found = []
    for reading, n_before in _readings(parts, fmt):
        stepper = begin()
        for i, token in enumerate(reading.tokens):
            if i >= n_before:
                found.append(stepper.expectation(token))
            stepper.take(token)
    return found


def word_ends(
    parts: Sequence[Part], fmt: TextFormat, begin: Begin, lexicon: Lexicon
) -> NDArray[np.float64]:
    """−log p that the word ends behind each token; zero where it goes on, and at line ends.

    What may be joined to a word begins with the merge symbol: so this is for text that the
    reversible tokenizer reads.
    """
    if fmt.tokenization != "reversible":
        raise ConfigError("--word-ends own is for text that is not tokenised yet")

    def joins(word: str) -> bool:
        space, surface = join_tokens(["x", word], fmt)[1]
        return not space and not surface.isspace()

    lexemes = lexicon.types[: lexicon.n_lexemes]
    is_joined = np.array([bool(word) and word != EOS and joins(word) for word in lexemes])
    found = []
    for reading, n_before in _readings(parts, fmt):
        stepper = begin()
        starts = [*reading.start.tolist()[1:], -1]
        following = [*reading.surfaces[1:], EOS]
        for i, token in enumerate(reading.tokens):
            stepper.take(token)
            if i < n_before:
                continue
            goes_on = starts[i] == reading.end[i] and not following[i].isspace()
            if goes_on or reading.surfaces[i].isspace():
                found.append(0.0)
            else:
                found.append(-math.log1p(-min(stepper.goes_on(is_joined, joins), 1 - 1e-12)))
    return np.array(found)
