"""The page under load: many clients at once, memory, and how soon it is there. One line of JSON.

    python benchmarks/soak_load.py [RUN] [--clients 50] [--seconds 60]

Starts `spellonce serve` with a run (the model in the box, if none is named, and where there is none
either a small one that is trained first), measures how soon the page and a first answer are there
and how long a text of 50 words takes when nobody else asks, and then lets clients read, write,
spell and explore as fast as they are answered. Whoever is told 429 waits as long as it is told, and
asks again; now and then somebody goes away before the answer is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from common import bar, finish_command, write_topics

from spellonce.loading import BOX
from spellonce.runs import RunFolder

WORDS = "the cat sat on a mat and every evening the old wug came home to zibble its neighbours"


def rss_mb(pid: int) -> float:
    """Memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def text_of(n: int, rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS.split(), k=n)) + "."


def request_of(rng: random.Random) -> tuple[str, str, dict[str, Any] | None]:
    """(method, path, body) of something that the page might ask."""
    text = text_of(50, rng)
    return rng.choice([
        ("POST", "score", {"text": text, "cache": False}),
        ("POST", "score", {"text": text, "cache": True}),
        ("POST", "alternatives", {"prompt": text[:80]}),
        ("POST", "sample", {"prompt": "The", "n": 20, "seed": rng.randrange(1000)}),
        ("POST", "spell", {"context": "The ___ came home", "n": 5, "seed": rng.randrange(1000)}),
        ("GET", "neighbours?word=evening", None),
        ("GET", "map", None),
        ("GET", "model", None),
    ])  # fmt: skip


async def client(
    number: int, address: str, end: float, codes: Counter[str], seconds: list[float]
) -> None:
    rng = random.Random(number)
    async with httpx.AsyncClient(base_url=f"{address}/api/v1/", timeout=60) as session:
        while time.monotonic() < end:
            method, path, body = request_of(rng)
            begin = time.monotonic()
            leaves = rng.random() < 0.05
            patience = rng.uniform(0.01, 0.2) if leaves else 60
            try:
                answer = await session.request(method, path, json=body, timeout=patience)
            except httpx.HTTPError as error:
                if leaves and isinstance(error, httpx.TimeoutException):
                    continue
                codes[type(error).__name__] += 1
                continue
            codes[str(answer.status_code)] += 1
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]) * rng.uniform(0.5, 1))
            else:
                seconds.append(time.monotonic() - begin)


async def under_load(address: str, pid: int, clients: int, seconds: float) -> dict[str, Any]:
    codes: Counter[str] = Counter()
    times: list[float] = []
    memory: list[float] = []
    end = time.monotonic() + seconds
    tasks = [asyncio.create_task(client(i, address, end, codes, times)) for i in range(clients)]
    health: list[float] = []
    async with httpx.AsyncClient(base_url=address, timeout=20) as session:
        while time.monotonic() < end:
            begin = time.monotonic()
            (await session.get("/healthz")).raise_for_status()
            health.append(time.monotonic() - begin)
            memory.append(round(rss_mb(pid)))
            await asyncio.sleep(seconds / 60)
    await asyncio.gather(*tasks)
    return {
        "codes": dict(codes), "median_seconds": round(statistics.median(times), 3),
        "slowest_health_seconds": round(max(health), 3), "rss_mb": memory,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = arguments.run
        if run is None and not RunFolder(BOX).started:
            run, text = f"{scratch}/run", str(write_topics(Path(scratch)))
            finish_command("train", text, "--steps", "100", "--out", run)
            finish_command("tune", run, "--no-dynamic", "--tokens", "5000")
        measure(run, arguments.clients, arguments.seconds)


def measure(run: str | None, clients: int, seconds: float) -> None:
    command = [sys.executable, "-m", "spellonce", "serve", "--port", "0"]
    command += ["-m", run] if run else []
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        with httpx.Client(base_url=address, timeout=60) as session:
            session.get("/").raise_for_status()
            first_view = time.monotonic() - begin
            session.get("/api/v1/model").raise_for_status()
            first_answer = time.monotonic() - begin
            rng, alone = random.Random(0), []
            for _ in range(15):
                start = time.monotonic()
                answer = session.post("/api/v1/score", json={"text": text_of(50, rng)})
                answer.raise_for_status()
                alone.append(time.monotonic() - start)
        loaded = asyncio.run(under_load(address, server.pid, clients, seconds))
        server.terminate()
        code = server.wait(20)
    errors = sum(n for name, n in loaded["codes"].items() if name not in ("200", "429"))
    third = len(loaded["rss_mb"]) // 3
    memory = [statistics.median(loaded["rss_mb"][third * i : third * (i + 1)]) for i in (1, 2)]
    print(json.dumps({
        "benchmark": "load", "clients": clients, "seconds": seconds,
        "first_answer_seconds": round(first_answer, 2), **loaded, "exit_code": code,
        "bars": [
            bar("first view of the page", first_view, "at most", 2, "s"),
            bar("a text of 50 words, alone", statistics.median(alone), "at most", 0.3, "s"),
            bar("errors but 429", errors, "at most", 0),
            bar("memory in the last third, of that in the second", memory[1] / memory[0], "at most",
                1.05, "×"),
            bar("slowest answer of /healthz", loaded["slowest_health_seconds"], "at most", 2, "s"),
            bar("code of its end by SIGTERM", code, "at most", 0),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
