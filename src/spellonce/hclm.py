"""HCLM and HCLMcache (Kawakami, Dyer & Blunsom 2017): words made of characters, at both ends.

    characters of w_{i-1} → LSTM → vector → word-level LSTM → h_i → p(w_i) spelled by an LSTM

With a cache, p(w) = λ_i · p_spell(w | h_i) + (1 − λ_i) · Σ attention on the slot that holds w, and
the likelihood sums both routes. No public code exists; what the paper leaves unknown to us is
chosen here:

- a word's vector is the last state of one forward LSTM over its characters; EOS and words of a
  training text that nobody knows (UNK) have learned vectors;
- the decoder is our speller: it sees h_i at every step, not only at the first;
- whether the line ends is one logistic unit on h_i, decided before any spelling;
- UNK is read but never predicted;
- a key is the state that predicted the word; a hit replaces it by the mean of old key and new
  state; attention is softmax(q(h)·key/√D) over the slots in use; λ is a logistic unit on h;
- use decays by 1 % a token and grows by one with each hit or entry; a miss takes the slot with the
  least use, an empty one first; EOS and UNK are not cached;
- one cache per rail, carried from window to window without gradient; entered after scoring.

    T window, B rails, D width
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from spellonce.batching import Window
from spellonce.errors import ConfigError
from spellonce.lexeme_lm import Hidden, LSTMLayer, LSTMStack, State
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
from spellonce.speller import Speller, by_length, last_states, padded
from spellonce.streams import side_by_side, split_up
from spellonce.text import EOS
from spellonce.word_cache import WordCache

_NAMES = 1 << 17
"""Words whose names are known: many more than there are slots."""


@dataclass(frozen=True)
class HCLMConfig:
    """What HCLM has beside its word-level LSTM and its decoder."""

    n_char_embed: int = 50
    """Width of the character embeddings that words are composed from."""
    slots: int = 0
    """Words in the cache; 0: there is none. (Theirs had about 100.)"""
    decay: float = 0.99
    """What is left of the use of a slot after a token."""

    def __post_init__(self) -> None:
        if self.n_char_embed < 1:
            raise ConfigError(f"hclm.n_char_embed must be at least 1, got {self.n_char_embed}")
        if self.slots < 0:
            raise ConfigError(f"hclm.slots must not be negative, got {self.slots}")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"hclm.decay must be above 0 and at most 1, got {self.decay}")


class Composer(nn.Module):
    """characters → vector of a word."""

    def __init__(self, n_symbols: int, n_char_embed: int, n_vector: int) -> None:
        super().__init__()
        self.characters = nn.Parameter(torch.empty(n_symbols, n_char_embed))
        self.special = nn.Parameter(torch.empty(N_SPECIAL, n_vector))
        self.layer = LSTMLayer(n_char_embed, n_vector)

    def initialise(self, generator: torch.Generator) -> None:
        """Seeded weights."""
        with torch.no_grad():
            self.characters.uniform_(-1, 1, generator=generator)
            self.special.uniform_(-0.1, 0.1, generator=generator)
        self.layer.initialise(generator)

    def _run(self, symbols: Tensor, state: State) -> tuple[Tensor, State]:
        out, layer_state = self.layer(functional.embedding(symbols, self.characters), state[0])
        return out, [layer_state]

    def forward(self, ids: NDArray[np.int64], spellings: Spellings) -> Tensor:
        """Vectors of different words, ids being rows of `spellings`.  (N, D)"""
        vectors = self.special[torch.from_numpy(ids.clip(max=N_SPECIAL - 1))]
        spelled = np.flatnonzero(ids >= N_SPECIAL)
        if not len(spelled):
            return vectors
        words = spellings.take(ids[spelled])

        def last_state(rows: NDArray[np.int64], place: Tensor) -> Tensor:
            return last_states(
                padded(words, rows)[0].to(self.characters.device),  # BOW and the characters
                words.lengths()[rows],
                [self.layer.zero_state(len(rows))],
                self._run,
            )

        at = torch.from_numpy(spelled).to(vectors.device)
        return vectors.index_copy(0, at, by_length(words, last_state))


class HCLM(Network):
    """The hierarchical model, with or without a cache."""

    def __init__(
        self, lm: LSTMStack, composer: Composer, decoder: Speller, cache: WordCache | None
    ) -> None:
        super().__init__()
        self.lm = lm
        self.composer = composer
        self.decoder = decoder
        self.ends_line = nn.Linear(lm.n_output, 1)
        self.cache = cache
        self._names: dict[int, str] = {}

    @property
    def n_ids(self) -> int:
        """No type is UNK: all of them can be spelled."""
        return int(np.iinfo(np.int32).max)

    def initialise(self, seed: int, lexicon: Lexicon) -> None:
        """Seeded weights."""
        generator = torch.Generator().manual_seed(seed)
        self.lm.initialise_layers(generator)
        self.composer.initialise(generator)
        symbols = torch.from_numpy(lexicon.symbol_counts(by_types=False))
        self.decoder.initialise(generator, symbols)
        share = float((lexicon.counts[EOS_ID] + 1) / (lexicon.counts.sum() + 2))
        with torch.no_grad():
            self.ends_line.weight.zero_()
            self.ends_line.bias.fill_(float(np.log(share / (1 - share))))
        if self.cache is not None:
            self.cache.initialise(generator)

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""
        state = self.lm.zero_state(n_rails)
        return state if self.cache is None else [*state, self.cache.zero_state(n_rails)]

    def _step(
        self,
        inputs: NDArray[np.int64],
        vectors: Tensor,
        state: State,
        noise: Noise | None,
    ) -> tuple[Tensor, Tensor, State]:
        """(states, the same with dropout, LSTM state) after inputs (T, B), rows of `vectors`."""
        x = vectors[torch.from_numpy(inputs).to(vectors.device)]
        n_own = self.lm.n_parts
        hidden, lm_state = self.lm.run(x, state[:n_own], noise)
        return hidden.states, hidden.dropped, [*lm_state, *state[n_own:]]

    def _nats(
        self,
        states: Tensor,
        targets: NDArray[np.int64],
        spellings: Spellings,
        keys: NDArray[np.int64],
        state: State,
        noise: Noise | None,
    ) -> tuple[Tensor, State]:
        """Nats of targets (T, B), rows of `spellings`, UNK's zero; and the state with its cache.

        `keys` are the names of the targets in the cache.
        """
        flat = targets.ravel()
        device = states.device
        h = states.flatten(0, 1)
        spelled = torch.from_numpy(np.flatnonzero(flat >= N_SPECIAL)).to(device)
        words = spellings.take(flat[flat >= N_SPECIAL])
        n_rails = targets.shape[1]
        own = None if noise is None else noise.at(spelled // n_rails, spelled % n_rails)
        nats = h.new_zeros(len(flat)).index_copy(
            0, spelled, self.decoder.nats(h[spelled], words, own)
        )
        nats = nats.view(states.shape[:2])
        if self.cache is not None:
            nats, slots = self.cache.mix(states, keys, nats, state[-1])
            state = [*state[:-1], slots]
        is_end = torch.from_numpy(targets == EOS_ID).to(device)
        end_nats = functional.binary_cross_entropy_with_logits(
            self.ends_line(states)[..., 0], is_end.to(states.dtype), reduction="none"
        )
        known = torch.from_numpy(targets != UNK_ID).to(device)
        return torch.where(known, nats + end_nats, torch.zeros_like(nats)), state

    def window_nats(
        self,
        window: Window,
        spellings: Spellings,
        state: State,
        noise: Noise | None,
    ) -> tuple[WindowNats, State]:
        """The sum over a window, whose ids are those of types."""
        types, inputs = np.unique(window.inputs, return_inverse=True)
        vectors = self.composer(types, spellings)
        states, dropped, state = self._step(
            inputs.reshape(window.inputs.shape), vectors, state, noise
        )
        nats, state = self._nats(dropped, window.targets, spellings, window.targets, state, noise)
        total = nats.sum()
        return WindowNats(total, total.new_zeros(()), Hidden(states, dropped)), state

    @torch.no_grad()
    def settle(self, inputs: NDArray[np.int64], spellings: Spellings) -> None:
        """What is usual, for the head that looks back."""
        types, rows = np.unique(inputs, return_inverse=True)
        vectors = self.composer(types, spellings)
        self.lm.settle(vectors[torch.from_numpy(rows.reshape(inputs.shape)).to(vectors.device)])

    # --- scoring ------------------------------------------------------------------------------

    def _words(
        self, lexicon: Lexicon, tokens: Sequence[str], *, kept: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Spellings]:
        """Rows of tokens in a table of their spellings, their names in the cache, and the table.

        `kept`: they may have to be said again.
        """
        replaced = [t if t == EOS else lexicon.alphabet.replace(t) for t in tokens]
        row = {EOS: EOS_ID}
        for word in replaced:
            row.setdefault(word, len(row) + 1)
        words = ["", "", *(word for word in row if word != EOS)]
        rows = np.array([row[word] for word in replaced], dtype=np.int64)
        names = np.array([UNK_ID, EOS_ID, *(_name(word) for word in words[2:])], dtype=np.int64)
        if kept and self.cache is not None:
            for name, word in zip(names[2:].tolist(), words[2:], strict=True):
                self._names.pop(name, None)  # the latest are the last
                self._names[name] = word
            for name in list(islice(self._names, max(0, len(self._names) - _NAMES))):
                del self._names[name]
        return rows, names[rows], Spellings.of(lexicon.alphabet, words)

    @torch.no_grad()
    def score_texts(
        self, lexicon: Lexicon, texts: Sequence[Sequence[str]], *, cells: int = 1000
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Nats of every token; there are no parts."""
        rows, names, spellings = self._words(lexicon, [t for tokens in texts for t in tokens])
        vectors = self.composer(np.arange(len(spellings)), spellings)
        nats = np.zeros(len(rows))
        for n_rails, strips in side_by_side(split_up(rows, texts), cells):
            state = self.zero_state(n_rails)
            for strip in strips:
                states, _, state = self._step(strip.inputs, vectors, state, None)
                # Where a text has ended, there is nothing to say and nothing to cache.
                targets, keys = np.full((2, strip.inputs.size), UNK_ID)
                targets[strip.real], keys[strip.real] = rows[strip.places], names[strip.places]
                found, state = self._nats(
                    states, targets.reshape(strip.inputs.shape), spellings,
                    keys.reshape(strip.inputs.shape), state, None,
                )  # fmt: skip
                nats[strip.places] = found.flatten().double().cpu().numpy()[strip.real]
        return [(own, np.zeros(len(own))) for own in split_up(nats, texts)]

    # --- speaking -----------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, lexicon: Lexicon, tokens: Sequence[str], state: State) -> Moment:
        """Reads tokens (at least one); those after the first enter the cache."""
        rows, names, spellings = self._words(lexicon, tokens, kept=True)
        vectors = self.composer(np.arange(len(spellings)), spellings)
        for at in range(0, len(rows), 500):
            states, _, state = self._step(rows[at : at + 500, None], vectors, state, None)
            coming = names[at + 1 : at + 501, None]  # what each state predicts
            if self.cache is not None and len(coming):
                free = states.new_zeros(coming.shape)
                _, slots = self.cache.mix(states[: len(coming)], coming, free, state[-1])
                state = [*state[:-1], slots]
        return Moment(states[-1], state)

    @torch.no_grad()
    def advance(self, lexicon: Lexicon, moment: Moment, token: str) -> Moment:
        """Reads one more token, which enters the cache under the state that predicted it."""
        state = moment.state
        if self.cache is not None:
            _, names, _ = self._words(lexicon, [token], kept=True)
            free = moment.hidden.new_zeros(1, 1)
            _, slots = self.cache.mix(moment.hidden[None], names[:, None], free, state[-1])
            state = [*state[:-1], slots]
        return self.read(lexicon, [token], state)

    @torch.no_grad()
    def next_token(self, lexicon: Lexicon, moment: Moment, dice: Dice, accept: Accept) -> str:
        """The line's end, or a word by one of the routes."""
        end = self.ends_line(moment.hidden)
        if int(dice.draw(torch.cat([torch.zeros_like(end), end], 1))):
            return EOS
        words = self.spell(lexicon, moment, TRIES, dice, MAX_LENGTH)
        return first_accepted(words, accept)

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
        """Words that may come at this moment, by either route."""
        drawn = self.decoder.sample(
            moment.hidden.expand(n, -1), dice.generator, dice.temperature, max_length
        )
        words = [lexicon.alphabet.decode(symbols) for symbols in drawn]
        if self.cache is None:
            return words
        routes, attention = self.cache.route(moment.hidden, moment.state[-1])
        if attention.isneginf().all():  # nothing has been read that could come again
            return words
        by_cache = dice.draw(routes.expand(n, -1))
        slots = dice.draw(attention.expand(n, -1))
        names = moment.state[-1][1][0, slots].tolist()
        return [
            self._names[name] if cached else word
            for word, name, cached in zip(words, names, by_cache.tolist(), strict=True)
        ]


def _name(word: str) -> int:
    """A number for a word, the same in every text; the first few are left free.

    >>> _name("wug") == _name("wug") > 2
    True
    """
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return max(int.from_bytes(digest, "little") >> 1, N_SPECIAL)
