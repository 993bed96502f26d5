"""Texts, a lexicon and a network → `TokenScores`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spellonce.evaluation import TokenScores
from spellonce.lexicon import OTHER, Lexicon
from spellonce.network import Network
from spellonce.text import EOS, Reading


def score_readings(
    network: Network, lexicon: Lexicon, readings: Sequence[Reading]
) -> list[TokenScores]:
    """Scores texts, each as one stream: every token exactly once, the first one after an EOS."""
    found = network.score_texts(lexicon, [reading.tokens for reading in readings])
    return [
        _scores(network, lexicon, reading, *nats)
        for reading, nats in zip(readings, found, strict=True)
    ]


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


def score_reading(network: Network, lexicon: Lexicon, reading: Reading) -> TokenScores:
    """The same for one text."""
    return score_readings(network, lexicon, [reading])[0]
