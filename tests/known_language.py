"""A language whose entropy is known: closed lexicons, a Markov chain of word classes, open words.

A line is a walk of the chain from line break to line break. A word of a class is either one of its
closed list, or made up on the spot: a stem C(VC)+ drawn letter by letter, and a suffix of the
class. The class of a word can be told from the word, so the chain is observable and
P(token | tokens before it) = P(token | token before it) has no hidden sum in it:

    P(w | v) = P(class of w | class of v) · P(w | class of w)

Two truths follow, which need no model: the bits of any text (`bits`) and, in the limit, the bits
per character (`bits_per_char`). They are computed in different ways, one from strings, one from
the parameters, and the tests hold them against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

EOS = "\n"
"""The line break: a token, and a class of its own."""

Distribution = Mapping[str, float]


def zipf(words: str) -> dict[str, float]:
    """Words by falling frequency, P ∝ 1/rank.

    >>> zipf("a b")
    {'a': 0.6666666666666666, 'b': 0.3333333333333333}
    """
    ranked = words.split()
    total = sum(1 / rank for rank in range(1, len(ranked) + 1))
    return {word: 1 / rank / total for rank, word in enumerate(ranked, 1)}


def entropy(distribution: Distribution) -> float:
    """Bits.

    >>> entropy({"a": 0.5, "b": 0.25, "c": 0.25, "d": 0.0})
    1.5
    """
    return -sum(p * math.log2(p) for p in distribution.values() if p > 0)


def mean_length(distribution: Distribution) -> float:
    """Characters of a word on the average."""
    return sum(p * len(word) for word, p in distribution.items())


@dataclass(frozen=True)
class Stems:
    """C(VC)^k with geometric k ≥ 1; all letters are drawn independently."""

    consonants: Distribution
    vowels: Distribution
    p_stop: float
    """After each syllable: the probability that it was the last."""

    def p(self, stem: str) -> float:
        """The probability of a stem; 0 if it is none."""
        k, rest = divmod(len(stem), 2)
        if k < 1 or not rest:
            return 0.0
        letters = [
            (self.vowels if i % 2 else self.consonants).get(c, 0.0) for i, c in enumerate(stem)
        ]
        return math.prod(letters) * (1 - self.p_stop) ** (k - 1) * self.p_stop

    def draw(self, rng: Random) -> str:
        """A stem."""
        letters = [_draw(rng, self.consonants)]
        while len(letters) == 1 or rng.random() >= self.p_stop:
            letters += [_draw(rng, self.vowels), _draw(rng, self.consonants)]
        return "".join(letters)

    @property
    def bits(self) -> float:
        """H(stem) = H(C) + E[k]·(H(V) + H(C) + H(stop))."""
        stop = entropy({"stop": self.p_stop, "go on": 1 - self.p_stop})
        syllable = entropy(self.vowels) + entropy(self.consonants) + stop
        return entropy(self.consonants) + syllable / self.p_stop

    @property
    def chars(self) -> float:
        """Mean length."""
        return 1 + 2 / self.p_stop


@dataclass(frozen=True)
class WordClass:
    """Words that behave alike: some listed, others made with the suffixes of the class."""

    words: Distribution
    p_open: float = 0.0
    """Probability that a word of the class is made up, not taken from the list."""
    suffixes: Distribution = field(default_factory=dict)


@dataclass(frozen=True)
class Language:
    """The chain, the classes and the stems."""

    classes: Mapping[str, WordClass]
    follow: Mapping[str, Distribution]
    """P(next class | class), with EOS as a class. An EOS never follows an EOS: no empty lines."""
    stems: Stems

    # --- from strings to probabilities --------------------------------------------------------

    def derivations(self, word: str) -> list[tuple[str, float]]:
        """Every way to come by a word: (class, P(word and that way | class))."""
        ways = [
            (name, (1 - c.p_open) * c.words[word])
            for name, c in self.classes.items()
            if word in c.words
        ]
        for name, c in self.classes.items():
            for suffix, p in c.suffixes.items():
                p_stem = self.stems.p(word.removesuffix(suffix)) if word.endswith(suffix) else 0.0
                if p_stem:
                    ways.append((name, c.p_open * p_stem * p))
        return ways

    def derivation(self, word: str) -> tuple[str, float]:
        """The one way to come by a token of the language; an error where that is not so."""
        if word == EOS:
            return EOS, 1.0
        (way,) = self.derivations(word)
        return way

    def p(self, word: str, before: str) -> float:
        """P(word | the token before it); 0 for what is no word."""
        if word != EOS and not self.derivations(word):
            return 0.0
        name, p = self.derivation(word)
        return self.follow[self.derivation(before)[0]].get(name, 0.0) * p

    def bits(self, tokens: Sequence[str]) -> NDArray[np.float64]:
        """−log2 P of each token of a text that follows a line break: the truth about it."""
        return -np.log2([self.p(w, v) for v, w in zip([EOS, *tokens], tokens, strict=False)])

    def p_novel(self, before: str, known: Iterable[str]) -> float:
        """P(the next token is none of those | the token before it)."""
        return 1 - math.fsum(self.p(word, before) for word in known)

    def lexeme_and_spelling_bits(
        self, tokens: Sequence[str], known: Iterable[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`bits`, as a two-level model with the `known` lexemes has to pay them.

        A known word costs −log2 P(w | v). For another the lexeme level says only that it is novel,
        −log2 P(novel | v), and the spelling pays the rest.
        """
        lexemes = set(known)
        bits_novel: dict[str, float] = {}
        total = self.bits(tokens)
        lexeme = total.copy()
        for i, (v, w) in enumerate(zip([EOS, *tokens], tokens, strict=False)):
            if w not in lexemes:
                name = self.derivation(v)[0]
                if name not in bits_novel:
                    bits_novel[name] = -math.log2(self.p_novel(v, lexemes))
                lexeme[i] = bits_novel[name]
        return lexeme, total - lexeme

    # --- from parameters to rates -------------------------------------------------------------

    @cached_property
    def stationary(self) -> dict[str, float]:
        """How often each class is visited."""
        names = list(self.follow)
        matrix = np.array([[self.follow[a].get(b, 0.0) for b in names] for a in names])
        equations = np.vstack([matrix.T - np.eye(len(names)), np.ones(len(names))])
        solution = np.linalg.lstsq(equations, np.array([0.0] * len(names) + [1.0]), rcond=None)[0]
        return dict(zip(names, solution.tolist(), strict=True))

    @property
    def bits_per_token(self) -> float:
        """The entropy rate: of the chain, and of the words of the classes that it visits."""
        bits = 0.0
        for name, share in self.stationary.items():
            bits += share * entropy(self.follow[name])
            if name != EOS:
                c = self.classes[name]
                bits += share * entropy({"open": c.p_open, "closed": 1 - c.p_open})
                bits += share * (1 - c.p_open) * entropy(c.words)
                bits += share * c.p_open * (self.stems.bits + entropy(c.suffixes))
        return bits

    @property
    def chars_per_token(self) -> float:
        """A word and its separator; that of a line's last word is the line break itself."""
        return sum(
            self.stationary[name]
            * (
                (1 - c.p_open) * mean_length(c.words)
                + c.p_open * (self.stems.chars + mean_length(c.suffixes))
                + 1
            )
            for name, c in self.classes.items()
        )

    @property
    def bits_per_char(self) -> float:
        """What no model can beat in the long run."""
        return self.bits_per_token / self.chars_per_token

    @property
    def closed_words(self) -> list[str]:
        """All listed words."""
        return [word for c in self.classes.values() for word in c.words]

    # --- text ---------------------------------------------------------------------------------

    def line(self, rng: Random) -> list[str]:
        """The tokens of a line, the line break included."""
        tokens: list[str] = []
        name = _draw(rng, self.follow[EOS])
        while name != EOS:
            c = self.classes[name]
            if rng.random() < c.p_open:
                tokens.append(self.stems.draw(rng) + _draw(rng, c.suffixes))
            else:
                tokens.append(_draw(rng, c.words))
            name = _draw(rng, self.follow[name])
        return [*tokens, EOS]

    def text(self, n_lines: int, seed: int) -> list[list[str]]:
        """Lines of tokens."""
        rng = Random(seed)
        return [self.line(rng) for _ in range(n_lines)]


