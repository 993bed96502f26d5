"""Pseudowords: what the speller makes up, like some words or for a place in a text.

Words are drawn from p_spell(· | vector), where the vector is a mean of embeddings or a hidden
state, and those that are not wanted are drawn again: what is left is p_spell given the constraints.
A prefix is not left to luck, it is read before drawing begins. Nor, in two-level models, is a
suffix: whatever a drawn word may begin with is tried with it, and counts as much as it is likely
there.

A context may go on behind the gap. Then many words are drawn for what is before it, an embedding is
inferred for each from its spelling, and each counts as much as it makes what follows likely.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from spellonce.errors import ConfigError
from spellonce.generation import Generator, check_temperature
from spellonce.lexicon import N_SPECIAL, OTHER, Spellings
from spellonce.network import Dice, Moment
from spellonce.text import GAP, gap_in
from spellonce.two_level import TwoLevel
from spellonce.vectors import Vectors

_CANDIDATES, _ENOUGH, _LEAST = 20, 1000, 4
"""Words that are drawn for each that is wanted, where what follows a gap has a say; how many are
enough in all; but so many for each."""
_BATCH, _MOST_DRAWS = 1000, 20_000
"""Words that are drawn at a time, at most, and in all before it is given up."""


@dataclass(frozen=True)
class Constraints:
    """Which words are wanted."""

    novel_only: bool = False
    """No word of the training text, in whatever case, lexeme or not."""
    min_length: int = 1
    max_length: int = 30
    prefix: str = ""
    suffix: str = ""
    letters: str = ""
    """The characters that may be used; none: all."""
    exclude: frozenset[str] = field(default_factory=frozenset)
    """Words that are not wanted, in whatever case."""
    min_distance: int = 0
    """Edits, at least, between the word and any word of the training text."""
    min_bits: float = 0.0
    """Bits of the spelling, −log2 p_spell, at least,"""
    max_bits: float = math.inf
    """and at most."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise ConfigError(
                f"lengths from {self.min_length} to {self.max_length} leave no words: "
                "1 <= --min-length <= --max-length"
            )
        if max(len(self.prefix), len(self.suffix)) > self.max_length:
            raise ConfigError("the prefix or suffix alone is longer than --max-length")
        if self.min_distance < 0:
            raise ConfigError(f"--min-distance must not be negative, got {self.min_distance}")
        if not self.min_bits <= self.max_bits:
            raise ConfigError(f"bits from {self.min_bits} to {self.max_bits} leave no words")
        unusable = set(self.prefix + self.suffix) - set(self.letters or self.prefix + self.suffix)
        if unusable:
            raise ConfigError(
                f"the prefix or suffix has {min(unusable)!r}, which --letters has not"
            )
        object.__setattr__(self, "exclude", frozenset(map(str.casefold, self.exclude)))


@dataclass(frozen=True)
class Wug:
    """A word that was made up."""

    word: str
    bits: float | None
    """−log2 p_spell at temperature 1; None where the model has no speller."""
    times: int = 1
    """How often it was drawn."""


@dataclass(frozen=True)
class Draws:
    """What was found."""

    wugs: list[Wug]
    refused: Counter[str]
    """Why words were not wanted, and how many."""

    @property
    def words(self) -> list[str]:
        """Without their bits."""
        return [wug.word for wug in self.wugs]

    def why(self) -> str:
        """Why there are no more."""
        told = [f"{n:,} {reason}" for reason, n in self.refused.most_common(3)]
        told += ["all others had come before"] if self.wugs or not told else []
        return f"of those drawn, {', '.join(told)}"


