"""What stands between a model and whoever asks it: limits, turns, and a guard.

One request at a time has the model, some may wait, and the others are told to come again (429).
Work is done in a thread, so that others are answered meanwhile. It stops when nobody listens any
more, when it has taken too long, and when the server ends (see `patience`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spellonce import patience
from spellonce.errors import SpellOnceError

if TYPE_CHECKING:
    from spellonce.web.views import Views

_T = TypeVar("_T")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Limits:
    """What a request can ask for."""

    body: int = 200_000
    """Bytes of a request."""
    text: int = 20_000
    """Characters of a text."""
    tokens: int = 500
    """Tokens of a text that is written."""
    words: int = 200
    """Words that are made up."""
    waiting: int = 8
    """Requests that may wait for the model."""
    seconds: float = 30.0
    """How long they may,"""
    work: float = 30.0
    """how long work may take,"""
    words_for: float = 10.0
    """and how long words are looked for."""


LIMITS = Limits()


# --- whose turn it is ---------------------------------------------------------------------------


class Listener:
    """Knows when whoever asked has gone."""

    def __init__(self, request: Request) -> None:
        self.gone = threading.Event()
        self._task = asyncio.create_task(self._watch(request))

    async def _watch(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    @property
    def task(self) -> asyncio.Task[None]:
        """Done when nobody listens."""
        return self._task

    def close(self) -> None:
        """Listens no longer itself."""
        self._task.cancel()


class Turns:
    """Who may use the model."""

    def __init__(self, limits: Limits, load: Loading) -> None:
        self.limits = limits
        self.stopping = threading.Event()
        """Set when the server ends."""
        self._load = load
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def take(self, listener: Listener) -> Views:
        """Waits for the turn; refuses if too many do, if it takes too long, or nobody listens."""
        if self._waiting >= self.limits.waiting:
            raise _busy("too many are waiting for the model", 2)
        self._waiting += 1
        mine = asyncio.create_task(self._lock.acquire())
        try:
            await asyncio.wait(
                {mine, listener.task}, timeout=self.limits.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
        finally:
            self._waiting -= 1
            if not mine.done():
                mine.cancel()
        if not mine.done() or mine.cancelled():
            raise _busy("the model is busy", 5)
        try:
            if listener.gone.is_set():
                raise _busy("nobody listens", 1)
            return await asyncio.wait_for(self._load.views(), self.limits.seconds)
        except TimeoutError:
            self.release()
            raise _busy("the model is being loaded", 5) from None
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Whoever is next may begin."""
        self._lock.release()

    async def run(self, request: Request, work: Callable[[Views, Callable[[], bool]], _T]) -> _T:
        """Does work in a thread, when it is its turn. It can ask if more words are wanted."""
        listener = Listener(request)
        try:
            views = await self.take(listener)
            end = time.monotonic() + self.limits.words_for
            try:
                return await self.in_thread(
                    listener,
                    lambda: work(views, lambda: not self._is_over(listener, end)),
                )
            finally:
                self.release()
        finally:
            listener.close()

    def end(self) -> float:
        """When work that begins now must be done, on the monotonic clock."""
        return time.monotonic() + self.limits.work

    async def in_thread(
        self, listener: Listener, work: Callable[[], _T], end: float | None = None
    ) -> _T:
        """Does work in a thread for as long as it may take and anybody wants it."""
        latest = self.end() if end is None else end

        def patiently() -> _T:
            with patience.while_wanted(lambda: not self._is_over(listener, latest)):
                patience.check()
                return work()

        return await in_thread(patiently)

    def _is_over(self, listener: Listener, end: float) -> bool:
        return listener.gone.is_set() or self.stopping.is_set() or time.monotonic() > end


def _busy(why: str, seconds: int) -> HTTPException:
    return HTTPException(429, f"{why}: try again", {"Retry-After": str(seconds)})


async def in_thread(work: Callable[[], _T]) -> _T:
    """Does work in a thread; what a user can cause is an answer and no failure."""
    try:
        return await run_in_threadpool(work)
    except SpellOnceError as error:
        raise HTTPException(422, str(error)) from error


class Released(StreamingResponse):
    """A stream that calls back when it has ended, in whatever way."""

    def __init__(self, content: AsyncIterator[str], ended: Callable[[], None], kind: str) -> None:
        super().__init__(content, media_type=kind)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


# --- around everything --------------------------------------------------------------------------


class Guard:
    """Headers for every answer; requests that are too large, or for somebody else, are refused."""

    def __init__(self, app: ASGIApp, limit: int, hosts: tuple[str, ...]) -> None:
        self._app, self._limit, self._hosts = app, limit, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        begun = refused = False
        n_read = 0

        async def dressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    given.setdefault(name, value)
            await send(message)

        async def counted() -> Message:
            nonlocal n_read, refused
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > self._limit:
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def unless_refused(message: Message) -> None:
            if not refused:
                await dressed(message)

        async def refuse(code: int, why: str) -> None:
            await JSONResponse({"detail": why}, code)(scope, receive, dressed)

        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if self._hosts and name.strip("[]") not in self._hosts:
            await refuse(400, "this server is asked by another name than its own")
            return
        site, mode = (headers.get(b"sec-fetch-" + name) for name in (b"site", b"mode"))
        if site == b"cross-site" and mode != b"navigate":
            await refuse(403, "pages of other sites cannot ask this server")
            return
        told = headers.get(b"content-length", b"0")
        too_large = f"a request has at most {self._limit:,} bytes"
        if not told.isdigit() or int(told) > self._limit:
            await refuse(413, too_large)
            return
        await self._app(scope, counted, unless_refused)
        if refused and not begun:
            await refuse(413, too_large)


class Loading:
    """The model, which is being loaded in a thread."""

    def __init__(self, load: Callable[[], Views]) -> None:
        self._future: Future[Views] = Future()
        threading.Thread(target=self._load, args=[load], daemon=True).start()

    def _load(self, load: Callable[[], Views]) -> None:
        try:
            views = load()
        except BaseException as error:
            self._future.set_exception(error)
            return
        self._future.set_result(views)
        views.warm_up()

    async def views(self) -> Views:
        """When it is there."""
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def on_failure(self, told: Callable[[BaseException], None]) -> None:
        """Calls back if it cannot be loaded."""

        def done(future: Future[Views]) -> None:
            error = future.exception()
            if error is not None:
                told(error)

        self._future.add_done_callback(done)
