"""The server: a page and `/api/v1`, with limits on everything that a request can ask for.

The page is there at once; the model is loaded meanwhile. One request at a time has the model, some
may wait, and the others are told to come again (429). Work is done in a thread, so that `/healthz`
answers meanwhile; whoever waits or writes a text stops when nobody listens any more.
"""

from __future__ import annotations

import asyncio
import csv
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spellonce import __version__
from spellonce.errors import SpellOnceError

if TYPE_CHECKING:
    from spellonce.web.views import Views

STATIC = Path(__file__).parent / "static"
RESULTS = (Path(__file__).parent / "results", Path(__file__).parents[3] / "docs" / "results")
"""Where tables and pictures are: in an installed package, or in a clone."""
LOCAL = ("127.0.0.1", "localhost", "::1", "testserver")
"""Names by which this machine is asked; others are refused where it listens to itself alone."""
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
    work: float = 10.0
    """and how long words are looked for."""


LIMITS = Limits()


# --- what can be asked --------------------------------------------------------------------------


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        """Half of a surrogate pair is no text."""
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str):
                try:
                    part.encode("utf-8")
                except UnicodeEncodeError:
                    raise ValueError("this is not valid Unicode") from None
        return value


Text = Annotated[str, Field(max_length=LIMITS.text)]
Seed = Annotated[int, Field(ge=0, le=2**53)]
Temperature = Annotated[float, Field(ge=0.0, le=5.0, allow_inf_nan=False, strict=False)]


class ScoreRequest(_Asked):
    """A text to be scored."""

    text: Text
    cache: bool = False


class SampleRequest(_Asked):
    """A text to be continued."""

    prompt: Text = ""
    n: int = Field(60, ge=1, le=LIMITS.tokens)
    temperature: Temperature = 0.75
    seed: Seed = 0
    cache: bool = False


class AlternativesRequest(_Asked):
    """A place in a text that was written: its prompt, and the tokens that came before the place."""

    prompt: Text = ""
    tokens: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[], max_length=LIMITS.tokens
    )
    cache: bool = False


