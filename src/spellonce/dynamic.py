"""Dynamic evaluation (Krause et al. 2018): gradient steps on what was just scored.

    θ ← θ − rate · g / (rms + ε) + decay · (rms / mean rms) · (θ₀ − θ)

rms is the root mean square of each weight's gradient in training, stored with the run; θ₀ are the
trained weights. What varied much in training moves little, and what moved comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from spellonce.errors import ConfigError
from spellonce.two_level import TwoLevel


@dataclass(frozen=True)
class DynamicSettings:
    """How weights follow the text."""

    segment: int = 35
    """Tokens between two steps."""
    rate: float = 3e-5
    decay: float = 1e-3
    epsilon: float = 1e-2
    """Added to the rms, as a share of its mean."""

    def __post_init__(self) -> None:
        if self.segment < 1:
            raise ConfigError(f"a segment has at least 1 token, got {self.segment}")
        for name in ("rate", "decay"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")


class Weights:
    """A copy of a network whose weights may move."""

    def __init__(
        self, network: TwoLevel, settings: DynamicSettings, scale: Mapping[str, Tensor]
    ) -> None:
        self.settings = settings
        self.network = copy.deepcopy(network).requires_grad_(True)
        self._parameters = dict(self.network.named_parameters())
        self._trained = {name: p.detach().clone() for name, p in self._parameters.items()}
        rms = {name: scale[name].to(p) for name, p in self._parameters.items() if name in scale}
        n = sum(r.numel() for r in rms.values())
        mean = sum(float(r.double().sum()) for r in rms.values()) / max(n, 1)
        self._step = {name: 1 / (r + settings.epsilon * mean) for name, r in rms.items()}
        self._back = {
            name: (settings.decay / max(mean, 1e-30) * r).clamp_max(1.0) for name, r in rms.items()
        }

    def step(self, loss: Tensor) -> None:
        """Moves by the gradient of a loss; one that is not finite teaches nothing."""
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        found = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        gradients = {name: gradient.to_dense() for name, gradient in found.items()}
        self.network.zero_grad(set_to_none=True)
        sums = torch.stack([loss.detach(), *(g.sum() for g in gradients.values())])
        if not bool(torch.isfinite(sums).all()):
            return
        with torch.no_grad():
            for name, step in self._step.items():
                parameter = self._parameters[name]
                parameter.lerp_(self._trained[name], self._back[name])
                if name in gradients:
                    parameter.addcmul_(gradients[name], step, value=-self.settings.rate)

    def state_dict(self) -> dict[str, Tensor]:
        """The weights as they are."""
        return {name: p.detach().clone() for name, p in self._parameters.items()}

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """What `state_dict` gave."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(kept[name])
