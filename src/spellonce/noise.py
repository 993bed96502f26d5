"""Dropout whose masks are pure functions of a seed, a name, and what they are tied to.

The mask of a rail is tied to the rail, that of a word to its place in the window: it is the same in
whatever batch, order or process they come. So runs on several processes, each with some of the
rails, drop what a run on one process would have dropped.

    T window, N rows, D width
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spellonce.errors import ConfigError

_MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Odd numbers that scatter bits (Steele et al. 2014, splitmix64), as signed ones."""
_PLACE = 1 << 32


@dataclass(frozen=True)
class Noise:
    """Where the randomness of a training step comes from."""

    seed: int
    keys: Tensor | None = None
    """What the rows of a batch are known by; none: 0, 1, 2, …  (N,)"""

    def of(self, what: str, keys: Tensor) -> Noise:
        """For rows that are something else."""
        return Noise(self._seed(what), keys)

    def take(self, rows: Tensor) -> Noise:
        """For some of the rows."""
        return replace(self, keys=rows if self.keys is None else self.keys[rows])

    def at(self, times: Tensor, rows: Tensor) -> Noise:
        """For words that come at some times, on some of the rows."""
        return self.of("words", (rows if self.keys is None else self.keys[rows]) + times * _PLACE)

    def tied(self, name: str, n: int, width: int, device: torch.device) -> Tensor:
        """Uniform in [0, 1), tied to the rows.  (N, width)

        >>> noise = Noise(1)
        >>> whole = noise.tied("a", 5, 3, torch.device("cpu"))
        >>> part = noise.take(torch.tensor([4, 1])).tied("a", 2, 3, torch.device("cpu"))
        >>> torch.equal(part, whole[[4, 1]])
        True
        """
        keys = torch.arange(n, device=device) if self.keys is None else self.keys.to(device)
        assert len(keys) == n, "a key for each row"
        x = keys[:, None] * _MIX[0] + torch.arange(width, device=device) * _MIX[1]
        x = x + self._seed(name)
        for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
            x = (x ^ (x >> shift & ((1 << 64 - shift) - 1))) * factor
        return (x >> 40 & 0xFFFFFF).float() * 2.0**-24

    def shared(self, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Uniform in [0, 1), the same whatever the rows are."""
        generator = torch.Generator(device).manual_seed(self._seed(name))
        return torch.rand(shape, generator=generator, device=device)

    def _seed(self, name: str) -> int:
        mixed = (self.seed * 0x9E3779B97F4A7C15 + zlib.crc32(name.encode())) * 0xBF58476D1CE4E5B9
        return (mixed ^ mixed >> 31) % 2**63


def dropout(x: Tensor, p: float, noise: Noise | None, name: str) -> Tensor:
    """x (…, N, D) with a share p of each row dropped, the same at all times; E[result] = x."""
    if noise is None or p == 0:
        return x
    return _kept(x, noise.tied(name, x.shape[-2], x.shape[-1], x.device), p)


def dropout_over_time(x: Tensor, p: float, noise: Noise | None, name: str) -> Tensor:
    """x (T, N, D) with a share p of it dropped, at each time another."""
    if noise is None or p == 0:
        return x
    n_steps, n, width = x.shape
    uniform = noise.tied(name, n, n_steps * width, x.device)
    return _kept(x, uniform.view(n, n_steps, width).transpose(0, 1), p)


def dropout_shared(x: Tensor, p: float, noise: Noise | None, name: str) -> Tensor:
    """x with a share p of it dropped, whatever the rows of the batch are."""
    if noise is None or p == 0:
        return x
    return _kept(x, noise.shared(name, tuple(x.shape), x.device), p)


def _kept(x: Tensor, uniform: Tensor, p: float) -> Tensor:
    return x * (uniform >= p).to(x.dtype).div_(1 - p)


def check_dropout(name: str, p: float) -> None:
    """Refuses what is no share."""
    if not 0 <= p < 1:
        raise ConfigError(f"{name} must be at least 0 and below 1, got {p}")
