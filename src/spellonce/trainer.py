"""One training run: the joint objective, step by step, with checkpoints that can be trusted.

All randomness is a function of seed and step, so the state of a run is its weights, the
optimiser's and averages' tensors, the hidden state and a few integers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spellonce.batching import LexiconSampler, Rails, Window, training_spellings
from spellonce.configuration import Recipe
from spellonce.cursor import Cursor, Tally, Told
from spellonce.errors import ConfigError, RunError, SpellOnceError
from spellonce.lexeme_lm import State
from spellonce.lexicon import N_SPECIAL, Lexicon
from spellonce.network import Network, detached, load_weights
from spellonce.noise import Noise
from spellonce.optim import (
    Averages,
    learning_rate,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    should_average,
)
from spellonce.parallel import Team
from spellonce.plan import Plan
from spellonce.speller import Speller
from spellonce.two_level import TwoLevel

_SCALE_WINDOWS = 20
"""Windows over which gradients are measured."""
_SETTLE_WINDOWS = 10
"""Windows from which is taken what is usual."""


class Trainer:
    """Holds a run's state and takes its steps."""

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        lexicon: Lexicon,
        type_ids: NDArray[np.int32],
        seed: int,
        plan: Plan,
        team: Team | None = None,
    ) -> None:
        self.recipe, self.network, self.lexicon, self.seed = recipe, network, lexicon, seed
        self.plan, self.team = plan, team or Team()
        self.n_tokens = len(type_ids)
        objective = recipe.objective
        counts = np.maximum(lexicon.counts[: lexicon.n_lexemes], 1)
        may_be_spelled = ~lexicon.unspelled(objective.unspelled)
        may_be_spelled[:N_SPECIAL] = False
        rare = read = None
        if objective.spell_rare:
            share = np.ones(len(counts))
            if objective.spell_rare_times:
                share = np.minimum(1, objective.spell_rare_times / counts)
            rare = np.where(may_be_spelled & (counts <= objective.spell_rare), share, 0.0)
        if objective.read_rare:
            read = np.where(may_be_spelled, objective.read_rare / (objective.read_rare + counts), 0)
        self.rails = Rails(type_ids, network.n_ids, recipe.windows, seed, rare, read)
        self.spellings = training_spellings(lexicon, objective.novel_max_length)
        self.sampler = LexiconSampler(
            lexicon, objective.lexicon_batch, objective.lexicon_max_length, seed,
            hapax_only=objective.lexicon_types == "hapax", unspelled=objective.unspelled,
        )  # fmt: skip
        self.parameters = dict(network.named_parameters())
        of_lm = [name for name in self.parameters if name.startswith(("lm.", "feedback."))]
        self._groups = [
            [self.parameters[name] for name in of_lm],
            [p for name, p in self.parameters.items() if name not in of_lm],
        ]
        self.optimizer = make_optimizer(recipe.training, list(self.parameters.values()))
        is_sgd = recipe.training.optimizer == "sgd"
        averaged = [name for name in self.parameters if not is_sgd or network.is_averaged(name)]
        self.averages = Averages({name: self.parameters[name] for name in averaged})
        self.cursor = Cursor()
        self._mine = self.team.share(self.rails.n_rails)
        if self.rails.n_rails < self.team.size:
            raise self.team.one_voice(ConfigError(
                f"{self.team.size} processes cannot share {self.rails.n_rails} rails: start fewer, "
                "or --set rails= to more"
            ))  # fmt: skip
        self.state = self._zero_state()

    # --- one step -----------------------------------------------------------------------------

    def step(self, lexicon: bool | None = None) -> None:
        """Reads one window and changes the weights.

        Whether the lexicon factor takes part follows from the step's number unless it is said.
        """
        cursor, config = self.cursor, self.recipe.training
        window = self.rails.window(cursor.epoch, cursor.window)
        self.optimizer.zero_grad(set_to_none=True)
        told = self._window_backward(window)
        if self.lexicon_due() if lexicon is None else lexicon:
            told = replace(told, **self._lexicon_backward())
        self.team.sum_gradients(self.parameters.values())
        self._note(window, told)
        self._clip()
        rate = learning_rate(config, self.plan.place(cursor.step + 0.5))
        rate *= len(window.targets) / self.recipe.windows.window
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.recipe.objective.proximal:
            self._proximal_steps(rate)
        may_begin = (
            config.optimizer == "adam" and self.plan.place(cursor.step) >= config.average_from
        )
        if self.averages.active or may_begin:
            self.averages.update()
        self._advance(window.n_tokens)

    def _noise(self) -> Noise:
        """What dropout drops in this step."""
        seed = np.random.SeedSequence([self.seed, 2, self.cursor.step])
        rails = torch.arange(self._mine.start, self._mine.stop, device=self.network.device)
        return Noise(int(seed.generate_state(1, np.uint64)[0]), rails)

    def _zero_state(self) -> State:
        return self.network.zero_state(self._mine.stop - self._mine.start)

    def _precision(self) -> torch.autocast:
        """What matrices are multiplied in."""
        low = self.recipe.training.precision == "bfloat16"
        if low and self.network.device.type != "cpu":  # where autocast takes float16 for LSTMs
            raise ConfigError("precision=bfloat16 is for the CPU: leave it out with --device")
        return torch.autocast("cpu", torch.bfloat16, enabled=low)

    def _window_backward(self, window: Window) -> Told:
        """Factors (3) and (4), per token of the window, and the regularisers, per token of all."""
        objective = self.recipe.objective
        mine = window.part(self._mine)
        with self._precision():
            nats, state = self.network.window_nats(mine, self.spellings, self.state, self._noise())
        self.state = detached(state)
        loss = nats.lm + nats.novel
        if nats.aside is not None:
            loss = loss + nats.aside
        loss = loss / window.n_tokens
        if objective.alpha or objective.beta:
            penalty = nats.hidden.activation_penalty(objective.alpha, objective.beta)
            loss = loss + mine.n_tokens / window.n_tokens * penalty
        if objective.nuclear_norm and not objective.proximal and self.team.leads:
            loss = loss + objective.nuclear_norm / self.n_tokens * self._speller_norm()
        loss.backward()  # type: ignore[no-untyped-call]
        return Told(lm_nats=nats.lm.item(), novel_nats=nats.novel.item())

    def _note(self, window: Window, told: Told) -> None:
        """What a step has told, in all processes together."""
        tally = self.cursor.tally
        tally.tokens += window.n_tokens
        names = [f.name for f in fields(told)]
        total = self.team.sum([getattr(told, name) for name in names])
        for name, figure in zip(names, total, strict=True):
            setattr(tally, name, getattr(tally, name) + figure)
            self._check_finite(figure)

    def _check_finite(self, figure: float) -> None:
        if not math.isfinite(figure):
            raise self._diverged("a figure is not finite")

    def _diverged(self, sign: str) -> SpellOnceError:
        return self.team.one_voice(RunError(
            f"training diverged at step {self.cursor.step} ({sign}); the last checkpoint is as it "
            "was: start again with a smaller learning rate, e.g. --set learning_rate="
            f"{self.recipe.training.learning_rate / 3:.2g}"
        ))  # fmt: skip

    def check_finite(self, bpc: float) -> None:
        """Refuses a model whose last step went wrong."""
        self._check_finite(bpc)
        for parameter in self.parameters.values():
            self._check_finite(float(parameter.detach().sum()))

    def _speller_norm(self) -> Tensor:
        """The norm of every speller that is conditioned on a lexeme or a hidden state."""
        norm = Speller.nuclear_norm
        if self.recipe.objective.speller_norm == "l2":
            norm = Speller.squared_norm
        norms = [norm(s) for s in self.network.spellers if isinstance(s, Speller)]
        return torch.stack(norms).sum() if norms else torch.zeros((), device=self.network.device)

    @property
    def has_lexicon_factor(self) -> bool:
        """Whether there is a factor (2), and anything in it."""
        return self._spelled_lexicon is not None and self.sampler.n_batches > 0

    @property
    def _spelled_lexicon(self) -> TwoLevel | None:
        """The network, if it is one that spells its lexicon."""
        network = self.network
        return network if isinstance(network, TwoLevel) and network.lexicon is not None else None

    def lexicon_due(self) -> bool:
        """Whether the next step is one that samples the lexicon."""
        interval = self.recipe.objective.lexicon_interval
        return self.has_lexicon_factor and self.cursor.step % interval == 0

    def _lexicon_backward(self) -> dict[str, float]:
        """Factor (2): a sample of the lexicon, scaled to stand for all of it and for K steps."""
        cursor, interval = self.cursor, self.recipe.objective.lexicon_interval
        batch = self.sampler.batch(cursor.lexicon_batches)
        ids = batch[self.team.share(len(batch))]
        cursor.lexicon_batches += 1
        if not len(ids):  # more processes than lexemes
            return {}
        assert self._spelled_lexicon is not None
        with self._precision():
            nats = self._spelled_lexicon.lexicon_nats(ids, self.spellings.take(ids), self._noise())
        loss = interval * self.sampler.n_batches / self.n_tokens * nats
        loss.backward()  # type: ignore[no-untyped-call]
        return {"lexicon_nats": nats.item(), "lexemes": len(ids)}

    def _clip(self) -> None:
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.is_sparse:  # read, but not predicted
                parameter.grad = parameter.grad.to_dense()
        limit = self.recipe.training.clip
        groups = self._groups
        if not self.recipe.training.clip_separately:
            groups = [[p for group in groups for p in group]]
        norms = [float(torch.nn.utils.clip_grad_norm_(group, limit)) for group in groups if group]
        for norm in norms:  # before the weights are changed
            self._check_finite(norm)
        self.cursor.tally.clipped += int(any(norm > limit for norm in norms))

    def _proximal_steps(self, rate: float) -> None:
        """The nuclear norm as a proximal step: the objective is divided by N, so its weight is too.

        Adam divides each coordinate's step by the root of its mean squared gradient; the proximal
        operator needs one number for a whole block, and takes the root of their mean.
        """
        weight = self.recipe.objective.nuclear_norm / self.n_tokens
        for speller in self.network.spellers:
            if not isinstance(speller, Speller):
                continue
            scale = 1.0
            if self.recipe.training.optimizer == "adam":
                state = self.optimizer.state[speller.vector_weight]
                if not state:  # nothing has been spelled yet
                    continue
                correction = 1 - self.recipe.training.beta2 ** float(state["step"])
                squares = state["exp_avg_sq"][:, speller.config.n_char_embed :]
                scale = math.sqrt(float(squares.mean()) / correction) + 1e-12
            speller.proximal_step(rate * weight / scale)

    def _advance(self, n_tokens: int) -> None:
        cursor = self.cursor
        cursor.step += 1
        cursor.tokens += n_tokens
        cursor.tally.steps += 1
        cursor.window += 1
        if cursor.window + 1 == len(self.rails.cuts(cursor.epoch)):
            cursor.epoch, cursor.window = cursor.epoch + 1, 0
            self.state = self._zero_state()

    # --- around the steps ---------------------------------------------------------------------

    def steps_of(self, epochs: float) -> int:
        """How many steps so many epochs take."""
        whole, rest = divmod(epochs, 1)
        steps = sum(len(self.rails.cuts(e)) - 1 for e in range(int(whole)))
        return max(1, steps + round(rest * (len(self.rails.cuts(int(whole))) - 1)))

    def evaluation_due(self) -> bool:
        """Whether the validation split is to be scored after this step."""
        every = self.recipe.training.evaluate_every
        if every:
            return self.cursor.step % every == 0
        return self.recipe.training.optimizer == "sgd" and self.cursor.window == 0

    def note_validation(self, nats: float) -> None:
        """Takes a validation result; SGD begins to average when they stop improving."""
        cursor = self.cursor
        cursor.valid_nats.append(nats)
        config = self.recipe.training
        may_begin = config.optimizer == "sgd" and not self.averages.active
        if may_begin and should_average(cursor.valid_nats, config.nonmonotone):
            self.averages.update()

    def report(self, chars_per_token: float) -> dict[str, Any]:
        """A line for the log; begins a new tally."""
        cursor, tally = self.cursor, self.cursor.tally
        bits = 1 / math.log(2) / max(tally.tokens, 1) / chars_per_token
        bpc = (tally.lm_nats + tally.novel_nats) * bits
        line = {
            "step": cursor.step,
            "epoch": round(self.epochs_done(), 4),
            "tokens": cursor.tokens,
            "learning_rate": learning_rate(
                self.recipe.training, self.plan.place(cursor.step - 0.5)
            ),
            "train_bpc": bpc,
            "train_bpc_lm": tally.lm_nats * bits,
            "train_bpc_spell": tally.novel_nats * bits,
            "lexicon_nats_per_type": tally.lexicon_nats / tally.lexemes if tally.lexemes else None,
            "clip": "separate" if self.recipe.training.clip_separately else "joint",
            "clipped": tally.clipped / max(tally.steps, 1),
            "averaging": self.averages.active,
        }
        sign = cursor.divergence(bpc)
        cursor.tally = Tally()
        if sign is not None:
            raise self._diverged(sign)
        return line

    def epochs_done(self) -> float:
        """Epochs, with the part of the present one."""
        cuts = self.rails.cuts(self.cursor.epoch)
        return self.cursor.epoch + cuts[self.cursor.window] / self.rails.length

    def gradient_scale(self) -> dict[str, Tensor]:
        """The root mean square of each weight's gradient: what dynamic evaluation needs.

        Adam knows it; for SGD it is taken over some windows of the first epoch. Weights that had
        no gradient are not among them.
        """
        squares: dict[str, Tensor] = {}
        if self.recipe.training.optimizer == "adam":
            for name, parameter in self.parameters.items():
                state = self.optimizer.state.get(parameter)
                if state:
                    correction = 1 - self.recipe.training.beta2 ** float(state["step"])
                    squares[name] = state["exp_avg_sq"] / correction
            return {name: square.sqrt() for name, square in squares.items()}
        n = min(_SCALE_WINDOWS, len(self.rails.cuts(0)) - 1)
        state_before = self.network.zero_state(self.rails.n_rails)
        for i in range(n):
            window = self.rails.window(0, i)
            self.optimizer.zero_grad(set_to_none=True)
            nats, state = self.network.window_nats(window, self.spellings, state_before, None)
            state_before = detached(state)
            loss = nats.lm + nats.novel if nats.aside is None else nats.lm + nats.novel + nats.aside
            (loss / window.n_tokens).backward()  # type: ignore[no-untyped-call]
            for name, parameter in self.parameters.items():
                if parameter.grad is not None:
                    square = parameter.grad.to_dense().square() / n
                    squares[name] = squares[name] + square if name in squares else square
        self.optimizer.zero_grad(set_to_none=True)
        return {name: square.sqrt() for name, square in squares.items()}

    def settle(self) -> None:
        """Tells the network what is usual in the text, now that its weights are final."""
        n = min(_SETTLE_WINDOWS, len(self.rails.cuts(0)) - 1)
        inputs = np.concatenate([self.rails.window(0, i).inputs for i in range(n)])
        self.network.settle(inputs, self.spellings)

    # --- checkpoints --------------------------------------------------------------------------

    @property
    def _rails_at(self) -> list[list[int]]:
        """Which dimension of each tensor of the state is that of the rails."""
        one, two = self.network.zero_state(1), self.network.zero_state(2)
        return [
            [
                next(dim for dim, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n)
                for a, b in zip(of_one, of_two, strict=True)
            ]
            for of_one, of_two in zip(one, two, strict=True)
        ]

    @property
    def n_bytes(self) -> int:
        """The size of a checkpoint."""
        hidden = sum(tensor.nbytes for part in self.state for tensor in part) * self.team.size
        return hidden + sum(tensor.nbytes for group in self._large() for tensor in group.values())

    def _large(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        """Weights, the optimiser's tensors, averages: the same in all processes."""
        names: dict[Tensor, str] = {p: name for name, p in self.parameters.items()}
        weights = {name: p.data for name, p in self.parameters.items()}
        return weights, optimizer_tensors(self.optimizer, names), self.averages.means

    def tensors(self) -> dict[str, Tensor]:
        """Everything of the run's state that is a tensor. All processes must ask."""
        # All rails, whoever reads them: another number of processes can go on.
        hidden = {
            f"{i}/{j}": self.team.gather(tensor, dim, self.rails.n_rails)
            for i, (part, dims) in enumerate(zip(self.state, self._rails_at, strict=True))
            for j, (tensor, dim) in enumerate(zip(part, dims, strict=True))
        }
        weights, optimizer, averages = self._large()
        groups: dict[str, dict[str, Tensor]] = {
            "weights": weights, "optimizer": optimizer, "averages": averages, "hidden": hidden,
        }  # fmt: skip
        return {f"{group}:{name}": t for group, ts in groups.items() for name, t in ts.items()}

    def state_dict(self) -> dict[str, Any]:
        """The rest of it, as JSON."""
        self.cursor.averaged = self.averages.n
        return asdict(self.cursor) | asdict(self.plan)

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Continues from a checkpoint."""
        groups: dict[str, dict[str, Tensor]] = {
            "weights": {}, "optimizer": {}, "averages": {}, "hidden": {},
        }  # fmt: skip
        device = self.network.device
        try:
            for full_name, tensor in tensors.items():
                group, _, name = full_name.partition(":")
                groups[group][name] = tensor
            load_weights(self.parameters, groups["weights"])
            names: dict[Tensor, str] = {p: name for name, p in self.parameters.items()}
            restore_optimizer(self.optimizer, names, groups["optimizer"])
            self.averages.means = {
                name: tensor.to(device).clone() for name, tensor in groups["averages"].items()
            }
            first, n = self._mine.start, self._mine.stop - self._mine.start
            self.state = [
                tuple(
                    groups["hidden"][f"{i}/{j}"].narrow(dim, first, n).to(device).clone()
                    for j, dim in enumerate(dims)
                )
                for i, dims in enumerate(self._rails_at)
            ]
            values = dict(state)
            self.plan = Plan(tuple((begin, total) for begin, total in values.pop("marks")))
            tally = Tally(**values.pop("tally"))
            self.cursor = Cursor(**values, tally=tally)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the checkpoint does not fit this run: {error}") from error
        self.averages.n = self.cursor.averaged
