"""How fast is the tokenizer? Prints one line of JSON, in MB (10⁶ bytes of UTF-8 text) per second.

    python benchmarks/bench_tokenizer.py [FILE ...]

Without files it takes the training texts under `$SPELLONCE_DATA`, and without those the topics of
Python's own `help()`, repeated. Every text is checked to come back as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from spellonce.tokenizer import detokenize, tokenize, tokenize_line

DATA_SETS = ("novels-de", "novels-fr", "novels-es", "novels-cs", "plays-ru", "help-fi")
MIN_PYDOC_CHARS = 5_000_000


def texts(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """(name, text) of everything to measure."""
    data = os.environ.get("SPELLONCE_DATA")
    if not paths and data:
        paths = [Path(data) / name / "train.txt" for name in DATA_SETS]
        paths = [path for path in paths if path.is_file()]
    for path in paths:
        yield f"{path.parent.name}/{path.name}", path.read_bytes().decode("utf-8")
    if not paths:
        from pydoc_data import topics

        topic = "".join(topics.topics.values())
        yield "pydoc_data.topics", topic * (1 + MIN_PYDOC_CHARS // len(topic))


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measure(text: str, repeats: int) -> dict[str, float]:
    megabytes = len(text.encode("utf-8")) / 1e6
    lines = text.split("\n")
    tokens = tokenize(text)
    if detokenize(tokens) != text:
        raise SystemExit("the text did not come back: this is a bug")
    runs: dict[str, Callable[[], object]] = {
        "tokenize": lambda: tokenize(text),
        "tokenize_lines": lambda: [tokenize_line(line).split(" ") for line in lines],
        "detokenize": lambda: detokenize(tokens),
    }
    speeds = {name: megabytes / median_seconds(run, repeats) for name, run in runs.items()}
    return {"megabytes": round(megabytes, 2)} | {
        f"{name}_mb_per_s": round(speed, 1) for name, speed in speeds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of the tokenizer.")
    parser.add_argument("files", nargs="*", type=Path, help="UTF-8 texts")
    parser.add_argument("--repeats", type=int, default=5, help="report the median of so many")
    arguments = parser.parse_args()
    report = {
        "benchmark": "tokenizer",
        "python": platform.python_version(),
        "unidata": unicodedata.unidata_version,
        "repeats": arguments.repeats,
        "texts": {name: measure(text, arguments.repeats) for name, text in texts(arguments.files)},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
