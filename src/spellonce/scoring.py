"""A text, a lexicon and a network → `TokenScores`."""

from __future__ import annotations

import numpy as np

from spellonce.evaluation import TokenScores
from spellonce.lexicon import OTHER, Lexicon
from spellonce.network import Network
from spellonce.text import EOS, Reading


def score_reading(network: Network, lexicon: Lexicon, reading: Reading) -> TokenScores:
    """Scores a text as one stream: every token exactly once, the first one after an EOS."""
    alphabet = lexicon.alphabet
    _, counts = lexicon.encode(reading.tokens)
    nats_lexeme, nats_spelling = network.score_tokens(lexicon, reading.tokens)
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
