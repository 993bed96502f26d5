"""How long does the command line take to answer? One line of JSON; medians.

    python benchmarks/bench_startup.py [--repeats 5]

`--help`, and `score` on a short text with the model that comes with the package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

from common import bar, take_turns

COMMAND = [sys.executable, "-m", "spellonce"]


def call(*arguments: str, text: str = "") -> None:
    subprocess.run([*COMMAND, *arguments], input=text.encode(), check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    runs: dict[str, Callable[[], object]] = {
        "--help": lambda: call("--help"),
        "score": lambda: call("score", text="The wug zibbled the cat.\n"),
    }
    seconds = take_turns(runs, arguments.repeats)
    print(json.dumps({
        "benchmark": "startup",
        "bars": [
            bar("`spellonce --help`", seconds["--help"], "at most", 1, "s"),
            bar("`spellonce score` on a short text", seconds["score"], "at most", 3, "s"),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
