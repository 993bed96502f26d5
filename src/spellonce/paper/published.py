"""The figures of the paper (Mielke & Eisner, AAAI 2019), to be printed beside ours.

Bits per character, less is better. A system has the name that it has here: `hclm` is the HCLM of
Kawakami et al. (2017), `hclm-cache` the same with a cache; the paper quotes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WikiText2:
    """One line of the table of WikiText-2."""

    never: float | None
    """Dev, tokens of words never seen in training; none: not given."""
    rare: float | None
    """Dev, tokens of words seen 1 to 99 times."""
    frequent: float | None
    """Dev, tokens of words seen 100 times or more."""
    dev: float
    test: float

    def dev_bin(self, lo: int) -> float | None:
        """The figure of the bin that begins with so many occurrences."""
        return {0: self.never, 1: self.rare, 100: self.frequent}.get(lo)


WIKITEXT_2: Mapping[str, WikiText2] = {
    "pure-char": WikiText2(3.89, 2.08, 1.38, 1.741, 1.775),
    "pure-bpe": WikiText2(4.01, 1.70, 1.08, 1.430, 1.468),
    "only-reg": WikiText2(4.37, 1.68, 1.10, 1.452, 1.494),
    "sep-reg": WikiText2(4.17, 1.65, 1.10, 1.428, 1.469),
    "no-reg": WikiText2(4.14, 1.65, 1.10, 1.426, 1.462),
    "1gram": WikiText2(5.09, 1.73, 1.10, 1.503, 1.548),
    "uncond": WikiText2(4.13, 1.65, 1.10, 1.429, 1.468),
    "full": WikiText2(4.00, 1.64, 1.10, 1.416, 1.455),
    "hclm": WikiText2(None, None, None, 1.625, 1.670),
    "hclm-cache": WikiText2(None, None, None, 1.480, 1.500),
}
"""Table 1: vocabulary 50,000, 40,000 merges."""

WIKITEXT_2_BIN_TOKENS: Mapping[int, int] = {0: 7_116, 1: 47_437, 100: 163_077}
"""Table 1: dev tokens in the bins that begin with 0, 1 and 100 occurrences in training."""

WIKITEXT_2_TESTED = tuple(name for name, row in WIKITEXT_2.items() if row.never is not None)
"""Systems of table 1 that the authors ran themselves, so that they could test differences."""
WIKITEXT_2_ALIKE = ("pure-bpe", "uncond", "sep-reg")
"""No significant difference among these; between all other pairs p < 0.011 (64 articles)."""


VOCABULARY_DEV: Mapping[str, Mapping[int, float]] = {
    "full": {
        5_000: 1.606, 10_000: 1.517, 20_000: 1.446, 30_000: 1.425, 40_000: 1.417, 45_000: 1.418,
        50_000: 1.416, 55_000: 1.426, 60_000: 1.424, 65_000: 1.431, 70_000: 1.442, 75_000: 1.496,
    },
    "no-reg": {
        1_000: 1.813, 20_000: 1.451, 30_000: 1.429, 40_000: 1.425, 50_000: 1.426, 60_000: 1.439,
        70_000: 1.469, 76_132: 1.713,
    },
    "only-reg": {
        20_000: 1.540, 40_000: 1.460, 50_000: 1.452, 60_000: 1.451, 70_000: 1.457, 76_132: 1.537,
    },
    "sep-reg": {
        10_000: 1.522, 20_000: 1.450, 30_000: 1.424, 40_000: 1.423, 50_000: 1.428, 60_000: 1.439,
        70_000: 1.466, 76_132: 1.712,
    },
    "pure-bpe": {
        6_849: 1.498, 12_824: 1.471, 24_434: 1.436, 35_670: 1.433, 46_723: 1.430, 57_643: 1.433,
        68_593: 1.443, 76_996: 1.451,
    },
}  # fmt: skip
"""Figure of the vocabulary size, WikiText-2 dev: lexemes (for pure-bpe, units) → bpc."""

VOCABULARY_DEV_LM: Mapping[int, float] = {
    5_000: 0.947, 10_000: 1.040, 20_000: 1.109, 30_000: 1.156, 40_000: 1.184, 45_000: 1.196,
    50_000: 1.202, 55_000: 1.220, 60_000: 1.226, 65_000: 1.239, 70_000: 1.258, 75_000: 1.293,
}  # fmt: skip
"""The same figure: what of `full` goes into p_LM; the rest goes into p_spell."""


LANGUAGES = ("en", "fr", "de", "es", "cs", "fi", "ru")
"""Languages of the Multilingual Wikipedia Corpus (MWC), in the order of the paper's table."""
SPACES, REVERSIBLE = "spaces", "reversible"
"""Its two ways of cutting a text: at spaces, and with the tokenizer of appendix E."""