class SpellRequest(_Asked):
    """Words to be made up: like some words, or for a place in a text, one of the two."""

    like: list[Annotated[str, Field(max_length=100)]] = Field(default=[], max_length=20)
    context: Annotated[str, Field(max_length=2000)] | None = None
    n: int = Field(20, ge=1, le=LIMITS.words)
    temperature: Temperature = 1.0
    seed: Seed = 0
    novel_only: bool = True
    min_length: int = Field(1, ge=1, le=40)
    max_length: int = Field(20, ge=1, le=40)
    prefix: str = Field("", max_length=40)
    suffix: str = Field("", max_length=40)
    letters: str = Field("", max_length=500)
    min_distance: int = Field(0, ge=0, le=10)


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

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def take(self, listener: Listener) -> None:
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
        if listener.gone.is_set():
            self.release()
            raise _busy("nobody listens", 1)

    def release(self) -> None:
        """Whoever is next may begin."""
        self._lock.release()

    async def run(self, request: Request, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Does work in a thread, when it is its turn. It is given a way to ask if it is wanted."""
        listener = Listener(request)
        try:
            await self.take(listener)
            end = time.monotonic() + self.limits.work
            try:
                return await in_thread(
                    lambda: work(lambda: not listener.gone.is_set() and time.monotonic() < end)
                )
            finally:
                self.release()
        finally:
            listener.close()


def _busy(why: str, seconds: int) -> HTTPException:
    return HTTPException(429, f"{why}: try again", {"Retry-After": str(seconds)})


async def in_thread(work: Callable[[], _T]) -> _T:
    """Does work in a thread; what a user can cause is an answer and no failure."""
    try:
        return await run_in_threadpool(work)
    except SpellOnceError as error:
        raise HTTPException(422, str(error)) from error


class _Released(StreamingResponse):
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
            self._future.set_result(load())
        except BaseException as error:
            self._future.set_exception(error)

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


def create_app(load: Loading, limits: Limits = LIMITS, hosts: tuple[str, ...] = LOCAL) -> FastAPI:
    """The server of one model. `hosts`: the only names it answers to; none: any."""
    app = FastAPI(
        title="spellonce", version=__version__, docs_url=None, redoc_url=None,
        description="A two-level open-vocabulary language model: read, write, spell, explore.",
    )  # fmt: skip
    app.add_middleware(Guard, limit=limits.body, hosts=hosts)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": f"{where}: {first['msg']}" if where else first["msg"]}, 422)

    _add_pages(app)
    _add_model(app, load, Turns(limits))
    _add_results(app)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> FileResponse:
        if name not in {path.name for path in STATIC.iterdir()}:
            raise HTTPException(404, "there is no such file")
        return FileResponse(STATIC / name)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the server is there."""
        return {"status": "ok"}


_TOLD: dict[str, Any] = {
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"detail": {"type": "string"}}}
        }
    }
}
_GET: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request cannot be read.", **_TOLD},
    422: {"description": "Something in the request cannot be.", **_TOLD},
    429: {"description": "The model is busy: try again.", **_TOLD},
}
_POST = _GET | {413: {"description": "The request is too large.", **_TOLD}}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is none.", **_TOLD}}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _add_model(app: FastAPI, load: Loading, turns: Turns) -> None:
    async def answer(
        request: Request, work: Callable[[Views, Callable[[], bool]], Any]
    ) -> Response:
        """What work gives, as JSON, which is made in the thread too."""
        views = await load.views()
        body = await turns.run(request, lambda wanted: _json(work(views, wanted)))
        return Response(body, media_type="application/json")

    @app.get("/api/v1/model")
    async def about() -> dict[str, Any]:
        """What the model is."""
        return await in_thread((await load.views()).about)

    @app.post("/api/v1/score", responses=_POST)
    async def score(asked: ScoreRequest, request: Request) -> Response:
        """Bits of every token of a text; with a cache, beside those without."""
        return await answer(request, lambda views, _: views.score(asked.text, cache=asked.cache))

    @app.post(
        "/api/v1/sample",
        responses=_POST | {200: {"content": {"application/x-ndjson": {}}}},
        response_class=StreamingResponse,
    )
    async def sample(asked: SampleRequest, request: Request) -> StreamingResponse:
        """A text that continues the prompt, a line of JSON for each token as it is written."""
        views = await load.views()
        listener = Listener(request)
        try:
            await turns.take(listener)
        except BaseException:
            listener.close()
            raise

        def ended() -> None:
            listener.close()
            turns.release()

        try:
            tokens: Iterator[dict[str, Any]] = views.write(
                asked.prompt, asked.n, asked.temperature, asked.seed, cache=asked.cache
            )
            first = await in_thread(lambda: next(tokens, None))
        except BaseException:
            ended()
            raise

        async def stream() -> AsyncIterator[str]:
            token = first
            while token is not None and not listener.gone.is_set():
                yield json.dumps(token) + "\n"
                token = await run_in_threadpool(lambda: next(tokens, None))

        return _Released(stream(), ended, "application/x-ndjson")

    @app.post("/api/v1/alternatives", responses=_POST)
    async def alternatives(asked: AlternativesRequest, request: Request) -> Response:
        """What else might have come at a place in a text that was written."""
        return await answer(
            request,
            lambda views, _: views.alternatives(asked.prompt, asked.tokens, cache=asked.cache),
        )

    @app.post("/api/v1/spell", responses=_POST)
    async def spell(asked: SpellRequest, request: Request) -> Response:
        """Words that look like others, or that fit a place."""

        def work(views: Views, wanted: Callable[[], bool]) -> dict[str, Any]:
            from spellonce.wugs import Constraints

            constraints = Constraints(
                asked.novel_only, asked.min_length, asked.max_length, asked.prefix, asked.suffix,
                asked.letters, min_distance=asked.min_distance,
            )  # fmt: skip
            return views.spell(
                asked.like, asked.context, asked.n, asked.temperature, asked.seed, constraints,
                wanted,
            )  # fmt: skip

        return await answer(request, work)

    @app.get("/api/v1/neighbours", responses=_GET)
    async def neighbours(
        request: Request,
        word: Annotated[str, Query(min_length=1, max_length=100)],
        n: Annotated[int, Query(ge=1, le=100)] = 12,
    ) -> Response:
        """Lexemes that are used like a word, known or not, and where it is on the map."""
        return await answer(request, lambda views, _: views.neighbours(word, n))

    @app.get("/api/v1/map", responses=_GET)
    async def lexicon_map(request: Request) -> Response:
        """Frequent lexemes in two dimensions."""
        return await answer(request, lambda views, _: views.map)

    @app.get("/api/v1/training")
    async def training() -> dict[str, Any]:
        """The training curve of the run."""
        return {"rows": await in_thread((await load.views()).training)}


def _add_results(app: FastAPI) -> None:
    @app.get("/api/v1/results")
    async def results() -> dict[str, Any]:
        """Pictures and tables of what was measured, by name."""
        return {
            "figures": [p.stem for p in _results("svg")],
            "tables": [p.stem for p in _results("csv")],
        }

    @app.get(
        "/api/v1/results/figures/{name}",
        response_class=FileResponse,
        responses=_NOT_FOUND | {200: {"content": {"image/svg+xml": {}}}},
    )
    async def figure(name: str) -> FileResponse:
        """One of the pictures, as SVG."""
        return FileResponse(_result(name, "svg"), media_type="image/svg+xml")

    @app.get("/api/v1/results/tables/{name}", responses=_NOT_FOUND)
    async def table(name: str) -> dict[str, Any]:
        """One of the tables."""
        with _result(name, "csv").open(encoding="utf-8", newline="") as file:
            columns, *rows = csv.reader(file)
        return {"columns": columns, "rows": rows}


def _results(kind: str) -> list[Path]:
    folder = next((folder for folder in RESULTS if folder.is_dir()), None)
    return [] if folder is None else sorted(folder.glob(f"*.{kind}"))


def _result(name: str, kind: str) -> Path:
    for path in _results(kind):
        if path.stem == name:
            return path
    raise HTTPException(404, "there is no such result")
