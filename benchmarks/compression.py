"""A file by `spellonce compress` and by others: bytes, bits per character, seconds.

    python benchmarks/compression.py RUN FILE [--cache] [--dynamic] [--train TRAIN]

Others: xz, bzip2, zstd -22 --ultra, brotli 11, PPMd (256 MB, the best of its orders). They know
nothing of the language; the model has its training text behind it, and its size is not counted.
With `--train`, xz and PPMd are given that text too: what the file adds to it. The file is
decoded in a process of its own, on one thread more or less than it was encoded with.
Needs `pip install zstandard brotli pyppmd`.
"""

from __future__ import annotations

import argparse
import bz2
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from spellonce.adaptive import Learning
from spellonce.codec import compress_file
from spellonce.loading import load
from spellonce.text import split_lines

ORDERS = (4, 6, 8, 12, 16)
PRIMED = ("xz -9e", "PPMd")


def others() -> dict[str, Callable[[bytes], bytes]]:
    """Those that are installed."""
    found: dict[str, Callable[[bytes], bytes]] = {
        "xz -9e": lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
        "bzip2 -9": lambda data: bz2.compress(data, 9),
    }
    more: dict[str, tuple[str, Callable[[Any, bytes], bytes]]] = {
        "zstd -22 --ultra": ("zstandard", lambda m, x: m.ZstdCompressor(level=22).compress(x)),
        "brotli 11": ("brotli", lambda m, x: m.compress(x, quality=11, lgwin=24)),
        "PPMd": (
            "pyppmd",
            lambda m, x: min(
                (m.compress(x, max_order=n, mem_size=256 << 20) for n in ORDERS), key=len
            ),
        ),
    }
    for name, (module, compress) in more.items():
        try:
            found[name] = partial(compress, import_module(module))
        except ImportError:
            print(f"{module} is not installed, and is left out", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("file", type=Path)
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--train", type=Path)
    arguments = parser.parse_args()
    data = arguments.file.read_bytes()
    text = data.decode("utf-8")
    rows = []
    for name, compress in others().items():
        begin = time.perf_counter()
        size = len(compress(data))
        rows.append((name, size, time.perf_counter() - begin))
        if arguments.train is not None and name in PRIMED:
            before = arguments.train.read_bytes()
            own = len(compress(before + data)) - len(compress(before))
            rows.append((f"{name}, after the training text", own, 0.0))
    model, learning = load(arguments.run), Learning(arguments.cache, arguments.dynamic)
    with tempfile.TemporaryDirectory() as folder:
        packed, back = Path(folder) / "packed", Path(folder) / "back"
        begin = time.perf_counter()
        _, own = compress_file(model, arguments.file, packed, learning, verify=False)
        rows.append((f"spellonce, {learning.name}", own, time.perf_counter() - begin))
        threads = 1 if torch.get_num_threads() > 1 else 2
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "spellonce", "decompress", "-m", arguments.run, packed, back],
            check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        assert back.read_bytes() == data
    announced = model.evaluate(split_lines(text), learning=learning)["bits_strict"]
    for name, size, taken in sorted(rows, key=lambda row: row[1]):
        bpc = 8 * size / len(text)
        print(f"{name:28} {size:9,} bytes  {bpc:.4f} bits per character  {taken:.1f} s")
    print(json.dumps({
        "rows": rows, "announced_bits": announced, "seconds_back": seconds,
        "above_announced_percent": 100 * (8 * own / announced - 1),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
