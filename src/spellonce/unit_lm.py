"""pure-char and pure-bpe: one language model over the pieces of words (the paper's baselines).

A token is the sequence of its units, its score the sum over them. EOS can only come where a word
may begin, and UNK, which stands in training texts for words that nobody knows, is read but never
predicted: with characters as units the probabilities of all words and EOS add up to one. With BPE
a word has many segmentations and only the canonical one is scored, so they add up to less;
`all_segmentations_nats` estimates what the others are worth.

    T window, B rails, N positions, K samples
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.batching import Window
from spellonce.lexeme_lm import LexemeLM, LexemeModel, State
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID, Lexicon, Spellings
from spellonce.network import (
    MAX_LENGTH,
    TRIES,
    Accept,
    Dice,
    Moment,
    Network,
    WindowNats,
    first_accepted,
)
from spellonce.noise import Noise
from spellonce.streams import side_by_side, split_up
from spellonce.text import EOS
from spellonce.units import Units

_BEGINNING = (UNK_ID,)
"""What cannot come where a word begins,"""
_INSIDE = (UNK_ID, EOS_ID)
"""and what cannot come inside one."""


class UnitLM(Network):
    """A language model over units."""

    def __init__(self, lm: LexemeModel, units: Units) -> None:
        super().__init__()
        self.lm = lm
        self.units = units
        self._ends = torch.from_numpy(units.ends_word())
        self._ends_in_piece = units.kind == "bpe"

    @property
    def n_ids(self) -> int:
        """All units."""
        return len(self.units)

    def settle(self, inputs: NDArray[np.int64], spellings: Spellings) -> None:
        """What is usual, for the head that looks back."""
        if isinstance(self.lm, LexemeLM):
            self.lm.settle(self.lm.embed(torch.from_numpy(inputs).to(self.device)))

    def initialise(self, seed: int, lexicon: Lexicon) -> None:
        """Seeded weights; what matters is how often the units were seen, not the types."""
        generator = torch.Generator().manual_seed(seed)
        self.lm.initialise(generator, torch.from_numpy(self.units.counts.copy()))

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""
        return self.lm.zero_state(n_rails)

    def _nats(self, hidden: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(sum, nats of each) of units that follow others; UNK costs nothing.  (N, D), (N,)"""
        begins = self._ends.to(inputs.device)[inputs]
        known = targets != UNK_ID
        total = hidden.new_zeros(())
        nats = hidden.new_zeros(len(targets))
        for at, banned in ((begins & known, _BEGINNING), (~begins & known, _INSIDE)):
            place = at.nonzero()[:, 0]
            if len(place):
                part, each = self.lm.table.nats(hidden[place], targets[place], banned)
                total = total + part
                nats[place] = each.detach()
        return total, nats

    def window_nats(
        self,
        window: Window,
        spellings: Spellings,
        state: State,
        noise: Noise | None,
    ) -> tuple[WindowNats, State]:
        """The sum over the units of a window."""
        inputs = torch.from_numpy(window.inputs).to(self.device)
        targets = torch.from_numpy(window.targets).to(self.device)
        hidden, state = self.lm(inputs, state, noise)
        total, _ = self._nats(hidden.dropped.flatten(0, 1), inputs.flatten(), targets.flatten())
        return WindowNats(total, total.new_zeros(()), hidden), state

    # --- scoring ------------------------------------------------------------------------------

    def _segments(
        self, lexicon: Lexicon, tokens: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The units of tokens, and where each token begins among them."""
        of: dict[str, list[int]] = {EOS: [EOS_ID]}
        for token in set(tokens) - {EOS}:
            of[token] = self.units.segment(lexicon.alphabet.replace(token))
        starts = np.cumsum([0, *(len(of[token]) for token in tokens)])
        units = np.fromiter((u for token in tokens for u in of[token]), np.int64, int(starts[-1]))
        return units, starts[:-1]

    @torch.no_grad()
    def score_texts(
        self, lexicon: Lexicon, texts: Sequence[Sequence[str]], *, cells: int = 4000
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Nats of every token; there are no parts."""
        segments = [self._segments(lexicon, tokens) for tokens in texts]
        streams = [units for units, _ in segments]
        units = np.concatenate([np.zeros(0, dtype=np.int64), *streams])
        nats = np.zeros(len(units))
        for n_rails, strips in side_by_side(streams, cells):
            state = self.zero_state(n_rails)
            for strip in strips:
                x = torch.from_numpy(strip.inputs).to(self.device)
                hidden, state = self.lm(x, state)
                real = torch.from_numpy(strip.real).to(self.device)
                h, before = hidden.states.flatten(0, 1)[real], x.flatten()[real]
                targets = torch.from_numpy(units[strip.places]).to(self.device)
                nats[strip.places] = self._nats(h, before, targets)[1].double().cpu().numpy()
        return [
            (np.add.reduceat(own, starts) if len(starts) else np.zeros(0), np.zeros(len(starts)))
            for own, (_, starts) in zip(split_up(nats, streams), segments, strict=True)
        ]

    @torch.no_grad()
    def all_segmentations_nats(
        self, lexicon: Lexicon, tokens: Sequence[str], places: Sequence[int], *, n_samples: int,
        seed: int,
    ) -> NDArray[np.float64]:  # fmt: skip
        """−log of the estimated probability of some tokens, summed over their segmentations.

        The history of each is the canonical one. Segmentations are drawn unit by unit from the
        model itself, restricted to units that spell the word; the product of the masses Z that
        the restriction leaves is then an unbiased estimate of the whole sum (importance sampling).
        The canonical one is known and is not estimated, so the sum is never less than it.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        wanted = sorted(set(places))
        nats: dict[int, float] = {}
        moment, done = self.begin(lexicon, []), 0
        for place in wanted:
            if place > done:
                moment = self.read(lexicon, tokens[done:place], moment.state)
                done = place
            word = tokens[place]
            nats[place] = (
                -float(self.lm.table.log_probs(moment.hidden, _BEGINNING)[0, EOS_ID])
                if word == EOS
                else self._word_nats(lexicon.alphabet.replace(word), moment, n_samples, generator)
            )
        return np.array([nats[place] for place in places])

    def _word_nats(
        self, word: str, moment: Moment, n_samples: int, generator: torch.Generator
    ) -> float:
        canonical = self.units.segment(word)
        fitting = self._fitting(word)
        n = 1 + n_samples  # the first is no sample: it goes along the canonical segmentation
        at = np.zeros(n, dtype=np.int64)  # how much of the word each has spelled
        log_weight = np.zeros(n)
        hidden = moment.hidden.expand(n, -1)
        state: State = [
            tuple(t.expand(t.shape[0], n, *t.shape[2:]).contiguous() for t in part)
            for part in moment.state
        ]  # rails are dimension 1
        taken: list[list[int]] = [[] for _ in range(n)]
        ended = np.zeros(n, dtype=bool)
        first = True
        while not ended.all():
            log_probs = self.lm.table.log_probs(hidden, _BEGINNING if first else _INSIDE).double()
            units = np.zeros(n, dtype=np.int64)
            for i in np.flatnonzero(~ended).tolist():
                ids, lengths, ends = fitting[at[i]]
                here = log_probs[i, ids]
                if i == 0:
                    pick = ids.tolist().index(canonical[len(taken[0])])
                    log_weight[i] += float(here[pick])
                else:
                    pick = int(torch.multinomial(here.softmax(0), 1, generator=generator))
                    log_weight[i] += float(here.logsumexp(0))
                units[i] = int(ids[pick])
                taken[i].append(int(ids[pick]))
                at[i] += lengths[pick]
                ended[i] = ends[pick]
            states, state = self.lm(torch.from_numpy(units).to(self.device)[None], state)
            hidden, first = states.states[-1], False
        log_weight[1:] -= np.log(n_samples)
        others = [i for i in range(1, n) if taken[i] != canonical]
        return -float(np.logaddexp.reduce(log_weight[[0, *others]]))

    def _fitting(self, word: str) -> list[tuple[Tensor, list[int], list[bool]]]:
        """For each place in a word: the units that may come there, their lengths, their ends."""
        by_name = self._by_piece
        rows = []
        for start in range(len(word) + 1):
            found: list[tuple[int, int, bool]] = []
            for stop in range(start, len(word) + 1):
                piece = word[start:stop]
                is_last = stop == len(word)
                # A unit that ends the word is its last piece; of characters, an empty one.
                keys = [(piece, False)] if piece and not (is_last and self._ends_in_piece) else []
                keys += [(piece, True)] if is_last else []
                found += [(by_name[key], stop - start, key[1]) for key in keys if key in by_name]
            ids = torch.tensor([unit for unit, _, _ in found], device=self.device)
            rows.append((ids, [n for _, n, _ in found], [end for _, _, end in found]))
        return rows

    @cached_property
    def _by_piece(self) -> dict[tuple[str, bool], int]:
        """(what a unit writes, whether it ends the word) → unit."""
        ends = self.units.ends_word().tolist()
        return {(self.units.spelling(u), ends[u]): u for u in range(N_SPECIAL, len(self.units))}

    # --- speaking -----------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, lexicon: Lexicon, tokens: Sequence[str], state: State) -> Moment:
        """Reads tokens (at least one)."""
        units, _ = self._segments(lexicon, tokens)
        return self._read_units(units, state)

    def _read_units(self, units: NDArray[np.int64], state: State) -> Moment:
        for at in range(0, len(units), 2000):
            x = torch.from_numpy(units[at : at + 2000]).to(self.device)
            hidden, state = self.lm(x[:, None], state)
        return Moment(hidden.states[-1], state)

    @torch.no_grad()
    def next_token(self, lexicon: Lexicon, moment: Moment, dice: Dice, accept: Accept) -> str:
        """Units until a word ends."""
        words: list[str] = []
        for _ in range(TRIES):
            word = self._draw(moment, dice, MAX_LENGTH, _BEGINNING)
            if word == EOS or accept(word):
                return word
            words.append(word)
        return first_accepted(words, accept)

    def _draw(self, moment: Moment, dice: Dice, max_length: int, banned: tuple[int, ...]) -> str:
        ids: list[int] = []
        while len(ids) < max_length:
            log_probs = self.lm.table.log_probs(moment.hidden, banned if not ids else _INSIDE)
            ids.append(int(dice.draw(log_probs)))
            if ids[-1] == EOS_ID:
                return EOS
            if self._ends[ids[-1]]:
                break
            moment = self._read_units(np.array(ids[-1:]), moment.state)
        return self.units.join(ids)

    @torch.no_grad()
    def spell(
        self,
        lexicon: Lexicon,
        moment: Moment,
        n: int,
        dice: Dice,
        max_length: int,
        prefix: str = "",
    ) -> list[str]:
        """Words that may come at this moment."""
        return [self._draw(moment, dice, max_length, _INSIDE) for _ in range(n)]
