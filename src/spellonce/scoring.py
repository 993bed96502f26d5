"""A text, a lexicon and a network → `TokenScores`."""

from __future__ import annotations

import numpy as np

from spellonce.evaluation import TokenScores
from spellonce.lexicon import OTHER, UNK_ID, Lexicon, Spellings
from spellonce.text import EOS, Reading
from spellonce.two_level import TwoLevel


def score_reading(
    network: TwoLevel, lexicon: Lexicon, reading: Reading, *, window: int = 1000
) -> TokenScores:
    """Scores a text as one stream: every token exactly once, the first one after an EOS."""
    alphabet = lexicon.alphabet
    ids, counts = lexicon.encode(reading.tokens)
    novel = ids == UNK_ID
    words = [alphabet.replace(reading.tokens[i]) for i in np.flatnonzero(novel)]
    spellings = Spellings.of(alphabet, words)
    nats_lexeme, nats_spelling = network.score(ids, spellings, window=window)
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
        is_novel=novel,
        text_chars=reading.text_chars,
        text_bytes=reading.text_bytes,
        article_rule=reading.article_rule,
    )
