"""Several processes that train one model: each reads some of the rails, gradients are added up.

`torchrun --nproc-per-node N -m spellonce train …` starts them, here or on several machines, and
`torch.distributed` lets them talk: gloo on the CPU, NCCL on GPUs. Everything else is as with one
process: all of them have the same weights, take the same steps, and know the same figures. The
first one, the leader, alone touches the run folder and talks to whoever watches.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from spellonce.errors import ConfigError, RunError, SpellOnceError

_T = TypeVar("_T")
_SMALL = 1 << 16
"""Gradients of fewer numbers travel together."""
_PATIENCE = timedelta(hours=12)
"""How long the others wait while the leader prepares a text or validates."""


class Team:
    """A process that trains alone: what is asked of the others is answered at once."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Which of n rails are this process's.

        >>> Team().share(32)
        slice(0, 32, None)
        """
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def led(self, work: Callable[[], _T]) -> _T:
        """What the leader's work gives, or how it fails, in all processes."""
        return work()

    def sum(self, figures: Sequence[float]) -> list[float]:
        """Figures added up over the processes."""
        return list(figures)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients; those that nobody has stay away."""

    def gather(self, part: Tensor, dim: int, n: int) -> Tensor:
        """The parts of all processes side by side, n rails in all."""
        return part


class Several(Team):
    """One of several processes."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self._device = rank, size, device

    def led(self, work: Callable[[], _T]) -> _T:
        """What the leader's work gives, or how it fails, in all processes."""
        told: list[object] = [None]
        if self.leads:
            try:
                told = [(True, work())]
            except BaseException as error:
                told = [(False, error if _travels(error) else RunError(str(error)))]
        with _whoever_is_gone():
            torch.distributed.broadcast_object_list(told, 0, device=self._device)
        worked, found = cast(tuple[bool, object], told[0])
        if worked:
            return cast(_T, found)
        failure = cast(BaseException, found)
        if isinstance(failure, SpellOnceError):
            failure.is_told = not self.leads
        raise failure

    def sum(self, figures: Sequence[float]) -> list[float]:
        """Figures added up over the processes."""
        total = torch.tensor(figures, dtype=torch.float64, device=self._device)
        with _whoever_is_gone():
            torch.distributed.all_reduce(total)
        return cast(list[float], total.tolist())

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients; those that nobody has stay away.

        Of a split softmax, tails that no process has met are not exchanged.
        """
        found = list(parameters)
        met = self.sum([p.grad is not None for p in found])
        small: list[Tensor] = []
        waiting = []
        with _whoever_is_gone():
            for parameter, n in zip(found, met, strict=True):
                if not n:
                    continue
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                elif parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
                if parameter.numel() < _SMALL:
                    small.append(parameter.grad)
                else:
                    waiting.append(torch.distributed.all_reduce(parameter.grad, async_op=True))
            if small:
                flat = torch.cat([gradient.flatten() for gradient in small])
                torch.distributed.all_reduce(flat)
                sizes = [gradient.numel() for gradient in small]
                for gradient, part in zip(small, torch.split(flat, sizes), strict=True):
                    gradient.copy_(part.view_as(gradient))
            for work in waiting:
                work.wait()

    def gather(self, part: Tensor, dim: int, n: int) -> Tensor:
        """The parts of all processes side by side, n rails in all."""
        largest = -(-n // self.size)
        own = part.movedim(dim, 0)
        padded = own.new_zeros(largest, *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in range(self.size)]
        with _whoever_is_gone():
            torch.distributed.all_gather(found, padded)
        shares = [Several(rank, self.size, self._device).share(n) for rank in range(self.size)]
        whole = torch.cat([x[: s.stop - s.start] for x, s in zip(found, shares, strict=True)])
        return whole.movedim(0, dim).contiguous()


def _travels(error: BaseException) -> bool:
    """Whether an error arrives as it was."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


@contextmanager
def _whoever_is_gone() -> Iterator[None]:
    """Says in a line that another process has ended; there is no going on without it."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            "another process of this training has ended or cannot be reached: see what it said; "
            "the last checkpoint is whole, and --resume goes on from it"
        ) from error


def is_leader() -> bool:
    """Whether this process is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: Callable[[], str]) -> Iterator[Team]:
    """The team that this process was started into, if it was started into one (by torchrun)."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team()
        return
    if not torch.distributed.is_available():
        raise ConfigError("this torch cannot train in several processes: start one")
    rank, place = int(os.environ["RANK"]), torch.device(device())
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    backend = "nccl" if place.type == "cuda" else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise SpellOnceError(f"the processes of this training cannot meet: {error}") from error
    try:
        yield Several(rank, size, place)
    finally:
        torch.distributed.destroy_process_group()
