"""Does one stream through an LSTM layer gain from a second thread? Prints one line of JSON.

    python benchmarks/bench_stream.py

Microseconds a step of a layer with 64 inputs that reads one stream, by number of units, on one
thread and on two; medians of several repetitions that take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the command line does

import torch

SIZES = (256, 320, 512, 640)
STEPS, REPEATS = 1500, 5


@torch.no_grad()
def main() -> None:
    found: dict[str, dict[int, float]] = {"1": {}, "2": {}}
    for size in SIZES:
        layer, x = torch.nn.LSTM(64, size), torch.randn(STEPS, 1, 64)
        times: dict[str, list[float]] = {"1": [], "2": []}
        for _ in range(REPEATS):
            for threads in found:
                torch.set_num_threads(int(threads))
                begin = time.perf_counter()
                layer(x)
                times[threads].append((time.perf_counter() - begin) / STEPS * 1e6)
        for threads, values in times.items():
            found[threads][size] = round(statistics.median(values), 1)
    print(json.dumps({"benchmark": "stream", "microseconds_by_threads_and_units": found}))


if __name__ == "__main__":
    main()
