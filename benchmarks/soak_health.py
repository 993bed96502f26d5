"""Does a long training stay as it was, in memory and in the time of a step? One line of JSON.

    python benchmarks/soak_health.py [--minutes 120]

`spellonce train --recipe cpu --budget 120m` on `wikitext-2` or `wikitext-2-partial`, or where there
is neither on the topics of Python's own `help()`. Its memory is looked at every ten seconds; the
time of a step is in its log. The last quarter is compared with the second, by medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from common import bar, begin_command, is_there, memory_of, write_topics


def quarters(values: list[float]) -> float:
    """The median of the last quarter, of that of the second."""
    n = len(values) // 4
    return statistics.median(values[3 * n :]) / statistics.median(values[n : 2 * n])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=120)
    arguments = parser.parse_args()
    name = next(filter(is_there, ("wikitext-2", "wikitext-2-partial")), None)
    print(f"on {name or 'the topics of help()'}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        data = ["--dataset", name] if name else [str(write_topics(Path(scratch)))]
        budget = f"{arguments.minutes:g}m"
        process = begin_command(
            "train", *data, "--recipe", "cpu", "--budget", budget, "--out", str(run)
        )
        memory = []
        while process.poll() is None:
            if (run / "log.jsonl").is_file():
                memory.append(memory_of(process.pid))
            time.sleep(10)
        assert process.returncode == 0, process.communicate()
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    marks = [(line["step"], line["seconds"]) for line in lines if "seconds" in line]
    steps = [
        (seconds - before) / (step - earlier)
        for (earlier, before), (step, seconds) in pairwise(marks)
    ]
    print(json.dumps({
        "benchmark": "health", "data": name or "pydoc_data.topics",
        "minutes": arguments.minutes, "steps": marks[-1][0],
        "megabytes": [round(x) for x in memory[:: max(1, len(memory) // 24)]],
        "seconds_per_step": [round(x, 3) for x in steps[:: max(1, len(steps) // 24)]],
        "bars": [
            bar("memory of the last quarter, of that of the second", quarters(memory), "at most",
                1.02, "×"),
            bar("seconds of a step in the last quarter, of those in the second", quarters(steps),
                "at most", 1.1, "×"),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
