"""The machine: threads, denormals, determinism, device, memory. Called once, before any work."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from spellonce.errors import ConfigError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of mallopt(3)."""


def prepare(device: str = "cpu", threads: int | None = None) -> torch.device:
    """Makes results repeatable and denormals harmless, and checks the device.

    Flushing denormals must precede the first parallel region: threads inherit it at their start.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what determinism needs on CUDA
    torch.set_flush_denormal(True)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    # Bit-identical runs are promised on the CPU; elsewhere an operation may have no such version.
    # (torch.use_deterministic_algorithms does the same, and loads a compiler on top of it.)
    torch.set_deterministic_debug_mode("error" if device.startswith("cpu") else "warn")
    # Nothing here reads memory that it has not written, and filling it first is not free.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        chosen = torch.device(device)
        float(torch.zeros(1, device=chosen, dtype=torch.float64))  # sums are double
    except Exception as error:  # each kind of device has its own way to say that it is not there
        raise ConfigError(f"device {device!r} cannot be used here: try --device cpu") from error
    return chosen


def give_memory_back() -> None:
    """Has memory that is freed go back to the system: for scoring, which needs little at a time.

    The C library of most Linux systems otherwise comes to keep up to 64 MB of it for itself, and to
    put large blocks between small ones.
    """
    _allocate(trim=1 << 17, map_=1 << 17)  # what they are at first: given by hand, they stay


def keep_memory() -> None:
    """Undoes `give_memory_back`: training has the same large blocks at every step."""
    _allocate(trim=1 << 26, map_=1 << 25)  # what the C library comes to by itself


def _allocate(*, trim: int, map_: int) -> None:
    """Sets from which size on freed memory is given back, and blocks have pages of their own."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(_TRIM_THRESHOLD, trim)
    mallopt(_MMAP_THRESHOLD, map_)


def has_bfloat16(device: str) -> bool:
    """Whether a processor multiplies matrices in bfloat16 by instructions of its own."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # there is no public way to ask
    is_cpu = torch.device(device).type == "cpu"
    return is_cpu and any(getattr(torch.cpu, name, bool)() for name in names)


@contextmanager
def one_thread() -> Iterator[None]:
    """Computes on one thread: for work in steps too small to be shared."""
    n = torch.get_num_threads()
    if n == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n)


def threads() -> int:
    """How many threads torch uses."""
    return torch.get_num_threads()


def versions() -> dict[str, str]:
    """What a result may depend on."""
    from spellonce import __version__

    return {
        "spellonce": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def peak_rss_mb() -> float | None:
    """The most memory this process has held, in megabytes; None where that cannot be known."""
    if sys.platform == "win32":
        return None
    try:  # of this program alone: what `resource` says begins with what its parent held
        with Path("/proc/self/status").open(encoding="utf-8") as file:
            (line,) = (line for line in file if line.startswith("VmHWM:"))
        return round(int(line.split()[1]) / 2**10, 1)
    except (OSError, ValueError):
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
