"""Texts, a lexicon and a network → `TokenScores`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spellonce.adaptive import Adaptation, Reader
from spellonce.evaluation import TokenScores
from spellonce.lexicon import BOUNDARY_SYMBOL, OTHER, Lexicon
from spellonce.network import Network
from spellonce.text import EOS, Reading
from spellonce.two_level import TwoLevel, as_speller


def score_readings(
    network: Network, lexicon: Lexicon, readings: Sequence[Reading]
) -> list[TokenScores]:
    """Scores texts, each as one stream: every token exactly once, the first one after an EOS."""
    found = network.score_texts(lexicon, [reading.tokens for reading in readings])
    return [
        _scores(network, lexicon, reading, *nats)
        for reading, nats in zip(readings, found, strict=True)
    ]


def score_reading(network: Network, lexicon: Lexicon, reading: Reading) -> TokenScores:
    """The same for one text."""
    return score_readings(network, lexicon, [reading])[0]


def _scores(
    network: Network,
    lexicon: Lexicon,
    reading: Reading,
    nats_lexeme: NDArray[np.float64],
    nats_spelling: NDArray[np.float64],
) -> TokenScores:
    alphabet = lexicon.alphabet
    _, counts = lexicon.encode(reading.tokens)
    novel = {token: network.is_novel(lexicon, token) for token in set(reading.tokens)}
    n_other = np.fromiter(
        (
            0 if token == EOS else alphabet.replace(token).count(OTHER)
            for token in reading.tokens
        ),
        np.int64, len(reading),
    )  # fmt: skip
    return TokenScores(
        tokens=reading.surfaces,
        start=reading.start,
        end=reading.end,
        line=reading.line,
        article=reading.article,
        n_chars=reading.n_chars,
        nats_lexeme=nats_lexeme,
        nats_spelling=nats_spelling,
        nats_strict=n_other * alphabet.other_nats + reading.layout_nats,
        train_count=counts,
        is_novel=np.array([novel[token] for token in reading.tokens], dtype=bool),
        text_chars=reading.text_chars,
        text_bytes=reading.text_bytes,
        article_rule=reading.article_rule,
        has_parts=network.has_parts,
    )


def score_adaptively(reader: Reader, reading: Reading, *, reset: bool = False) -> TokenScores:
    """Scores a text with a model that learns while it reads; `reset`: it forgets between articles.

    What is forgotten is so when it is known that an article has begun: behind a heading, which is
    one only if a blank line follows, or behind the first line of one that a blank line precedes.
    """
    network, lexicon = reader.network, reader.lexicon
    borders = [0, len(reading), *(_forgetting(reading) if reset else ())]
    pieces = []
    for start, stop in pairwise(sorted(set(borders))):
        if start:
            reader.forget()
        pieces.append(reader.read(reading.tokens[start:stop]))
    nats, static = (
        np.concatenate([np.zeros(0), *parts])
        for parts in (
            [piece.nats for piece in pieces],
            [piece.lm_nats + piece.spell_nats for piece in pieces],
        )
    )
    if reader.weights is not None:  # these have moved
        static = score_reading(reader.trained, lexicon, reading).nats
    scores = _scores(network, lexicon, reading, nats, np.zeros(len(nats)))
    return replace(scores, has_parts=False, nats_static=static)


def _forgetting(reading: Reading) -> list[int]:
    """The tokens before which it is known that an article has begun, but for the first one."""
    if reading.article_rule in ("line", "wikitext"):
        begins = np.flatnonzero(np.diff(reading.article, prepend=-1))[1:]
        late = 2 if reading.article_rule == "wikitext" else 0
        found: list[int] = np.searchsorted(reading.line, reading.line[begins] + late).tolist()
        return found
    # Blank lines, even where there are so few of them that other borders are counted by.
    places = np.flatnonzero(np.diff(reading.line, prepend=-1))  # where lines begin
    lines = np.split(np.arange(len(reading)), places[1:])
    blank = [all(reading.surfaces[i].isspace() for i in line) for line in lines]
    firsts = [k for k in range(1, len(lines)) if blank[k - 1] and not blank[k]]
    return [int(lines[k][-1]) + 1 for k in firsts]


def merged(parts: Sequence[TokenScores]) -> TokenScores:
    """The scores of texts as those of one text, in which they follow each other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    chars = np.cumsum([0, *(part.text_chars for part in parts[:-1])])
    ends = [int(part.line.max(initial=-1)) + 1 for part in parts]
    lines = np.cumsum([0, *ends[:-1]])

    def joined(name: str, shift: NDArray[np.int64] | None = None) -> NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        if shift is not None:
            arrays = [array + by for array, by in zip(arrays, shift.tolist(), strict=True)]
        return np.concatenate(arrays)

    static = None if first.nats_static is None else joined("nats_static")
    same: dict[str, Any] = {
        name: joined(name)
        for name in ("n_chars", "nats_lexeme", "nats_spelling", "nats_strict", "train_count",
                     "is_novel")
    }  # fmt: skip
    return replace(
        first,
        tokens=[token for part in parts for token in part.tokens],
        start=joined("start", chars),
        end=joined("end", chars),
        line=joined("line", lines),
        article=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        **same,
        text_chars=sum(part.text_chars for part in parts),
        text_bytes=sum(part.text_bytes for part in parts),
        article_rule="each text",
        nats_static=static,
    )


@torch.no_grad()
def spelled_bits(
    network: TwoLevel, lexicon: Lexicon, reading: Reading
) -> dict[int, list[tuple[str, float]]]:
    """(character, its bits) of every novel token, by its place; the last is the end of the word."""
    reader = Reader(network, lexicon, Adaptation())
    found: dict[int, list[tuple[str, float]]] = {}
    for i, state in reader.states_of_novel(reading.tokens):
        steps = as_speller(network.novel).begin(state)
        token = reading.tokens[i]
        symbols = [*lexicon.alphabet.encode(token).tolist(), BOUNDARY_SYMBOL]
        bits = []
        for symbol, char in zip(symbols, [*token, ""], strict=True):
            bits.append((char, -math.log2(float(steps.probabilities()[symbol]))))
            steps.take(symbol)
        found[i] = bits
    return found
