"""Several processes that train one model: each reads some of the rails, gradients are added up.

`torchrun --nproc-per-node N -m spellonce train …` starts them, here or on several machines, and
`torch.distributed` lets them talk: gloo on the CPU, NCCL on GPUs. Everything else is as with one
process: all of them have the same weights, take the same steps, and know the same figures. The
first one, the leader, alone writes to the run folder and talks to whoever watches; the others read
it, so on several machines it is on a disk that they share.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from spellonce.errors import ConfigError, RunError, SpellOnceError

_T = TypeVar("_T")
_SMALL, _BUCKET = 1 << 18, 1 << 23
"""Gradients of fewer numbers travel together, up to so many at a time."""
_PATIENCE = timedelta(minutes=10)
"""How long a process waits for another, which may have lost its power or its cable …"""
_LONG_PATIENCE = timedelta(hours=12)
"""… and how long for the leader, while it prepares a text or validates."""


def share(n: int, rank: int, size: int) -> slice:
    """Which of n things are the process's of that rank.

    >>> [share(5, rank, 2) for rank in range(2)]
    [slice(0, 2, None), slice(2, 5, None)]
    """
    return slice(n * rank // size, n * (rank + 1) // size)


class Team:
    """A process that trains alone: what is asked of the others is answered at once."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Which of n rails, or lexemes, are this process's."""
        return share(n, self.rank, self.size)

    def led(self, work: Callable[[], _T]) -> _T:
        """What the leader's work gives, or how it fails, in all processes."""
        return work()

    def one_voice(self, error: SpellOnceError) -> SpellOnceError:
        """An error that all processes meet, to be raised by each and told by the leader."""
        error.is_told = not self.leads
        return error

    def sum(self, figures: Sequence[float]) -> list[float]:
        """Figures added up over the processes."""
        return list(figures)

    def spread(self, parameters: Iterable[nn.Parameter]) -> None:
        """The leader's weights, in all processes: on another machine, other digits come out."""

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients; those that nobody has stay away."""

    def gather(self, part: Tensor, dim: int, n: int) -> Tensor:
        """The parts of all processes side by side, n rails in all."""
        return part


class Several(Team):
    """One of several processes."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self._device = rank, size, device
        self._led = torch.distributed.new_group(timeout=_LONG_PATIENCE)

    def led(self, work: Callable[[], _T]) -> _T:
        """What the leader's work gives, or how it fails, in all processes."""
        found: _T | None = None
        failure: BaseException | None = None
        if self.leads:
            try:
                found = work()
            except BaseException as error:
                failure = error
        message: list[Any] = [found, failure is not None]
        with _whoever_is_gone():
            torch.distributed.broadcast_object_list(
                message, 0, group=self._led, device=self._device
            )
        if failure is not None:
            raise failure
        found, has_failed = message
        if has_failed:
            raise self.one_voice(RunError("the first process has failed"))
        return cast(_T, found)

    def sum(self, figures: Sequence[float]) -> list[float]:
        """Figures added up over the processes."""
        total = torch.tensor(figures, dtype=torch.float64, device=self._device)
        with _whoever_is_gone():
            torch.distributed.all_reduce(total)
        return cast(list[float], total.tolist())

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Adds up the gradients; those that nobody has stay away.

        Of a split softmax, tails that no process has met are not exchanged, and of those that were
        only read, or spelled, by any of them, the rows that were.
        """
        everyone = list(parameters)
        gradients = [parameter.grad for parameter in everyone]
        told = self.sum([
            *(g is not None for g in gradients),
            *(g is not None and not g.is_sparse for g in gradients),
        ])  # fmt: skip
        met, dense = told[: len(everyone)], told[len(everyone) :]
        whole: list[Tensor] = []
        in_rows: dict[int, list[nn.Parameter]] = {}
        for parameter, n, n_dense in zip(everyone, met, dense, strict=True):
            if n and n_dense:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                elif parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
                whole.append(parameter.grad)
            elif n:
                in_rows.setdefault(parameter.shape[1], []).append(parameter)
        self._sum_whole(whole)
        for of_a_width in in_rows.values():
            self._sum_rows(of_a_width)

    def _sum_whole(self, gradients: Sequence[Tensor]) -> None:
        buckets: list[list[Tensor]] = [[]]
        for gradient in gradients:
            if gradient.numel() < _SMALL:
                buckets[-1].append(gradient)
                if sum(g.numel() for g in buckets[-1]) > _BUCKET:
                    buckets.append([])
        large = [gradient for gradient in gradients if gradient.numel() >= _SMALL]
        flats = [torch.cat([g.flatten() for g in bucket]) for bucket in buckets if bucket]
        with _whoever_is_gone():
            waiting = [
                torch.distributed.all_reduce(gradient, async_op=True)
                for gradient in (*flats, *large)
            ]
            for work in waiting:
                work.wait()
        for bucket, flat in zip(buckets, flats, strict=False):
            parts = torch.split(flat, [g.numel() for g in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def _sum_rows(self, parameters: Sequence[nn.Parameter]) -> None:
        """The same for gradients of a few rows each, of matrices of the same width."""
        begins = [0, *itertools.accumulate(len(parameter) for parameter in parameters)]
        places, rows = [torch.zeros(0, dtype=torch.int64, device=self._device)], []
        for parameter, begin in zip(parameters, begins, strict=False):
            rows.append(parameter.new_zeros(0, parameter.shape[1]))
            if parameter.grad is not None:
                own = parameter.grad.coalesce()
                places.append(own.indices()[0] + begin)
                rows.append(own.values())
        place, row = torch.cat(places), torch.cat(rows)
        sizes = self._gathered(torch.tensor([len(place)], device=self._device))
        padding = int(sizes.max()) - len(place)
        every_place = self._gathered(torch.nn.functional.pad(place, (0, padding), value=-1))
        every_row = self._gathered(torch.nn.functional.pad(row, (0, 0, 0, padding)))
        for parameter, begin in zip(parameters, begins, strict=False):
            here = (every_place >= begin) & (every_place < begin + len(parameter))
            parameter.grad = torch.sparse_coo_tensor(
                (every_place[here] - begin)[None], every_row[here], parameter.shape,
                check_invariants=False,
            )  # fmt: skip

    def _gathered(self, part: Tensor) -> Tensor:
        """Tensors of the same shape from all processes, one after another."""
        found = [torch.empty_like(part) for _ in range(self.size)]
        with _whoever_is_gone():
            torch.distributed.all_gather(found, part.contiguous())
        return torch.cat(found)

    def spread(self, parameters: Iterable[nn.Parameter]) -> None:
        """The leader's weights, in all processes: on another machine, other digits come out."""
        with _whoever_is_gone():
            for parameter in parameters:
                torch.distributed.broadcast(parameter.data, 0)

    def gather(self, part: Tensor, dim: int, n: int) -> Tensor:
        """The parts of all processes side by side, n rails in all."""
        largest = -(-n // self.size)
        own = part.movedim(dim, 0)
        padded = own.new_zeros(largest, *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in range(self.size)]
        with _whoever_is_gone():
            torch.distributed.all_gather(found, padded)
        shares = [share(n, rank, self.size) for rank in range(self.size)]
        whole = torch.cat([x[: s.stop - s.start] for x, s in zip(found, shares, strict=True)])
        return whole.movedim(0, dim).contiguous()


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
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: Callable[[], str]) -> Iterator[Team]:
    """The team that this process was started into, if it was started into one (by torchrun)."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team()
        return
    if not torch.distributed.is_available():
        raise ConfigError("this torch cannot train in several processes: start one")
    rank, name = int(os.environ["RANK"]), device()
    try:
        place = torch.device(name)
        if place.type == "cuda":
            if place.index is not None:
                raise ConfigError(f"each process takes a GPU of its own: --device cuda, not {name}")
            place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(place)
    except RuntimeError as error:
        raise ConfigError(f"device {name!r} cannot be used here: try --device cpu") from error
    try:
        backend = "nccl" if place.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise SpellOnceError(f"the processes of this training cannot meet: {error}") from error
    yield Several(rank, size, place)
    torch.distributed.destroy_process_group()  # after a failure it might wait for the others
