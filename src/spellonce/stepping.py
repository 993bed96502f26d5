"""A two-level model one token at a time: all that may come next, and how likely each of it is.

What `adaptive` scores in pieces is here a distribution, to be drawn from or spent by a coder:

    p(s | ctx) = π_0 · p_static(s | ctx) + Σ_k π_k · c_k(s | h)

in two choices, so that a step costs what the split softmax costs. The *first* is among the lexemes
of the head, the tails, and the novel words that are remembered; if it falls on a tail, the *second*
is among the lexemes of that tail. UNK, in the first, is a word that is none of them: it is spelled.

    V lexemes, D width, S strings in memory, K components
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.adaptive import Adaptation, Floats, Piece, Reader
from spellonce.errors import ConfigError
from spellonce.lexicon import EOS_ID, UNK_ID, Lexicon
from spellonce.network import MAX_LENGTH, TRIES, Accept, Dice, Moment, first_accepted
from spellonce.ngrams import Expansion
from spellonce.speller import SpellingSteps
from spellonce.text import EOS
from spellonce.tokenizer import MERGE
from spellonce.two_level import TwoLevel, as_speller


@dataclass(frozen=True)
class Outlook:
    """All that may come next. What is drawn or coded is the word after ◇ (`Alphabet.replace`)."""

    lexicon: Lexicon
    bounds: Sequence[int]
    """Ids at which the head, and then each tail, begins; then V."""
    first: Floats
    """p of each lexeme of the head (UNK: a word that is not here), each tail, each of `words`."""
    words: Sequence[str]
    """Novel words that are remembered."""
    within: Callable[[int], Floats]
    """p of each lexeme of a tail, 1 or above, and of that tail to be the first choice."""
    spell: Callable[[], SpellingSteps]
    """Spells what UNK stands for."""

    def place(self, word: str) -> tuple[int, int | None]:
        """(first choice, second choice if there is one) of a word; (UNK, None): not here."""
        lexeme = self.lexicon.lexeme_id(word)
        if lexeme == UNK_ID:
            known = word in self.words
            return (self._n_first + self.words.index(word) if known else UNK_ID), None
        if lexeme < self.bounds[1]:
            return lexeme, None
        tail = bisect_right(self.bounds, lexeme) - 1
        return self.bounds[1] + tail - 1, lexeme - self.bounds[tail]

    @property
    def _n_first(self) -> int:
        return len(self.first) - len(self.words)

    def tail(self, first: int) -> int | None:
        """The tail that the first choice fell on, if it did."""
        return first - self.bounds[1] + 1 if self.bounds[1] <= first < self._n_first else None

    def word(self, first: int, second: int | None = None) -> str | None:
        """The word of two choices; None for UNK, which is to be spelled."""
        if first == UNK_ID:
            return None
        if first >= self._n_first:
            return self.words[first - self._n_first]
        tail = self.tail(first)
        if tail is None or second is None:
            return self.lexicon.types[first]
        return self.lexicon.types[self.bounds[tail] + second]

    def every(self) -> Floats:
        """p of every lexeme (UNK: a word that is not here), then of each of `words`."""
        tails = [self.within(tail) for tail in range(1, len(self.bounds) - 1)]
        n_head = self.bounds[1]
        return np.concatenate([self.first[:n_head], *tails, self.first[self._n_first :]])

    def number(self, word: str) -> int:
        """The place of a word in `every`."""
        lexeme = self.lexicon.lexeme_id(word)
        if lexeme == UNK_ID and word in self.words:
            return self.lexicon.n_lexemes + self.words.index(word)
        return lexeme


class Stepper(Reader):
    """Reads one stream token by token, and says before each what may come."""

    def __init__(
        self,
        network: TwoLevel,
        lexicon: Lexicon,
        adaptation: Adaptation,
        scale: Mapping[str, Tensor] | None = None,
    ) -> None:
        if adaptation.renormalise:
            raise ConfigError("what is renormalised cannot be taken step by step")
        super().__init__(network, lexicon, adaptation, scale)
        self._bounds = np.array(self.network.lm.table.bounds)
        # The place of each lexeme among the first choices.
        n_head = int(self._bounds[1])
        tail = np.searchsorted(self._bounds, np.arange(lexicon.n_lexemes), "right") - 1
        self._first = np.where(tail == 0, np.arange(lexicon.n_lexemes), n_head + tail - 1)
        self._unigram = np.zeros(0)
        if (mixture := self.network.mixture) is not None:
            self._unigram = np.bincount(self._first, mixture.ngrams.unigram).astype(np.float64)
        self._moment: Moment | None = None

    def read(self, tokens: Sequence[str]) -> Piece:
        """Scores the next tokens of the stream."""
        self._moment = None
        return super().read(tokens)

    def moment(self) -> Moment:
        """Where it is in the text."""
        if self._moment is None:
            before = self.lexicon.types[self._before]
            self._moment = self.network.read(self.lexicon, [before], self._state)
        return self._moment

    @torch.no_grad()
    def outlook(self) -> Outlook:
        """What may come next."""
        moment, table = self.moment(), self.network.lm.table
        hidden = moment.hidden  # (1, D)
        head = table.head_log_probs(hidden)[0].double().exp().cpu().numpy()
        counts, trust = self._counts(moment)
        p = head
        if counts is not None:
            p = (1 - trust) * head + trust * counts.sums(self._unigram, self._first)
        static, strings, cached = self._cached(hidden[0])
        p = static * p
        is_lexeme = strings < self.lexicon.n_lexemes
        p += np.bincount(self._first[strings[is_lexeme]], cached[is_lexeme], len(p))
        known = self._known(hidden[0], strings[~is_lexeme], cached[~is_lexeme], p)

        def within(tail: int) -> Floats:
            low, high = int(self._bounds[tail]), int(self._bounds[tail + 1])
            share = head[int(self._bounds[1]) + tail - 1]
            with torch.no_grad():
                log_probs = table.tail_log_probs(hidden, tail)[0]
            own: Floats = share * log_probs.double().exp().cpu().numpy()
            if counts is not None and self.network.mixture is not None:
                seen = self._inside(counts, self.network.mixture.ngrams.unigram, low, high)
                own = (1 - trust) * own + trust * seen
            here = (strings >= low) & (strings < high)
            both: Floats = static * own + np.bincount(strings[here] - low, cached[here], high - low)
            return both

        return Outlook(
            self.lexicon, self._bounds.tolist(), np.concatenate([p, list(known.values())]),
            list(known), within, lambda: as_speller(self.network.novel).begin(hidden[0]),
        )  # fmt: skip

    def _counts(self, moment: Moment) -> tuple[Expansion | None, float]:
        """(what the counts say, how far they are trusted)."""
        mixture = self.network.mixture
        if mixture is None:
            return None, 0.0
        found = mixture.ngrams.expand(moment.state[-1][0][:, 0].tolist())
        kind = torch.tensor([found.kind], device=moment.hidden.device)
        return found, float(torch.sigmoid(mixture.logit(moment.hidden, kind).double()))

    @staticmethod
    def _inside(counts: Expansion, unigram: Floats, low: int, high: int) -> Floats:
        """p of words from `low` to `high` by the counts."""
        here = (counts.words >= low) & (counts.words < high)
        seen = np.bincount(counts.words[here] - low, counts.p[here], high - low)
        total: Floats = counts.unigram * unigram[low:high] + seen
        return total

    def _cached(self, hidden: Tensor) -> tuple[float, NDArray[np.int64], Floats]:
        """(π_0, strings in memory, Σ_k π_k c_k of each)."""
        if self.memory is None or self.adaptation.cache is None:
            return 1.0, np.zeros(0, dtype=np.int64), np.zeros(0)
        strings, found = self.memory.distribution(hidden)
        log_weights = self.adaptation.cache.log_weights(found, hidden[None])[0]
        cached: Floats = (np.exp(found.log_p) * np.exp(log_weights[1:])).sum(1)
        return float(np.exp(log_weights[0])), strings, cached

    def _known(
        self, hidden: Tensor, strings: NDArray[np.int64], cached: Floats, p: Floats
    ) -> dict[str, float]:
        """p of each novel word that is remembered; what growth takes from UNK is taken off p."""
        known: dict[str, float] = {}
        if self.memory is not None:
            for number, share in zip(strings.tolist(), cached.tolist(), strict=True):
                if share > 0:  # what cannot be summoned is spelled
                    known[self.memory.word(number)] = share
        if self.grown is not None and self.adaptation.growth is not None:
            chance = self.grown.look(hidden)
            log_each, log_new = chance.log_all(self.adaptation.growth)
            for word, share in zip(self.grown.words(), np.exp(log_each).tolist(), strict=True):
                known[word] = known.get(word, 0.0) + p[UNK_ID] * share
            p[UNK_ID] *= np.exp(log_new)
        return known

    @torch.no_grad()
    def take(self, token: str) -> None:
        """The token that came; it is learned from."""
        moment = self.moment()
        lexeme = self.lexicon.lexeme_id(token)
        word = self.lexicon.alphabet.replace(token)
        if self.memory is not None:
            string = self.memory.numbers([word]) if lexeme == UNK_ID else [lexeme]
            self.memory.remember(moment.hidden, np.array(string))
        if self.grown is not None and lexeme == UNK_ID:
            self.grown.learn(word, moment.hidden[0])
        self._state = self.network.told(self.lexicon, moment, token)
        self._before = lexeme
        self._moment = None
        self._learn([token])

    def expectation(self, token: str) -> tuple[float, int]:
        """(entropy of what may come, in bits; the rank of what comes) before a token is taken.

        What may come are the lexemes, words that are remembered, and any other word as one.
        """
        outlook = self.outlook()
        p = outlook.every()
        own = p[outlook.number(self.lexicon.alphabet.replace(token) if token != EOS else EOS)]
        there = p[p > 0]
        return float(-(there * np.log2(there)).sum()), 1 + int((p > own).sum())

    def goes_on(self, is_joined: NDArray[np.bool_], joins: Callable[[str], bool]) -> float:
        """p that what comes next is joined to what came before, given which lexemes would be.

        `joins` says it of any word, `is_joined` of each lexeme; of what is spelled, the first
        symbol says it.
        """
        outlook = self.outlook()
        p = outlook.every()
        n = self.lexicon.n_lexemes
        total: float = float(p[:n][is_joined].sum())
        remembered = zip(outlook.words, p[n:].tolist(), strict=True)
        total += float(sum(share for word, share in remembered if joins(word)))
        if MERGE in self.lexicon.alphabet.chars:
            (symbol,) = self.lexicon.alphabet.encode(MERGE)
            total += float(p[UNK_ID] * outlook.spell().probabilities()[symbol])
        return total

    def next_token(self, dice: Dice, accept: Accept) -> str:
        """Draws a token; a word that is spelled is drawn again until it is accepted."""
        outlook = self.outlook()
        p = torch.from_numpy(outlook.every()).to(self.network.device)
        drawn = int(dice.draw(p.log()[None]))
        if drawn == EOS_ID:
            return EOS
        if drawn >= self.lexicon.n_lexemes:
            return outlook.words[drawn - self.lexicon.n_lexemes]
        if drawn != UNK_ID:
            return self.lexicon.types[drawn]
        moment = self.moment()
        words = self.network.spell(self.lexicon, moment, TRIES, dice, MAX_LENGTH)
        new = [word for word in words if outlook.place(word)[0] == UNK_ID]
        return first_accepted([word for word in new if accept(word)] or words, accept)

    def restore(self, kept: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        super().restore(kept)
        self._moment = None
