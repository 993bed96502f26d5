"""How fast is a training text counted and encoded, and in how much memory? One line of JSON.

    python benchmarks/bench_encoding.py [--gigabytes 1]

Takes the training texts under `$SPELLONCE_DATA`, and without those the topics of Python's own
`help()`: once, when every word of them is new, and over and over, when that is rare, as it is in a
long text. The memory is that of all processes together, for the whole and for a tenth of it (for a
text in which new words never end there is `soak_large.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from common import bar, in_own_process

from spellonce import corpus, encoding
from spellonce.text import TextFormat

DATA_SETS = (
    "wikitext-2-partial", "novels-de", "novels-fr", "novels-es", "novels-cs", "plays-ru", "help-fi",
)  # fmt: skip


def texts() -> tuple[str, bytes]:
    """(what it is, some real text)."""
    data = os.environ.get("SPELLONCE_DATA")
    paths = [Path(data) / name / "train.txt" for name in DATA_SETS] if data else []
    found = [path.read_bytes() for path in paths if path.is_file()]
    if found:
        return f"{len(found)} training texts", b"".join(found)
    from pydoc_data import topics

    return "pydoc_data.topics", "".join(topics.topics.values()).encode()


def write_text(path: Path, n_bytes: int) -> None:
    _, text = texts()
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            room = n_bytes - file.tell()
            # As it is, if there is room; else whole lines.
            file.write(text if room > len(text) else text[: text.index(b"\n", room - 1) + 1])


def measure(path: Path, processes: int) -> dict[str, float]:
    size = path.stat().st_size
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        encoded = encoding.encode(
            corpus.open_text(path), TextFormat(), Path(scratch) / "ids", processes=processes
        )
        seconds = time.perf_counter() - begin
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (processes > 1) * processes
    return {
        "megabytes": round(size / 1e6), "processes": processes, "seconds": round(seconds, 1),
        "mb_per_s": round(size / 1e6 / seconds, 1), "tokens": encoded.n_tokens,
        "types": len(encoded.lexicon.types), "peak_rss_mb": round((own + workers) / 1024),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "PROCESSES"))
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(Path(arguments.measure[0]), int(arguments.measure[1]))))
        return
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "text.txt"
        name, text = texts()
        path.write_bytes(text)
        once = statistics.median(
            in_own_process(__file__, "--measure", str(path), "2")["mb_per_s"] for _ in range(3)
        )
        for share, processes in ((0.1, 1), (0.1, 2), (1.0, 2)):
            write_text(path, int(arguments.gigabytes * 1e9 * share))
            runs.append(in_own_process(__file__, "--measure", str(path), str(processes)))
    tenth, whole = runs[1:]
    print(json.dumps({
        "benchmark": "encoding", "text": name, "runs": runs,
        "note": f"The same {len(text) / 1e6:.0f} MB once, with {runs[0]['types']:,} types of which "
        f"every one is new, on two cores: {once:.1f} MB/s, starting the processes and sorting the "
        "types included.",
        "bars": [
            bar(f"{whole['megabytes']:,} MB on two cores", whole["mb_per_s"], "at least", 20,
                "MB/s"),
            bar(
                f"memory for {whole['megabytes']:,} MB of text, of that for {tenth['megabytes']:,}",
                whole["peak_rss_mb"] / tenth["peak_rss_mb"], "at most", 1.2, "×",
            ),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