class _Judge:
    """Says why a word is not wanted."""

    def __init__(self, generator: Generator, constraints: Constraints) -> None:
        self._generator, self._wanted = generator, constraints
        self._seen: set[str] = set()
        if constraints.novel_only or constraints.min_distance:
            types = generator.lexicon.types[N_SPECIAL:]
            self._seen = {generator.bare(word).casefold() for word in types}
        self._by_length: dict[int, list[str]] = {}
        for word in self._seen if constraints.min_distance else ():
            self._by_length.setdefault(len(word), []).append(word)

    def against(self, token: str) -> str | None:
        """What is wrong with a token, but for its bits; None: nothing."""
        wanted = self._wanted
        if not self._generator.is_token(token) or OTHER in token:
            return "were no words"
        word = self._generator.bare(token)
        if not word.strip():
            return "were no words"
        if len(word) < wanted.min_length:
            return "were too short"
        if len(word) > wanted.max_length:
            return "were too long"
        if not (word.startswith(wanted.prefix) and word.endswith(wanted.suffix)):
            return "had not the prefix or suffix"
        if wanted.letters and set(word) - set(wanted.letters):
            return "had other letters"
        if word.casefold() in wanted.exclude:
            return "were excluded"
        if wanted.novel_only and word.casefold() in self._seen:
            return "were words of the training text"
        if wanted.min_distance and self._is_near(word.casefold()):
            return "were too like words of the training text"
        return None

    def _is_near(self, word: str) -> bool:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import extractOne

        most = self._wanted.min_distance - 1
        lengths = range(len(word) - most, len(word) + most + 1)  # others are further away
        return any(
            extractOne(word, self._by_length[n], scorer=Levenshtein.distance, score_cutoff=most)
            for n in lengths
            if n in self._by_length
        )


def draw_words(
    generator: Generator,
    n: int = 10,
    *,
    like: Sequence[str] = (),
    context: str | None = None,
    temperature: float = 1.0,
    constraints: Constraints | None = None,
    seed: int = 0,
    wanted_still: Callable[[], bool] = lambda: True,
    vectors: Vectors | None = None,
) -> Draws:
    """Up to n different words, fewer where no more are found or are not wanted any longer.

    `vectors`: those of a two-level model; what it knows of unseen words need be learned but once.
    """
    check_temperature(temperature)
    if n < 1:
        raise ConfigError(f"-n must be at least 1, got {n}")
    wanted = constraints or Constraints()
    following = "" if context is None else gap_in(context)[2]
    moment = _moment(generator, vectors, like, context)
    dice = Dice(temperature, torch.Generator(generator.network.device).manual_seed(seed))
    n_drawn = min(_CANDIDATES * n, max(_ENOUGH, _LEAST * n)) if following.strip() else n
    found, refused = _drawn(generator, moment, n_drawn, dice, wanted, wanted_still)
    if following.strip() and len(found) > 1 and wanted_still():
        if vectors is None:
            raise ConfigError(f"what follows {GAP} needs a two-level model: leave it out")
        found = _resampled(vectors, str(context), found, n, seed)
    return Draws(found[:n], refused)


def _moment(
    generator: Generator, vectors: Vectors | None, like: Sequence[str], context: str | None
) -> Moment:
    """Where to spell; words that are no lexemes have the embeddings that are inferred for them."""
    network = generator.network
    for word in like:
        if not word.strip():
            raise ConfigError(f"{word!r} is no word: name one that others are to resemble")
    is_known = vectors is None or all(word in vectors for word in like)
    if is_known or context is not None or not isinstance(network, TwoLevel) or vectors is None:
        return generator.moment(like, context)
    rows = torch.from_numpy(np.stack([vectors.of(word) for word in like]))
    return network.at_embedding(rows.mean(0).to(network.device))


def _drawn(
    generator: Generator,
    moment: Moment,
    n: int,
    dice: Dice,
    wanted: Constraints,
    wanted_still: Callable[[], bool],
) -> tuple[list[Wug], Counter[str]]:
    judge = _Judge(generator, wanted)
    network, lexicon = generator.network, generator.lexicon
    if (wanted.min_bits, wanted.max_bits) != (0.0, math.inf) and not isinstance(network, TwoLevel):
        raise ConfigError("--min-bits and --max-bits need a two-level model: leave them out")
    for what, part in (("begins", wanted.prefix), ("ends", wanted.suffix)):
        if not set(part) <= set(lexicon.alphabet.chars):
            raise ConfigError(f"the model knows no spelling that {what} with {part!r}")
    judged: dict[str, str | None] = {}
    found: dict[str, Wug] = {}
    refused: Counter[str] = Counter()
    times: Counter[str] = Counter()
    batch = min(max(4 * n, 32), _BATCH)
    n_drawn = 0
    is_ended = bool(wanted.suffix) and isinstance(network, TwoLevel)
    while n_drawn < _MOST_DRAWS:
        # Longer than the longest allowed, so that what was cut off is known and left out.
        drawn = network.spell(lexicon, moment, batch, dice, wanted.max_length + 2, wanted.prefix)
        if is_ended:
            drawn = _ended(generator, moment, drawn, dice, wanted)
        fresh = dict.fromkeys(token for token in drawn if token not in judged)
        for token in fresh:
            judged[token] = judge.against(token) if wanted_still() else "came too late"
        good = [token for token in fresh if judged[token] is None]
        bits = _bits(generator, moment, good)
        for token, own in zip(good, bits, strict=True):
            if own is not None and not wanted.min_bits <= own <= wanted.max_bits:
                judged[token] = "were too likely or too unlikely"
            else:
                found.setdefault(generator.bare(token), Wug(generator.bare(token), own))
        refused.update(reason for token in drawn if (reason := judged[token]) is not None)
        times.update(generator.bare(token) for token in drawn if judged[token] is None)
        if len(found) >= n or dice.temperature == 0 or not wanted_still():
            break
        n_drawn, batch = n_drawn + batch, min(2 * batch, _BATCH)
    return [replace(wug, times=times[wug.word]) for wug in found.values()], refused