def _by_language(*bpc: float) -> Mapping[str, float]:
    return dict(zip(LANGUAGES, bpc, strict=True))


MWC_DEV: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    SPACES: {
        "pure-bpe": _by_language(1.506, 1.407, 1.498, 1.467, 1.928, 1.733, 1.686),
        "full": _by_language(1.575, 1.482, 1.662, 1.537, 2.279, 1.939, 2.003),
        "hclm": _by_language(1.683, 1.553, 1.666, 1.617, 2.070, 1.832, 1.832),
        "hclm-cache": _by_language(1.591, 1.499, 1.605, 1.548, 2.010, 1.754, 1.777),
    },
    REVERSIBLE: {
        "pure-bpe": _by_language(1.453, 1.366, 1.456, 1.427, 1.887, 1.706, 1.637),
        "full": _by_language(1.452, 1.369, 1.510, 1.428, 1.956, 1.798, 1.745),
    },
}
"""Table of the MWC, dev: tokenization → system → language → bpc; 60,000 lexemes or merges."""

MWC_TEST: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    SPACES: {
        "pure-bpe": _by_language(1.439, 1.365, 1.455, 1.403, 1.897, 1.685, 1.643),
        "full": _by_language(1.506, 1.434, 1.618, 1.469, 2.240, 1.896, 1.969),
        "hclm": _by_language(1.622, 1.508, 1.641, 1.555, 2.035, 1.796, 1.810),
        "hclm-cache": _by_language(1.538, 1.467, 1.588, 1.498, 1.984, 1.711, 1.761),
    },
    REVERSIBLE: {
        "pure-bpe": _by_language(1.386, 1.317, 1.414, 1.362, 1.856, 1.652, 1.598),
        "full": _by_language(1.387, 1.319, 1.465, 1.363, 1.928, 1.751, 1.709),
    },
}
"""Table of the MWC, test."""


@dataclass(frozen=True)
class NgramRank:
    """Where an n-gram of characters stands by frequency."""

    ngram: str
    """Its characters; ␣ is the edge of a word."""
    tokens: int
    """Rank when all tokens of a text are counted."""
    types: int
    """Rank when each type is counted once."""


NGRAM_RANKS: Sequence[NgramRank] = (
    NgramRank("th", 1, 156),
    NgramRank("␣th", 1, 292),
    NgramRank("the", 2, 550),
    NgramRank("he␣", 3, 812),
)
"""Footnote on types against tokens, Penn Treebank."""
TRIGRAM_TYPES = 5261
"""The same footnote: so many different trigrams there are."""


SPELLER_SAMPLES: Sequence[tuple[str, str]] = (
    ("grounded", "stipped"),
    ("differ", "coronate"),
    ("Clive", "Dickey"),
    ("Southport", "Strigger"),
    ("Carl", "Wuly"),
    ("Chants", "Tranquels"),
    ("valuables", "migrations"),
)
"""σ(w), and a draw from p_spell(· | e(w))."""
SAMPLE_TEMPERATURES = (0.75, 1.0)
"""Temperatures of the paper's samples of text."""
SAMPLE_VOCABULARIES = (5_000, 60_000)
"""Their smallest and their largest vocabulary."""
