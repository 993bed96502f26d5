"""The server: a page and `/api/v1`, with limits on everything that a request can ask for.

One request at a time has the model, some may wait, and the others are told to come again (429).
Work is done in a thread, so that `/healthz` answers meanwhile; whoever writes a text stops when
nobody listens any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spellonce import __version__
from spellonce.errors import SpellOnceError
from spellonce.model import Model
from spellonce.web.views import Views
from spellonce.wugs import Constraints

STATIC = Path(__file__).parent / "static"
RESULTS = (Path(__file__).parent / "results", Path(__file__).parents[3] / "docs" / "results")
"""Where tables and pictures are: in an installed package, or in a clone."""
_T = TypeVar("_T")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
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
    """How long they may."""


LIMITS = Limits()


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

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
Temperature = Annotated[float, Field(ge=0.0, le=5.0, allow_inf_nan=False)]


class ScoreRequest(_Request):
    """A text to be scored."""

    text: Text
    cache: bool = False


class SampleRequest(_Request):
    """A text to be continued."""

    prompt: Text = ""
    n: int = Field(60, ge=1, le=LIMITS.tokens)
    temperature: Temperature = 0.75
    seed: Seed = 0
    cache: bool = False


class AlternativesRequest(_Request):
    """A place in a text."""

    context: Text = ""


class SpellRequest(_Request):
    """Words to be made up."""

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

    def constraints(self) -> Constraints:
        """What of it restricts words."""
        return Constraints(
            self.novel_only, self.min_length, self.max_length, self.prefix, self.suffix,
            self.letters, min_distance=self.min_distance,
        )  # fmt: skip


class Turns:
    """Who may use the model."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def __aenter__(self) -> None:
        if self._waiting >= self._limits.waiting:
            raise HTTPException(
                429, "too many are waiting for the model: try again", {"Retry-After": "2"}
            )
        self._waiting += 1
        try:
            await asyncio.wait_for(self._lock.acquire(), self._limits.seconds)
        except TimeoutError:
            raise HTTPException(429, "the model is busy: try again", {"Retry-After": "5"}) from None
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Does work in a thread, when it is its turn."""
        async with self:
            return await _in_thread(work)


async def _in_thread(work: Callable[[], _T]) -> _T:
    try:
        return await run_in_threadpool(work)
    except SpellOnceError as error:
        raise HTTPException(422, str(error)) from error


class LimitBody:
    """Refuses requests that are too large, before they are read."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > self._limit:
            await self._refuse(scope, receive, send)
            return
        n_read = 0
        refused = False

        async def counted() -> Message:
            nonlocal n_read, refused
            message = await receive()
            n_read += len(message.get("body", b""))
            if n_read > self._limit:
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def guarded(message: Message) -> None:
            if not refused:
                await send(message)

        await self._app(scope, counted, guarded)
        if refused:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = JSONResponse({"detail": f"a request has at most {self._limit:,} bytes"}, 413)
        await answer(scope, receive, send)


def create_app(model: Model, limits: Limits = LIMITS) -> FastAPI:
    """The server of one model."""
    views = Views(model)
    turns = Turns(limits)
    app = FastAPI(
        title="spellonce", version=__version__, docs_url=None, redoc_url=None,
        description="A two-level open-vocabulary language model: read, write, spell, explore.",
    )  # fmt: skip

    @app.middleware("http")
    async def headers(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    app.add_middleware(LimitBody, limit=limits.body)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": f"{where}: {first['msg']}" if where else first["msg"]}, 422)

    _add_pages(app)
    _add_api(app, views, turns)
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


def _add_api(app: FastAPI, views: Views, turns: Turns) -> None:
    busy: dict[int | str, dict[str, Any]] = {
        422: {"description": "Something in the request cannot be."},
        429: {"description": "The model is busy: try again."},
    }

    @app.get("/api/v1/model")
    async def about() -> dict[str, Any]:
        """What the model is."""
        return await _in_thread(views.about)

    @app.post("/api/v1/score", responses=busy)
    async def score(asked: ScoreRequest) -> dict[str, Any]:
        """Bits of every token of a text; with a cache, beside those without."""
        return await turns.run(lambda: views.score(asked.text, cache=asked.cache))

    @app.post("/api/v1/sample", responses=busy, response_class=StreamingResponse)
    async def sample(asked: SampleRequest, request: Request) -> StreamingResponse:
        """A text that continues the prompt, a line of JSON for each token as it is written."""
        await turns.__aenter__()
        try:
            tokens = await _in_thread(
                lambda: views.write(
                    asked.prompt, asked.n, asked.temperature, asked.seed, cache=asked.cache
                )
            )
            first = await _in_thread(lambda: next(tokens, None))
        except BaseException:
            await turns.__aexit__()
            raise

        async def stream() -> AsyncIterator[str]:
            try:
                token = first
                while token is not None and not await request.is_disconnected():
                    yield json.dumps(token) + "\n"
                    token = await run_in_threadpool(lambda: next(tokens, None))
            finally:
                await turns.__aexit__()

        return StreamingResponse(stream(), media_type="application/x-ndjson")

    @app.post("/api/v1/alternatives", responses=busy)
    async def alternatives(asked: AlternativesRequest) -> dict[str, Any]:
        """What else might come after a text."""
        return await turns.run(lambda: views.alternatives(asked.context))

    @app.post("/api/v1/spell", responses=busy)
    async def spell(asked: SpellRequest) -> dict[str, Any]:
        """Words that look like others, or that fit a place."""
        return await turns.run(
            lambda: views.spell(
                asked.like, asked.context, asked.n, asked.temperature, asked.seed,
                asked.constraints(),
            )
        )  # fmt: skip

    @app.get("/api/v1/neighbours", responses=busy)
    async def neighbours(
        word: Annotated[str, Query(min_length=1, max_length=100)],
        n: Annotated[int, Query(ge=1, le=100)] = 12,
    ) -> dict[str, Any]:
        """Lexemes that are used like a word, known or not, and where it is on the map."""
        return await turns.run(lambda: views.neighbours(word, n))

    @app.get("/api/v1/map", responses=busy)
    async def lexicon_map() -> dict[str, Any]:
        """Frequent lexemes in two dimensions."""
        return await turns.run(lambda: views.map)

    @app.get("/api/v1/training")
    async def training() -> dict[str, Any]:
        """The training curve of the run."""
        return {"rows": await _in_thread(views.training)}

    @app.get("/api/v1/results")
    async def results() -> dict[str, Any]:
        """Pictures of what was measured, by name."""
        return {"figures": sorted(path.stem for path in _figures())}

    @app.get("/api/v1/results/{name}", response_class=FileResponse)
    async def result(name: str) -> FileResponse:
        """One of them, as SVG."""
        for path in _figures():
            if path.stem == name:
                return FileResponse(path, media_type="image/svg+xml")
        raise HTTPException(404, "there is no such figure")


def _figures() -> list[Path]:
    folder = next((folder for folder in RESULTS if folder.is_dir()), None)
    return [] if folder is None else sorted(folder.glob("*.svg"))
