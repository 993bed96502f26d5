"""Vectors of words: the lexicon's embeddings, states in contexts, and vectors for unseen words.

A word that is no lexeme has no embedding, but what the model would make of one is known: the most
probable e given how the word is spelled, where it stands, or both (the paper's equation 3, for one
more lexeme),

    argmax_e  log p(e) + log p_spell(σ | e) + Σ_contexts log p_LM(w | h; e) + log p_LM(rest | e)

p(e) is a Gaussian with the mean and the (shrunken) covariance of the lexicon's embeddings; where it
is known how the word is spelled, with those of a guess from its letters (`letters`). In a context
the word is one more lexeme among the rarest, and e is what the LSTM reads in its place.

    V lexemes, D width
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spellonce import patience
from spellonce.errors import ConfigError, DataError
from spellonce.feedback import Composed, LastState
from spellonce.letters import Letters
from spellonce.lexeme_lm import LexemeLM, State
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID, Lexicon, Spellings
from spellonce.speller import SpellerModel
from spellonce.text import EOS, GAP, TextFormat, around_gap, read, split_lines, text_tokens
from spellonce.two_level import TwoLevel, as_speller

Vector = NDArray[np.float32]
Floats = NDArray[np.float64]
Format = Literal["word2vec", "word2vec-binary"]
When = Literal["before", "after"]
_STRIP = 1000
"""Tokens that are read at a time."""
_FEW = 50
"""Of fewer lexemes, nothing is learned about letters."""
_SHRINK = 0.1
"""Of the covariance of embeddings, towards a multiple of the identity."""
_LETTERS = 200
"""Of a word that have a say."""
_AT_ONCE = 256
"""Words that are tried in a gap at a time."""
_FOLLOWING = 20
"""Words behind a gap that have a say."""


@dataclass(frozen=True)
class Neighbour:
    """A lexeme that is near."""

    word: str
    cosine: float


@dataclass(frozen=True)
class _Context:
    """A place where a word stands: what is before it has been read."""

    hidden: Tensor
    """The state that predicts it.  (D,)"""
    state: State
    """The state in which it is going to be read."""
    following: Tensor
    """Ids of what follows.  (T,)"""
    inputs: Tensor
    """What the lexeme LM reads of it.  (T, D)"""


class Vectors:
    """The vectors of a two-level model."""

    def __init__(
        self, network: TwoLevel, lexicon: Lexicon, fmt: TextFormat, unspelled: float = 0.0
    ) -> None:
        """`unspelled`: the share of lexemes of which it is not to be known how they are spelled."""
        self._network, self._lexicon, self._format = network, lexicon, fmt
        self._unspelled = unspelled
        self._table = network.lm.table.embeddings().detach()  # (V, D)
        rows = self._table[N_SPECIAL:]
        self._mean = rows.mean(0) if len(rows) else rows.new_zeros(rows.shape[1])
        self._unit = functional.normalize(rows - self._mean, dim=1)

    @property
    def words(self) -> Sequence[str]:
        """The lexemes, the most frequent first."""
        return self._lexicon.types[N_SPECIAL : self._lexicon.n_lexemes]

    def __contains__(self, word: str) -> bool:
        return self._lexicon.lexeme_id(word) not in (UNK_ID, EOS_ID)

    def of(self, word: str, contexts: Sequence[str] = ()) -> Vector:
        """The embedding of a lexeme; for any other word, the one that is inferred.  (D,)

        Contexts are about the latter alone.
        """
        if word in self:
            found: Vector = self._table[self._lexicon.lexeme_id(word)].cpu().numpy()
            return found
        return self.infer(word, contexts)

    def neighbours(
        self, vector: Vector, n: int = 10, *, but: Sequence[str] = ()
    ) -> list[Neighbour]:
        """The lexemes with the largest cosine, but for some words.

        Cosines are taken from the mean of the lexicon: what all embeddings share says nothing.
        """
        if n < 1:
            raise ConfigError(f"-n must be at least 1, got {n}")
        unit = functional.normalize(torch.from_numpy(vector).to(self._unit) - self._mean, dim=0)
        cosines = (self._unit @ unit).cpu().numpy()
        left_out = {self._lexicon.lexeme_id(word) - N_SPECIAL for word in but if word in self}
        order = np.argsort(-cosines, kind="stable")[: n + len(left_out)].tolist()
        near = [i for i in order if i not in left_out][:n]
        return [Neighbour(self.words[i], float(cosines[i])) for i in near]

    def in_context(self, text: str, when: str = "before") -> tuple[list[str], Vector]:
        """The tokens of a text, and a hidden state for each.  (N, D)

        `before`: the state that predicted the token, what one could know of it; `after`: the state
        in which it has been read, what it did to the context.
        """
        reading = read(split_lines(text), self._format)
        return reading.surfaces, self.states(reading.tokens, when)

    @torch.no_grad()
    def states(self, tokens: Sequence[str], when: str = "before") -> Vector:
        """The same for the tokens of a text."""
        if when not in get_args(When):
            raise ConfigError(f"--when must be {' or '.join(get_args(When))}, not {when!r}")
        network, alphabet = self._network, self._lexicon.alphabet
        followed_by = [*tokens, EOS]  # whatever it is: what predicts it has read all tokens
        ids, _ = self._lexicon.encode(followed_by)
        found: list[Tensor] = []
        state, before = network.zero_state(1), EOS_ID
        for start in range(0, len(ids), _STRIP):
            patience.check()
            part = ids[start : start + _STRIP]
            words = [
                alphabet.replace(followed_by[start + i]) for i in np.flatnonzero(part == UNK_ID)
            ]
            followed = network.follow(part, before, Spellings.of(alphabet, words), state)
            found.append(followed.states.cpu())
            state, before = followed.state, int(part[-1])
        every: Vector = torch.cat(found).numpy()
        return every[:-1] if when == "before" else every[1:]

    # --- words that were never seen -------------------------------------------------------------

    def infer(
        self, word: str | None = None, contexts: Sequence[str] = (), *, most: int = 100
    ) -> Vector:
        """The most probable embedding of a word that is spelled so, or stands there, or both.

        In a context, the word itself or `___` marks the place. `most`: steps of the search.  (D,)
        """
        if not word and not contexts:
            raise ConfigError(
                "a vector is inferred from a word, or from contexts with a ___ in them"
            )
        if isinstance(contexts, str):
            contexts = [contexts]
        places = [place for context in contexts for place in self._places(word, context)]
        spelled = None
        if word:
            spelled = self._spellings([word])
        mean, factor = self._prior(word)
        z = torch.zeros(len(mean), device=mean.device, requires_grad=True)
        search = torch.optim.LBFGS([z], max_iter=most, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            patience.check()
            search.zero_grad()
            e = mean + factor @ z
            nats = 0.5 * z.square().sum()  # −log p(e)
            if spelled is not None:
                nats = nats + self._speller.nats(e[None], spelled).sum()
            for place in places:
                nats = nats + self._context_nats(e, place)
            nats.backward()  # type: ignore[no-untyped-call]
            return nats

        with torch.enable_grad():
            search.step(closure)  # type: ignore[no-untyped-call]
        found: Vector = (mean + factor @ z).detach().float().cpu().numpy()
        return found

    @property
    def _speller(self) -> SpellerModel:
        """The speller of embeddings."""
        lexicon, novel = self._network.lexicon, self._network.novel
        return as_speller(novel if lexicon is None else lexicon)

    def _spellings(self, words: Sequence[str]) -> Spellings:
        """How words begin: of a long one, as much as there is to learn from."""
        alphabet = self._lexicon.alphabet
        return Spellings.of(alphabet, [alphabet.replace(word[:_LETTERS]) for word in words])

    def _prior(self, word: str | None) -> tuple[Tensor, Tensor]:
        """(mean, a factor of the covariance) of the embedding of a word.  (D,), (D, D)"""
        if word and self._letters is not None:
            return self._letters([word])[0], self._letters_factor
        return self._any_word

    @cached_property
    def _any_word(self) -> tuple[Tensor, Tensor]:
        rows = self._table[N_SPECIAL:]
        if len(rows) < 2:
            raise ConfigError("this model has too few lexemes to infer a vector from")
        centred = rows - rows.mean(0)
        return rows.mean(0), _factor(centred.T @ centred / len(rows))

    @cached_property
    def _letters(self) -> Letters | None:
        """What spellings say of embeddings, where there are lexemes enough to learn that from."""
        known = ~self._lexicon.unspelled(self._unspelled)
        known[:N_SPECIAL] = False
        ids = np.flatnonzero(known)
        if len(ids) < _FEW:
            return None
        words = [self._lexicon.types[i] for i in ids.tolist()]
        rows = self._table[torch.from_numpy(ids).to(self._table.device)]
        return Letters(words, rows, self._lexicon.counts[ids])

    def learn_letters(self) -> None:
        """Learns what letters say of embeddings, which takes seconds, before it is asked for."""
        _ = self._letters

    @cached_property
    def _letters_factor(self) -> Tensor:
        assert self._letters is not None
        return _factor(self._letters.covariance)

    def _places(self, word: str | None, context: str) -> list[_Context]:
        """Where the word, or a gap, stands in a context."""
        found: list[_Context] = []
        if GAP in context:
            before, after = around_gap(context, self._format)
            tokens, marked = [*before, "", *after], ""  # which no token is
        else:
            tokens, marked = text_tokens(context, self._format), word or ""
        for i, hidden, state in self._walk(tokens):
            if tokens[i] == marked:
                rest = tokens[i + 1 : i + 1 + _FOLLOWING]
                ids = torch.from_numpy(self._lexicon.encode(rest)[0]).to(hidden.device)
                inputs = self._network.inputs_of(self._lexicon, rest)
                found.append(_Context(hidden, state, ids, inputs))
        if not found:
            raise ConfigError(f"neither {word!r} nor {GAP} stands in the context {context!r}")
        return found

    @torch.no_grad()
    def _walk(self, tokens: Sequence[str]) -> Iterator[tuple[int, Tensor, State]]:
        """(place, the state (D,) that predicts it, the state in which it is read) of each token."""
        moment = self._network.begin(self._lexicon, [])
        for i, token in enumerate(tokens):
            yield i, moment.hidden[0], moment.state
            moment = self._network.advance(self._lexicon, moment, token)

    def _context_nats(self, e: Tensor, place: _Context) -> Tensor:
        """−log p of the word where it stands, as one of the rarest lexemes, and of what follows."""
        table = self._network.lm.table
        rows, bias = table.weights[-1], table.biases[-1]
        others = (rows.detach() @ place.hidden + bias.detach()).logsumexp(0)
        own = e @ place.hidden + bias.detach().min()
        nats = functional.softplus(others - own)
        lm = self._network.lm
        if not isinstance(lm, LexemeLM) or isinstance(self._network.feedback, LastState):
            return nats
        if not len(place.following):
            return nats
        x = torch.cat([e[None], place.inputs[:-1]])[:, None]  # (T, 1, D)
        hidden, _ = lm.run(x, place.state[: lm.n_parts])
        return nats + table.nats(hidden.states[:, 0], place.following)[0]

    def following_nats(self, context: str, words: Sequence[str]) -> Floats:
        """−log p of what follows a gap, for each of the words in it.  (N,)

        A lexeme is read as itself, any other word as what its letters say of it.
        """
        (place,) = self._places(None, context)
        parts = [words[i : i + _AT_ONCE] for i in range(0, len(words), _AT_ONCE)]
        return np.concatenate([self._following_nats(place, part) for part in parts])

    def _following_nats(self, place: _Context, words: Sequence[str]) -> Floats:
        patience.check()
        rows = self._network.inputs_of(self._lexicon, words)
        unseen = [i for i, word in enumerate(words) if word not in self]
        if unseen and not isinstance(self._network.feedback, Composed):
            rows[unseen] = self._guessed([words[i] for i in unseen])
        lm, table = self._network.lm, self._network.lm.table
        if not isinstance(lm, LexemeLM) or isinstance(self._network.feedback, LastState):
            raise ConfigError("what follows a gap has a say only where the lexeme LM is an LSTM")
        rest = place.inputs[:-1, None].expand(-1, len(words), -1)
        x = torch.cat([rows[None], rest])  # (T, N, D)
        state = [tuple(t.expand(-1, len(words), -1).contiguous() for t in part)
                 for part in place.state[: lm.n_parts]]  # fmt: skip
        with torch.no_grad():
            hidden, _ = lm.run(x, state)
            targets = place.following.repeat_interleave(len(words))
            nats = table.nats(hidden.states.flatten(0, 1), targets)[1]
        found: Floats = nats.view(-1, len(words)).double().sum(0).cpu().numpy()
        return found

    def _guessed(self, words: Sequence[str]) -> Tensor:
        """What letters alone say of words; with few lexemes, nothing: the mean of all.  (N, D)"""
        if self._letters is not None:
            return self._letters(words)
        return self._any_word[0].expand(len(words), -1)

    # --- files ----------------------------------------------------------------------------------

    def export(self, path: Path, form: str = "word2vec") -> int:
        """Writes the embeddings of the lexicon, as word2vec does; how many there are."""
        if form not in get_args(Format):
            raise ConfigError(f"--format must be {' or '.join(get_args(Format))}, not {form!r}")
        if path.exists():
            raise DataError(f"{path} is there already: name another file, or remove it")
        rows = self._table[N_SPECIAL:].float().cpu().numpy()
        words = [word.replace(" ", "_").encode("utf-8", "surrogatepass") for word in self.words]
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("xb") as file:
                file.write(f"{len(rows)} {rows.shape[1]}\n".encode())
                for word, row in zip(words, rows, strict=True):
                    if form == "word2vec":
                        values = " ".join(f"{value:.6g}" for value in row.tolist()).encode()
                    else:
                        values = row.astype("<f4").tobytes()
                    file.write(word + b" " + values + b"\n")
            partial.rename(path)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror or error}") from error
        finally:
            partial.unlink(missing_ok=True)
        return len(rows)


def _factor(covariance: Tensor) -> Tensor:
    """A factor of a covariance that is shrunk towards a multiple of the identity.  (D, D)"""
    scale = covariance.diagonal().mean()
    identity = torch.eye(len(covariance), device=covariance.device)
    found: Tensor = torch.linalg.cholesky((1 - _SHRINK) * covariance + _SHRINK * scale * identity)
    return found
