"""Long work that may come to be wanted no longer: it asks now and then, and stops.

A server says whom to ask (`while_wanted`), for what one thread does. Elsewhere there is nobody to
ask, and work goes on to its end.

No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from spellonce.errors import AbandonedError

_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


@contextmanager
def while_wanted(wanted: Callable[[], bool]) -> Iterator[None]:
    """Work in here is stopped by an `AbandonedError` soon after it is wanted no longer."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def check() -> None:
    """Where long work may be stopped."""
    wanted = _wanted.get()
    if wanted is not None and not wanted():
        raise AbandonedError("this takes too long: ask for less")
