"""The two-level model: a lexeme LM and spellers under one objective (paper, equation 3).

    p(θ) · Π_w [p(e(w)) · p_spell(σ(w) | e(w))]     (1) prior, (2) lexicon
         · Π_i p_LM(w_i | w_<i)                     (3) text
         · Π_{i: w_i = UNK} p_spell(s_i | h_i)      (4) novel words

Systems are compositions: the same speller twice is `full`, two spellers are `sep-reg`, no lexicon
speller is `no-reg` (see `systems`). The lexeme LM may be any `LexemeModel`.

    T window, B rails, D embedding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spellonce import patience
from spellonce.batching import Window
from spellonce.errors import ConfigError
from spellonce.feedback import Composed, Feedback
from spellonce.feedback import zero_state as with_feedback
from spellonce.lexeme_lm import Hidden, LexemeLM, LexemeModel, State
from spellonce.lexicon import EOS_ID, UNK_ID, Lexicon, Spellings
from spellonce.mixture import TextMixture
from spellonce.network import (
    MAX_LENGTH,
    TRIES,
    Accept,
    Dice,
    Moment,
    Network,
    WindowNats,
    detached,
    first_accepted,
)
from spellonce.noise import Noise
from spellonce.speller import Speller, SpellerModel
from spellonce.streams import side_by_side, split_up
from spellonce.text import EOS

_LEARNED = 500
"""Dynamic evaluation reads no further into a novel word when it learns from it."""


@dataclass(frozen=True)
class Followed:
    """What came of following one stream for a while."""

    lm_nats: NDArray[np.float64]
    """−log p_LM of each token, of UNK where it is novel."""
    spell_nats: NDArray[np.float64]
    """−log p_spell of each novel token, zero for others."""
    states: Tensor
    """h, the state that predicted each token.  (N, D)"""
    state: State
    """The state after all but the last token, which is still to be read."""
    loss: Tensor
    """What would be learned from it."""


class TwoLevel(Network):
    """Lexeme LM + spellers."""

    has_parts = True

    def __init__(
        self,
        lm: LexemeModel,
        *,
        lexicon_speller: nn.Module | None,
        novel_speller: nn.Module | None,
        feedback: Feedback | None = None,
        mixture: TextMixture | None = None,
    ) -> None:
        super().__init__()
        self.lm = lm
        self.novel = novel_speller
        self.lexicon = lexicon_speller
        self.feedback = feedback
        self.mixture = mixture

    @property
    def n_ids(self) -> int:
        """The lexemes."""
        return self.lm.table.n_lexemes

    @property
    def spellers(self) -> list[nn.Module]:
        """The distinct spellers."""
        found = [s for s in (self.novel, self.lexicon) if s is not None]
        return found[:1] if len(found) == 2 and found[0] is found[1] else found

    def is_averaged(self, name: str) -> bool:
        """The speller stays on plain SGD (paper, appendix A)."""
        return name.startswith(("lm.", "feedback."))

    def settle(self, inputs: NDArray[np.int64], spellings: Spellings) -> None:
        """What is usual, for the head that looks back."""
        if isinstance(self.lm, LexemeLM):
            self.lm.settle(self.lm.embed(torch.from_numpy(inputs).to(self.device)))

    def initialise(self, seed: int, lexicon: Lexicon) -> None:
        """Seeded weights."""
        generator = torch.Generator().manual_seed(seed)
        lexemes = lexicon.counts[: self.n_ids].copy()
        lexemes[UNK_ID] += lexicon.counts[self.n_ids :].sum()  # what is no lexeme is UNK
        self.lm.initialise(generator, torch.from_numpy(lexemes))
        symbols = torch.from_numpy(lexicon.symbol_counts(by_types=True))
        for speller in self.spellers:
            as_speller(speller).initialise(generator, symbols)
        if self.feedback is not None:
            self.feedback.initialise(generator)
        if self.mixture is not None:
            self.mixture.initialise()
            if self.mixture.config.embeddings:
                self.lm.table.start_from(self.mixture.embeddings(generator))

    def zero_state(self, n_rails: int) -> State:
        """The state before anything was read."""
        state = self.lm.zero_state(n_rails)
        if self.feedback is not None:
            state = with_feedback(state, n_rails, self.lm.table.n_embed)
        return state if self.mixture is None else [*state, (self.mixture.zero_history(n_rails),)]

    def window_nats(
        self,
        window: Window,
        spellings: Spellings,
        state: State,
        noise: Noise | None,
    ) -> tuple[WindowNats, State]:
        """Factors (3) and (4) of a window; `spellings` are those of all types."""
        inputs = torch.from_numpy(window.inputs).to(self.device)
        targets = torch.from_numpy(window.targets).to(self.device)
        before = state[-1]
        spelled = np.concatenate([window.novel, window.read])
        types = np.concatenate([window.novel_types, window.targets.ravel()[window.read]])
        hidden, state = self._read(inputs, spelled, spellings.take(types), state, noise)
        h = hidden.dropped.flatten(0, 1)
        if self.mixture is None:
            lm_nats, aside = self.lm.table.nats(h, targets.flatten())[0], None  # (3)
        else:
            was_counted = window.in_text < self.mixture.config.max_tokens
            counted = self.mixture.window(before[0], inputs, targets, left_out=was_counted)
            lm_nats, aside = self._mixed_nats(self.mixture, h, targets.flatten(), *counted)
        places = np.concatenate([window.novel, window.rare])
        types = np.concatenate([window.novel_types, window.targets.ravel()[window.rare]])
        if self.novel is None or not len(places):
            return WindowNats(lm_nats, lm_nats.new_zeros(()), hidden, aside), state
        at = torch.from_numpy(places).to(self.device)
        n_rails = targets.shape[1]
        own = None if noise is None else noise.at(at // n_rails, at % n_rails)
        h = hidden.states.flatten(0, 1)[at]
        nats = as_speller(self.novel).nats(h, spellings.take(types), own, counted=True)  # (4)
        novel, rare = nats[: len(window.novel)].sum(), nats[len(window.novel) :].sum()
        return WindowNats(lm_nats, novel, hidden, rare if aside is None else aside + rare), state

    def _mixed_nats(
        self,
        mixture: TextMixture,
        hidden: Tensor,
        targets: Tensor,
        p: NDArray[np.float64],
        kinds: NDArray[np.int64],
    ) -> tuple[Tensor, Tensor]:
        """(nats that the gate learns from, nothing in size that the lexeme LM learns from)."""
        share = None
        if mixture.complement:
            with torch.no_grad():
                each = self.lm.table.nats(hidden, targets)[1]
                share = mixture.share(each, hidden, p, kinds)
        alone, each = self.lm.table.nats(hidden, targets, share=share)
        mixed = mixture.nats(each.detach(), hidden.detach(), p, kinds)
        return mixed.sum(), alone - alone.detach()

    def _read(
        self,
        inputs: Tensor,
        spelled: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        noise: Noise | None = None,
    ) -> tuple[Hidden, State]:
        """Runs the lexeme LM over inputs (T, B); what comes at places `spelled` has spellings."""
        if self.mixture is not None:
            *state, (history,) = state
            hidden, state = self._run(inputs, spelled, spellings, state, noise)
            return hidden, [*state, (self.mixture.remember(history, inputs),)]
        return self._run(inputs, spelled, spellings, state, noise)

    def _run(
        self,
        inputs: Tensor,
        spelled: NDArray[np.int64],
        spellings: Spellings,
        state: State,
        noise: Noise | None,
    ) -> tuple[Hidden, State]:
        if self.feedback is None:
            return self.lm(inputs, state, noise)
        assert isinstance(self.lm, LexemeLM) and isinstance(self.novel, Speller)
        return self.feedback.read(self.lm, self.novel, inputs, spelled, spellings, state, noise)

    def lexicon_nats(
        self, ids: NDArray[np.int64], spellings: Spellings, noise: Noise | None
    ) -> Tensor:
        """Factor (2) of some lexemes: Σ −log p_spell(σ(w) | e(w)). Gradients reach e."""
        assert self.lexicon is not None
        lexemes = torch.from_numpy(ids).to(self.device)
        own = None if noise is None else noise.of("lexicon", lexemes)
        speller = as_speller(self.lexicon)
        return speller.nats(self.lm.table(lexemes), spellings, own, counted=True).sum()

    # --- scoring ------------------------------------------------------------------------------

    def score_texts(
        self, lexicon: Lexicon, texts: Sequence[Sequence[str]]
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(nats of p_LM, nats of p_spell) of every token of each text, all of them side by side."""
        ids = [lexicon.encode(tokens)[0] for tokens in texts]
        words = [
            lexicon.alphabet.replace(tokens[i])
            for tokens, own in zip(texts, ids, strict=True)
            for i in np.flatnonzero(own == UNK_ID).tolist()
        ]
        return self.score(ids, Spellings.of(lexicon.alphabet, words))

    @torch.no_grad()
    def score(
        self, streams: Sequence[NDArray[np.int64]], spellings: Spellings, *, cells: int = 600
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(nats of p_LM, nats of p_spell) of every token of streams that follow an EOS each.

        Needs a speller for novel words where there are any.

        `spellings` has a row for each UNK among the ids, in order. The state is carried through a
        whole stream, so `cells`, read at a time, is a matter of memory and speed alone.
        """
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *streams])
        if self.novel is None and (ids == UNK_ID).any():
            raise ValueError("novel words cannot be scored without a speller for them")
        row = np.cumsum(ids == UNK_ID) - 1
        lm_nats, spell_nats = np.zeros(len(ids)), np.zeros(len(ids))
        pending: list[tuple[Tensor, NDArray[np.int64]]] = []

        def spell_pending() -> None:
            places = np.concatenate([place for _, place in pending])
            vectors = torch.cat([h for h, _ in pending])
            nats = as_speller(self.novel).nats(vectors, spellings.take(row[places]))
            spell_nats[places] = nats.double().cpu().numpy()
            pending.clear()

        for n_rails, strips in side_by_side(streams, cells):
            state = self.zero_state(n_rails)
            for strip in strips:
                patience.check()
                is_novel = ids[strip.places] == UNK_ID
                novel, places = strip.real[is_novel], strip.places[is_novel]
                inputs = torch.from_numpy(strip.inputs).to(self.device)
                before = state[-1]
                hidden, state = self._read(inputs, novel, spellings.take(row[places]), state)
                h = hidden.states.flatten(0, 1)  # (T·B, D)
                real = torch.from_numpy(strip.real).to(self.device)
                targets = torch.zeros_like(inputs)
                targets.view(-1)[real] = torch.from_numpy(ids[strip.places]).to(self.device)
                rows = h[real]
                nats = self.lm.table.nats(rows, targets.view(-1)[real])[1]
                if self.mixture is not None:
                    p, kinds = self.mixture.window(before[0], inputs, targets, left_out=False)
                    nats = self.mixture.nats(nats, rows, p[strip.real], kinds[strip.real])
                lm_nats[strip.places] = nats.double().cpu().numpy()
                if len(novel):
                    pending.append((h[torch.from_numpy(novel).to(self.device)], places))
                    if sum(len(place) for _, place in pending) >= 512:
                        spell_pending()
        if pending:
            spell_pending()
        return list(zip(split_up(lm_nats, streams), split_up(spell_nats, streams), strict=True))

    def follow(
        self, ids: NDArray[np.int64], before: int, spellings: Spellings, state: State
    ) -> Followed:
        """Scores one stream from a state on, in which `before` is the last id that was met.

        `spellings` has a row for each UNK among the ids, in order. Gradients are there to be taken,
        if they are wanted.
        """
        inputs = torch.from_numpy(np.concatenate([[before], ids[:-1]]))[:, None].to(self.device)
        targets = torch.from_numpy(ids).to(self.device)
        novel = np.flatnonzero(ids == UNK_ID)
        earlier = state[-1]
        hidden, state = self._read(inputs, novel, spellings, state)
        h = hidden.states[:, 0]
        loss, each = self.lm.table.nats(h, targets)
        if self.mixture is not None:
            counted = self.mixture.window(earlier[0], inputs, targets[:, None], left_out=False)
            each = self.mixture.nats(each.detach(), h.detach(), *counted)
            loss = loss + each.sum()
        spelling = h.new_zeros(len(ids))
        if len(novel):
            place = torch.from_numpy(novel).to(self.device)
            spelled, learned = self._spelled(h[place], spellings)
            loss = loss + learned
            spelling = spelling.index_copy(0, place, spelled.detach())
        return Followed(
            each.detach().double().cpu().numpy(), spelling.double().cpu().numpy(), h.detach(),
            detached(state), loss,
        )  # fmt: skip

    def _spelled(self, hidden: Tensor, spellings: Spellings) -> tuple[Tensor, Tensor]:
        """(nats of novel words, their sum to be learned from: that of what is not too long)."""
        speller = as_speller(self.novel)
        if int(spellings.lengths().max(initial=0)) <= _LEARNED:
            nats = speller.nats(hidden, spellings)
            return nats, nats.sum()
        with torch.no_grad():
            nats = speller.nats(hidden, spellings)
        beginnings = spellings.take(np.arange(len(spellings)), _LEARNED)
        return nats, speller.nats(hidden, beginnings).sum()

    # --- speaking -----------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, lexicon: Lexicon, tokens: Sequence[str], state: State) -> Moment:
        """Reads tokens (at least one)."""
        ids = np.array([lexicon.lexeme_id(token) for token in tokens])
        for start in range(0, len(ids), 1000):
            part = ids[start : start + 1000]
            after = ids[start + 1 : start + 1001]
            novel = np.flatnonzero(after == UNK_ID)
            words = [lexicon.alphabet.replace(tokens[start + 1 + i]) for i in novel.tolist()]
            hidden, state = self._read(
                torch.from_numpy(part).to(self.device)[:, None],
                novel, Spellings.of(lexicon.alphabet, words), state,
            )  # fmt: skip
        return Moment(hidden.states[-1], state)

    @torch.no_grad()
    def advance(self, lexicon: Lexicon, moment: Moment, token: str) -> Moment:
        """Reads one more token, which came at this moment."""
        return self.read(lexicon, [token], self.told(lexicon, moment, token))

    @torch.no_grad()
    def told(self, lexicon: Lexicon, moment: Moment, token: str) -> State:
        """The state once it is known which token came at this moment, before that is read."""
        if self.feedback is None or not self.is_novel(lexicon, token):
            return moment.state
        word = Spellings.of(lexicon.alphabet, [lexicon.alphabet.replace(token)])
        assert isinstance(self.novel, Speller)
        n_own = len(moment.state) - (self.mixture is not None)
        state = self.feedback.told(self.novel, moment.state[:n_own], moment.hidden, word)
        return [*state, *moment.state[n_own:]]

    @torch.no_grad()
    def inputs_of(self, lexicon: Lexicon, words: Sequence[str]) -> Tensor:
        """What the lexeme LM reads of words, as far as that does not depend on a state.  (N, D)"""
        ids = np.array([lexicon.lexeme_id(word) for word in words], dtype=np.int64)
        rows = cast(Tensor, self.lm.table(torch.from_numpy(ids).to(self.device))).detach().clone()
        if isinstance(self.feedback, Composed):
            novel = np.flatnonzero(ids == UNK_ID)
            forms = [lexicon.alphabet.replace(words[i]) for i in novel.tolist()]
            rows[torch.from_numpy(novel)] += self.feedback.vectors(
                Spellings.of(lexicon.alphabet, forms)
            )
        return rows

    @torch.no_grad()
    def lexeme_log_probs(self, moment: Moment) -> Tensor:
        """log p of every lexeme at this moment.  (1, V)"""
        log_probs = self.lm.table.log_probs(moment.hidden)
        if self.mixture is None:
            return log_probs
        history = moment.state[-1][0][:, 0].tolist()
        return self.mixture.log_probs(log_probs, moment.hidden, [history])

    @torch.no_grad()
    def next_token(self, lexicon: Lexicon, moment: Moment, dice: Dice, accept: Accept) -> str:
        """A lexeme, or, where UNK is drawn, a spelling that is no lexeme's."""
        lexeme = int(dice.draw(self.lexeme_log_probs(moment)))
        if lexeme == EOS_ID:
            return EOS
        if lexeme != UNK_ID:
            return lexicon.types[lexeme]
        words = self.spell(lexicon, moment, TRIES, dice, MAX_LENGTH)
        novel = [word for word in words if self.is_novel(lexicon, word)]
        return first_accepted([w for w in novel if accept(w)] or words, accept)

    def spell(
        self,
        lexicon: Lexicon,
        moment: Moment,
        n: int,
        dice: Dice,
        max_length: int,
        prefix: str = "",
    ) -> list[str]:
        """Spellings drawn from p_spell(· | h, prefix)."""
        drawn = self.speller_at(moment).sample(
            moment.hidden.expand(n, -1), dice.generator, dice.temperature, max_length,
            lexicon.alphabet.encode(prefix).tolist(),
        )  # fmt: skip
        return [lexicon.alphabet.decode(symbols) for symbols in drawn]

    def is_novel(self, lexicon: Lexicon, token: str) -> bool:
        """Whether it is no lexeme."""
        return lexicon.lexeme_id(token) == UNK_ID

    @torch.no_grad()
    def like(self, lexicon: Lexicon, words: Sequence[str]) -> Moment:
        """The mean embedding of some lexemes in the place of a hidden state."""
        ids = []
        for word in words:
            lexeme = lexicon.lexeme_id(word)
            if lexeme in (UNK_ID, EOS_ID):
                raise ConfigError(
                    f"{word!r} is not among the {lexicon.n_lexemes - 2:,} lexemes of this "
                    "model, so it has no embedding: choose another word, or give a --context"
                )
            ids.append(lexeme)
        rows: Tensor = self.lm.table(torch.tensor(ids, device=self.device))
        return self.at_embedding(rows.mean(0))

    def at_embedding(self, vector: Tensor) -> Moment:
        """An embedding in the place of a hidden state.  (D,)"""
        return Moment(vector.detach()[None], self.zero_state(1), is_embedding=True)

    def speller_at(self, moment: Moment) -> SpellerModel:
        """The speller for such a moment: embeddings are those of the lexicon, if there is one."""
        is_lexicons = moment.is_embedding and self.lexicon is not None
        return as_speller(self.lexicon if is_lexicons else self.novel)


def as_speller(module: nn.Module | None) -> SpellerModel:
    """A module that is known to be a speller."""
    return cast(SpellerModel, module)
