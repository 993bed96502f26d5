"""Optimisers: SGD that turns into averaged SGD (NT-ASGD, the paper's), and one-cycle Adam.

The learning rate of a step is a pure function of the plan; averages live beside the weights and
are swapped in by a context manager.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from spellonce.errors import ConfigError

Optimizer = Literal["sgd", "adam"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class TrainingConfig:
    """How the objective is minimised. The defaults are the paper's."""

    optimizer: Optimizer = "sgd"
    """`sgd`: constant rate, averaged once validation stops improving. `adam`: one cycle."""
    learning_rate: float = 30.0
    """The rate, or the peak of the cycle; scaled by the length of each window."""
    warm_up: float = 0.2
    """adam: share of the steps until the peak."""
    beta1: float = 0.8
    """adam: decay of the mean of gradients."""
    beta2: float = 0.99
    """adam: decay of the mean of squared gradients."""
    average_from: float = 1.0
    """adam: share of the steps after which the weights are averaged to the end; 1: not at all."""
    weight_decay: float = 1.2e-6
    """The Gaussian priors p(θ) and p(e)."""
    clip: float = 0.25
    """Largest norm of the gradient of a step."""
    clip_separately: bool = False
    """Clip lexeme LM and speller each on its own: a lexicon step cannot crowd out the LM."""
    precision: Precision = "float32"
    """What products and activations are computed in while training: `bfloat16` is faster where the
    processor has instructions for it. Weights, optimiser and all scoring are `float32`."""
    epochs: float = 750.0
    """Length of the run where neither steps nor a budget are given."""
    nonmonotone: int = 5
    """sgd: evaluations to look back before averaging begins."""
    evaluate_every: int = 0
    """Steps between evaluations on the validation split; 0: after every epoch (sgd), or only at
    the end (adam)."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    report_every: int = 20
    """Steps between lines of the log."""

    def __post_init__(self) -> None:
        for name, kind in (("optimizer", Optimizer), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                choices = " or ".join(get_args(kind))
                raise ConfigError(f"{name} must be {choices}, not {getattr(self, name)!r}")
        for name in ("learning_rate", "clip", "epochs"):
            if not getattr(self, name) > 0 or not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} must be a number above 0, got {getattr(self, name)}")
        for name in ("beta1", "beta2", "warm_up"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 0 and below 1: {getattr(self, name)}")
        if not 0 < self.average_from <= 1:
            raise ConfigError(f"average_from must be above 0 and at most 1: {self.average_from}")
        for name in ("checkpoint_every", "report_every", "nonmonotone"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("weight_decay", "evaluate_every"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")


def learning_rate(config: TrainingConfig, place: float) -> float:
    """The rate at a place of the schedule, from 0 to 1, before scaling by the window.

    >>> adam = TrainingConfig(optimizer="adam", learning_rate=1.0, warm_up=0.5)
    >>> [round(learning_rate(adam, place), 3) for place in (1 / 8, 3 / 8, 5 / 8, 7 / 8)]
    [0.28, 0.76, 0.854, 0.146]
    """
    if config.optimizer == "sgd":
        return config.learning_rate
    low = 0.04  # where the cycle begins, as a share of its peak
    if place < config.warm_up:
        return config.learning_rate * (low + (1 - low) * place / config.warm_up)
    down = (place - config.warm_up) / (1 - config.warm_up)
    return config.learning_rate * max(0.5 * (1 + math.cos(math.pi * down)), 1e-3)


def make_optimizer(config: TrainingConfig, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The optimiser; its rate is set at every step."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1.0, weight_decay=config.weight_decay)
    return torch.optim.Adam(
        parameters,
        lr=1.0,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        fused=True,
    )


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> dict[str, Tensor]:
    """The optimiser's state as named tensors."""
    return {
        f"{names[parameter]}/{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Puts back what `optimizer_tensors` gave."""
    by_name = {name: parameter for parameter, name in names.items()}
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        parameter = by_name[name]
        # A fresh copy: memory of its own, aligned as torch aligns it. Adam keeps `step` on the CPU
        # unless fused, where it is beside its parameter.
        optimizer.state[parameter][key] = value.to(parameter.device).clone()


class Averages:
    """The mean of some parameters over all steps since averaging began."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self.means: dict[str, Tensor] = {}
        self.n = 0

    @property
    def active(self) -> bool:
        """Whether averaging has begun."""
        return self.n > 0

    @torch.no_grad()
    def update(self) -> None:
        """Takes the present weights into the mean (and begins, at the first call)."""
        self.n += 1
        if self.n == 1:
            self.means = {name: p.detach().clone() for name, p in self._parameters.items()}
            return
        for name, parameter in self._parameters.items():
            self.means[name].lerp_(parameter, 1 / self.n)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The averages in place of the weights, if there are any."""
        own = {name: p.data for name, p in self._parameters.items()}
        try:
            for name, mean in self.means.items():
                self._parameters[name].data = mean
            yield
        finally:
            for name, data in own.items():
                self._parameters[name].data = data


def should_average(history: Sequence[float], nonmonotone: int) -> bool:
    """Whether validation has stopped improving (Merity et al. 2018, algorithm 1).

    The latest figure is compared with the best of those before the last `nonmonotone`.

    >>> should_average([3, 2, 1, 1.5, 1.4, 1.3], nonmonotone=2), should_average([3, 2, 1.4, 1], 2)
    (True, False)
    """
    *earlier, latest = history
    return len(earlier) > nonmonotone and latest > min(earlier[:-nonmonotone])
