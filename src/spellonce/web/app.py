"""The server: a page and `/api/v1`, with limits on everything that a request can ask for.

The page is there at once; the model is loaded meanwhile. Whose turn it is, and what is refused, is
decided in `serving`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from spellonce import __version__
from spellonce.web import answers
from spellonce.web.serving import (
    LIMITS,
    Guard,
    Limits,
    Listener,
    Loading,
    Released,
    Turns,
    in_thread,
)

if TYPE_CHECKING:
    from spellonce.web.views import Views

STATIC = Path(__file__).parent / "static"
RESULTS = (Path(__file__).parent / "results", Path(__file__).parents[3] / "docs" / "results")
"""Where tables and pictures are: in an installed package, or in a clone."""
LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names by which this machine is asked; others are refused where it listens to itself alone."""


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


# --- what is answered ---------------------------------------------------------------------------


def create_app(load: Loading, limits: Limits = LIMITS, hosts: tuple[str, ...] = LOCAL) -> FastAPI:
    """The server of one model. `hosts`: the only names it answers to; none: any."""
    turns = Turns(limits, load)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        turns.stopping.set()

    app = FastAPI(
        lifespan=lifespan, title="spellonce", version=__version__, docs_url=None, redoc_url=None,
        description="A two-level open-vocabulary language model: read, write, spell, explore.",
    )  # fmt: skip
    app.add_middleware(Guard, limit=limits.body, hosts=hosts)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": f"{where}: {first['msg']}" if where else first["msg"]}, 422)

    _add_pages(app)
    answer = _answering(turns)
    _add_about(app, load)
    _add_reading_and_writing(app, turns, answer)
    _add_words(app, answer)
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
    return json.dumps(value, allow_nan=False).encode()


Work = Callable[["Views", Callable[[], bool]], Any]
"""What a request is about; it can ask whether more is wanted."""
Answer = Callable[[Request, Work], Awaitable[Response]]


def _answering(turns: Turns) -> Answer:
    async def answer(request: Request, work: Work) -> Response:
        """What work gives, as JSON, which is made in the thread too."""
        body = await turns.run(request, lambda views, wanted: _json(work(views, wanted)))
        return Response(body, media_type="application/json")

    return answer


def _add_about(app: FastAPI, load: Loading) -> None:
    @app.get("/api/v1/model", response_model=answers.About)
    async def about() -> dict[str, Any]:
        """What the model is."""
        return await in_thread((await load.views()).about)

    @app.get("/api/v1/training", response_model=answers.Training)
    async def training() -> dict[str, Any]:
        """The training curve of the run."""
        return {"rows": await in_thread((await load.views()).training)}


def _add_reading_and_writing(app: FastAPI, turns: Turns, answer: Answer) -> None:
    @app.post("/api/v1/score", responses=_POST | {200: {"model": answers.Scores}})
    async def score(asked: ScoreRequest, request: Request) -> Response:
        """Bits of every token of a text; with a cache, beside those without."""
        return await answer(request, lambda views, _: views.score(asked.text, cache=asked.cache))

    @app.post(
        "/api/v1/sample",
        responses=_POST | {200: {"content": {"application/x-ndjson": {}}}},
        response_class=StreamingResponse,
    )
    async def sample(asked: SampleRequest, request: Request) -> StreamingResponse:
        """A text that continues the prompt, a line of JSON for each token as it is written.

        If it cannot be finished, the last line has an `error`.
        """
        listener = Listener(request)
        try:
            views = await turns.take(listener)
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
            end = turns.end()  # for all of the text, not for each token
            first = await turns.in_thread(listener, lambda: next(tokens, None), end)
        except BaseException:
            ended()
            raise

        async def stream() -> AsyncIterator[str]:
            token = first
            while token is not None and not listener.gone.is_set():
                yield json.dumps(token) + "\n"
                try:
                    token = await turns.in_thread(listener, lambda: next(tokens, None), end)
                except HTTPException as error:  # it is too late for another status
                    token = {"error": error.detail}
                    yield json.dumps(token) + "\n"
                    return

        return Released(stream(), ended, "application/x-ndjson")

    @app.post("/api/v1/alternatives", responses=_POST | {200: {"model": answers.Alternatives}})
    async def alternatives(asked: AlternativesRequest, request: Request) -> Response:
        """What else might have come at a place in a text that was written."""
        return await answer(
            request,
            lambda views, _: views.alternatives(asked.prompt, asked.tokens, cache=asked.cache),
        )


def _add_words(app: FastAPI, answer: Answer) -> None:
    @app.post("/api/v1/spell", responses=_POST | {200: {"model": answers.Wugs}})
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

    @app.get("/api/v1/neighbours", responses=_GET | {200: {"model": answers.Neighbours}})
    async def neighbours(
        request: Request,
        word: Annotated[str, Query(min_length=1, max_length=100)],
        n: Annotated[int, Query(ge=1, le=100)] = 12,
    ) -> Response:
        """Lexemes that are used like a word, known or not, and where it is on the map."""
        return await answer(request, lambda views, _: views.neighbours(word, n))

    @app.get("/api/v1/map", responses=_GET | {200: {"model": answers.Map}})
    async def lexicon_map(request: Request) -> Response:
        """Frequent lexemes in two dimensions."""
        return await answer(request, lambda views, _: views.map)


def _add_results(app: FastAPI) -> None:
    @app.get("/api/v1/results", response_model=answers.Results)
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
        # Its colours are in its elements, and there is nothing else in it to be allowed.
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return FileResponse(_result(name, "svg"), media_type="image/svg+xml", headers=policy)

    @app.get("/api/v1/results/tables/{name}", responses=_NOT_FOUND, response_model=answers.Table)
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