def to_string(lines: Iterable[Sequence[str]]) -> str:
    """The text as a file has it.

    >>> to_string([["a", "b", EOS], ["c", EOS]])
    'a b\\nc\\n'
    """
    return "".join(" ".join(line[:-1]) + EOS for line in lines)


def _draw(rng: Random, distribution: Distribution) -> str:
    return rng.choices(list(distribution), list(distribution.values()))[0]


def small_language() -> Language:
    """Five classes, two of them open.

    No class is followed by both open classes. So the lexemes alone tell which kind of novel word
    an UNK was, and the two-level model, which reads only e(UNK) after it, can in principle reach
    the truth; a language where it cannot would measure the paper's model, not this code.
    """
    return Language(
        classes={
            "article": WordClass(zipf("la lu lin")),
            "adjective": WordClass(zipf("mal sil pul tal nul kil")),
            "noun": WordClass(
                zipf("lano kelo milo peno tulo selo nalo lupo"),
                p_open=0.35,
                suffixes={"o": 0.5, "on": 0.3, "okas": 0.2},
            ),
            "verb": WordClass(
                zipf("lame pole sule tile nole kale"),
                p_open=0.35,
                suffixes={"e": 0.6, "es": 0.25, "enim": 0.15},
            ),
            "preposition": WordClass(zipf("al en ul il")),
        },
        follow={
            EOS: {"article": 0.8, "verb": 0.2},
            "article": {"noun": 0.7, "adjective": 0.3},
            "adjective": {"noun": 1.0},
            "noun": {"verb": 0.5, "preposition": 0.2, EOS: 0.3},
            "verb": {"article": 0.45, "preposition": 0.25, EOS: 0.3},
            "preposition": {"article": 1.0},
        },
        stems=Stems(zipf("t k s m p n"), zipf("a i u"), p_stop=0.6),
    )


def miniature_language() -> Language:
    """So small that all its strings can be listed."""
    return Language(
        classes={
            "a": WordClass({"x": 0.75, "tt": 0.25}),
            "b": WordClass({"y": 1.0}, p_open=0.5, suffixes={"o": 0.75, "ot": 0.25}),
        },
        follow={
            EOS: {"a": 0.5, "b": 0.5},
            "a": {"b": 0.75, EOS: 0.25},
            "b": {"a": 0.25, EOS: 0.75},
        },
        stems=Stems({"t": 1.0}, {"a": 0.5, "i": 0.5}, p_stop=0.75),
    )
