"""The server: what it answers, what it refuses, and that it is there while it works."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import httpx
import schemathesis
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks

import spellonce
from spellonce.web import app as web
from spellonce.web.serving import Limits, Loading
from spellonce.web.views import Views

from .conftest import call, tiny

TEXT = "The wug, ba ke lo.\nThe wug ran."


@pytest.fixture(scope="module")
def client(tuned_run: Path) -> Iterator[TestClient]:
    with asking(web.create_app(loading(tuned_run))) as found:
        yield found


def asking(app: FastAPI) -> TestClient:
    """Somebody on this machine."""
    return TestClient(app, base_url="http://localhost")


def loading(run: Path) -> Loading:
    return Loading(lambda: Views(spellonce.load(run)))


def test_the_page_needs_nobody_else(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name in ("app.js", "style.css", "icon.svg", "api.html", "api.js"):
        found = client.get(f"/static/{name}")
        assert found.status_code == 200, name
        assert "https://" not in found.text and "innerHTML" not in found.text
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("/static/..%2fapp.py").status_code == 404
    assert client.get("/static/none.js").status_code == 404
    assert client.get("/healthz").json() == {"status": "ok"}


def test_reading(client: TestClient, tuned_run: Path) -> None:
    model = spellonce.load(tuned_run)
    found = client.post("/api/v1/score", json={"text": TEXT}).json()
    scores = model.score(TEXT)
    assert [row["token"] for row in found["tokens"]] == scores.tokens
    assert found["bits"] == pytest.approx(float(scores.bits.sum())) and found["cached"] is None
    for row in found["tokens"]:
        assert TEXT[row["start"] : row["end"]] == row["token"]
        assert (row["characters"] is None) != row["novel"]
        if row["novel"]:
            spelled = sum(bits for _, bits in row["characters"])
            assert spelled == pytest.approx(row["bits_spelling"], rel=1e-3)
    cached = client.post("/api/v1/score", json={"text": TEXT, "cache": True}).json()
    assert cached["cached"]["bits"] < cached["bits"] == pytest.approx(found["bits"])
    again = [i for i, row in enumerate(cached["tokens"]) if row["token"] == "wug"]
    assert cached["tokens"][again[1]]["summoned"] == again[0]
    assert cached["tokens"][again[0]]["summoned"] is None
    assert client.post("/api/v1/score", json={"text": ""}).json()["tokens"] == []


def test_writing(client: TestClient, tuned_run: Path) -> None:
    asked = {"prompt": "The ba", "n": 25, "seed": 3, "temperature": 0.9}
    answer = client.post("/api/v1/sample", json=asked)
    rows = [json.loads(line) for line in answer.text.splitlines()]
    sample = spellonce.load(tuned_run).sample(25, prompt="The ba", seed=3, temperature=0.9)
    assert len(rows) == 25
    assert "".join(row["text"] for row in rows) == sample.text
    assert [row["novel"] for row in rows] == [piece.is_novel for piece in sample.pieces]
    with_cache = client.post("/api/v1/sample", json={**asked, "cache": True})
    assert with_cache.status_code == 200 and len(with_cache.text.splitlines()) == 25
    for cache in (False, True):
        place = {"prompt": "The ba", "tokens": [row["token"] for row in rows[:5]], "cache": cache}
        others = client.post("/api/v1/alternatives", json=place).json()
        shares = [one["p"] for one in others["lexemes"]]
        assert shares == sorted(shares, reverse=True) and 0 < others["p_novel"] < 1


def test_spelling(client: TestClient) -> None:
    asked = {"context": "The", "n": 5, "min_length": 3, "max_length": 6}
    found = client.post("/api/v1/spell", json=asked).json()
    assert found["why"] is None and len(found["words"]) == 5
    assert all(3 <= len(one["word"]) <= 6 and one["bits"] > 0 for one in found["words"])
    none = client.post("/api/v1/spell", json={**asked, "letters": "q"}).json()
    assert none["words"] == [] and "had other letters" in none["why"]
    wrong = client.post("/api/v1/spell", json={"n": 3})
    assert wrong.status_code == 422 and "--like" in wrong.json()["detail"]
    unseen = client.post("/api/v1/spell", json={"like": ["zibbled"], "n": 3})
    assert unseen.status_code == 200 and len(unseen.json()["words"]) == 3


def test_exploring(client: TestClient, tuned_run: Path) -> None:
    found = client.get("/api/v1/map").json()
    vectors = spellonce.load(tuned_run).vectors()
    assert found["words"] == list(vectors.words) and len(found["x"]) == len(found["words"])
    near = client.get("/api/v1/neighbours", params={"word": found["words"][4], "n": 3}).json()
    assert near["known"] and len(near["neighbours"]) == 3
    assert (near["x"], near["y"]) == pytest.approx((found["x"][4], found["y"][4]), abs=1e-3)
    assert client.get("/api/v1/neighbours", params={"word": "zibble"}).json()["known"] is False
    rows = client.get("/api/v1/training").json()["rows"]
    assert rows and {"step", "train_bpc"} <= rows[0].keys()
    results = client.get("/api/v1/results").json()
    for name in results["figures"]:
        found = client.get(f"/api/v1/results/figures/{name}")
        assert found.headers["content-type"] == "image/svg+xml"
    for name in results["tables"]:
        found = client.get(f"/api/v1/results/tables/{name}").json()
        assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert client.get("/api/v1/results/tables/..%2f..%2fREADME").status_code == 404
    about = client.get("/api/v1/model").json()
    assert about["tuned"] and about["recipe"] == "full-small"


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("score", {"text": "a" * 20_001}, 422),
        ("score", {"text": "a" * 300_000}, 413),
        ("score", {"text": 3}, 422),
        ("score", {}, 422),
        ("score", {"text": "a", "more": 1}, 422),
        ("sample", {"n": 501}, 422),
        ("sample", {"n": 0}, 422),
        ("sample", {"temperature": -1}, 422),
        ("sample", {"temperature": 5e-324, "n": 2}, 200),
        ("spell", {"context": "The", "temperature": 5e-324, "novel_only": False}, 200),
        ("spell", {"context": "a ___ b ___"}, 422),
        ("score", {"text": "a", "cache": "yes"}, 422),
        ("sample", {"seed": -1}, 422),
        ("spell", {"context": "a", "n": 1000}, 422),
        ("spell", {"context": "a", "min_length": 9, "max_length": 3}, 422),
    ],
)
def test_limits(client: TestClient, path: str, body: object, code: int) -> None:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == code
    assert code == 200 or isinstance(answer.json()["detail"], str)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_what_is_no_text_is_refused(client: TestClient) -> None:
    for raw in (b'{"text": "\\ud800"}', b"{", b"\xff", b'{"text": NaN}'):
        answer = client.post(
            "/api/v1/score", content=raw, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 422), raw

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 10_000

    assert client.post("/api/v1/score", content=chunks()).status_code == 413


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=60))
def test_any_text_is_answered(client: TestClient, text: str) -> None:
    answer = client.post("/api/v1/score", json={"text": text, "cache": True})
    assert answer.status_code == 200
    assert all(text[r["start"] : r["end"]] == r["token"] for r in answer.json()["tokens"])


def test_whoever_comes_too_late_is_told_and_health_is_answered(
    tuned_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(self: Views, text: str, *, cache: bool = False) -> dict[str, object]:
        begun.set()
        assert go_on.wait(30)
        return {"text": text}

    monkeypatch.setattr(Views, "score", slow)
    limits = Limits(waiting=1, seconds=20.0)
    with asking(web.create_app(loading(tuned_run), limits)) as client:
        codes: list[int] = []

        def ask() -> None:
            codes.append(client.post("/api/v1/score", json={"text": "a"}).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        assert begun.wait(10)
        threads[1].start()
        time.sleep(0.3)
        answer = client.post("/api/v1/score", json={"text": "a"})
        assert answer.status_code == 429 and answer.headers["retry-after"]
        assert client.get("/healthz").status_code == 200
        go_on.set()
        for thread in threads:
            thread.join(20)
        assert codes == [200, 200]


def test_work_that_takes_too_long_is_stopped(tuned_run: Path) -> None:
    """Wherever it is: what reads, what writes, and what searches asks now and then."""
    text = "The ba ke lo zibbled. " * 300
    requests = {
        "score": {"text": text},
        "sample": {"prompt": text, "n": 3},
        "alternatives": {"prompt": text, "tokens": ["the"]},
        "spell": {"context": "The ___ ran.", "n": 3},
    }
    with asking(web.create_app(loading(tuned_run), Limits(work=-1.0))) as client:
        for name, body in requests.items():
            answer = client.post(f"/api/v1/{name}", json=body)
            assert answer.status_code == 422, (name, answer.text)
            assert "takes too long" in answer.json()["detail"]
        answer = client.get("/api/v1/neighbours", params={"word": "zibbled"})
        assert answer.status_code == 422 and "takes too long" in answer.json()["detail"]
        assert client.get("/api/v1/map").status_code == 422


def test_a_text_that_takes_too_long_ends_with_a_reason(
    tuned_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(self: Views, *_: object, **__: object) -> Iterator[dict[str, object]]:
        for i in range(100):
            yield {"text": str(i)}
            time.sleep(0.05)

    monkeypatch.setattr(Views, "write", slow)
    with asking(web.create_app(loading(tuned_run), Limits(work=0.3))) as client:
        answer = client.post("/api/v1/sample", json={"n": 100})
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert answer.status_code == 200 and 2 < len(lines) < 50
        assert [line["text"] for line in lines[:-1]] == [str(i) for i in range(len(lines) - 1)]
        assert "takes too long" in lines[-1]["error"]
        assert client.post("/api/v1/sample", json={"n": 1}).status_code == 200, "it is free again"


def test_a_model_without_lexemes_has_no_map(tiny_text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("train", tiny_text, "--out", run, "--steps", 1, *tiny("vocab_size=0")).ok()
    with asking(web.create_app(loading(run))) as client:
        answer = client.get("/api/v1/map")
        assert answer.status_code == 422 and "no lexemes" in answer.json()["detail"]


# --- whatever the API's own description allows, and what it does not ----------------------------


CHECKS = [
    checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance,
]  # fmt: skip


@pytest.mark.parametrize("n", [4, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_made_from_the_description(address: str, mode: GenerationMode, n: int) -> None:
    torch.set_flush_denormal(False)  # Hypothesis wants all floats there are
    described = schemathesis.openapi.from_url(f"{address}/openapi.json")
    asked: Counter[str] = Counter()
    for operation in described.get_all_operations():
        with suppress(Unsatisfiable):  # where nothing is asked for, nothing can be wrong

            @settings(deadline=None, max_examples=n, suppress_health_check=list(HealthCheck))
            @given(case=operation.ok().as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                case.call_and_validate(checks=CHECKS)
                asked[f"{case.method} {case.path}"] += 1

            ask()
    assert len(asked) >= 5 and asked.total() >= 4 * n, asked


def test_only_two_level_models_have_a_page(tiny_text: Path, tmp_path: Path) -> None:
    run = tmp_path / "char"
    call("train", tiny_text, "--recipe", "pure-char-small", "--out", run, "--steps", 1, "--set",
         "n_embed=8", "--set", "lm.n_hidden=8", "--set", "min_char_count=1").ok()  # fmt: skip
    result = call("serve", "-m", run, "--port", 0)
    assert result.code == 2 and "two-level" in result.err and "http://127.0.0.1:" in result.out


def test_other_names_are_refused(client: TestClient) -> None:
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80"):
        assert client.get("/healthz", headers={"host": host}).status_code == 200


def test_other_sites_cannot_ask(client: TestClient) -> None:
    """Their pages may link to this one; they may not keep its model busy."""
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    asked = "/api/v1/neighbours?word=the"
    assert client.get(asked, headers=foreign).status_code == 403
    assert client.get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    assert client.get(asked, headers={**foreign, "sec-fetch-site": "same-origin"}).is_success


def test_a_log_that_is_being_written_is_read(tuned_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tuned_run, run)
    with (run / "log.jsonl").open("a") as file:
        file.write('{"step": 9')
        file.write('\n{"step": "x"}\n{"step": 10, "train_bpc": "y"}\n')
    assert Views(spellonce.load(run)).training()[-1]["train_bpc"] is None


def test_a_real_server_drops_what_nobody_waits_for(tuned_run: Path) -> None:
    """Sockets that are closed in the middle of a stream leave the model to others."""
    uvicorn = pytest.importorskip("uvicorn")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(web.create_app(loading(tuned_run)), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        body = json.dumps({"prompt": "The", "n": 500}).encode()
        for _ in range(6):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
                one.sendall(
                    b"POST /api/v1/sample HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\n"
                    + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
                )  # fmt: skip
                assert b"200 OK" in one.recv(200)
        begin = time.monotonic()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            assert client.post("/api/v1/score", json={"text": "The ba."}).status_code == 200
        assert time.monotonic() - begin < 10
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()