def _ended(
    generator: Generator, moment: Moment, drawn: list[str], dice: Dice, wanted: Constraints
) -> list[str]:
    """As many words that begin as those drawn do, and end as they are wanted to.

    A beginning b comes among those drawn as often as p(b …) says; with p(suffix EOW | b) for a
    weight, the words b + suffix are what p_spell makes of them (importance sampling): exactly so at
    temperature 1, and nearly at others.
    """
    network, prefix, suffix = generator.network, wanted.prefix, wanted.suffix
    assert isinstance(network, TwoLevel)
    lengths = range(max(0, wanted.min_length - len(suffix)), wanted.max_length - len(suffix) + 1)
    begun = Counter(word[:n] for word in drawn for n in lengths if n <= len(word))
    begun = Counter({b: n for b, n in begun.items() if (b + suffix).startswith(prefix)})
    if not begun:
        return []
    alphabet, speller = generator.lexicon.alphabet, network.speller_at(moment)
    hidden = moment.hidden.expand(len(begun), -1)
    with torch.no_grad():
        whole = speller.nats(hidden, Spellings.of(alphabet, [b + suffix for b in begun]))
        # All that is drawn begins with the prefix, however short a beginning is.
        part = Spellings.of(alphabet, [b if len(b) >= len(prefix) else prefix for b in begun])
        before = speller.nats(hidden, replace(part, cut=np.ones(len(part), dtype=bool)))
    log_weights = (before - whole).double().cpu() / max(dice.temperature, 1e-6)
    log_weights += torch.tensor(list(begun.values()), dtype=torch.float64).log()
    words = list(begun)
    if dice.temperature == 0:
        order = log_weights.argsort(descending=True, stable=True)[: len(drawn)]
    else:
        weights = log_weights.softmax(0).to(dice.generator.device)
        order = torch.multinomial(weights, len(drawn), replacement=True, generator=dice.generator)
    return [words[i] + suffix for i in order.tolist()]


@torch.no_grad()
def _bits(generator: Generator, moment: Moment, tokens: Sequence[str]) -> list[float | None]:
    """−log2 p_spell of tokens at a moment, where there is a speller."""
    network = generator.network
    if not isinstance(network, TwoLevel):
        return [None] * len(tokens)
    spelled = Spellings.of(generator.lexicon.alphabet, list(tokens))
    nats = network.speller_at(moment).nats(moment.hidden.expand(len(tokens), -1), spelled)
    return [float(one) / math.log(2) for one in nats]


def _resampled(
    vectors: Vectors, context: str, found: Sequence[Wug], n: int, seed: int
) -> list[Wug]:
    """Some of them, as likely as they are and make what follows the gap: without replacement."""
    nats = vectors.following_nats(context, [wug.word for wug in found])
    nats -= np.log([wug.times for wug in found])
    # The n largest of log-weights with Gumbel noise are n draws without replacement.
    noise = np.random.default_rng(seed).gumbel(size=len(nats))
    order = np.argsort(nats - noise, kind="stable")[:n]
    return [found[i] for i in order.tolist()]


def excluded(words: Iterable[str]) -> frozenset[str]:
    """Words to exclude, one a line."""
    return frozenset(word.strip() for word in words if word.strip())
