"""Do all files come back from compression as they were? One line of JSON.

    python benchmarks/soak_codec.py [--files 10000] [--run RUN]

As many files as that, made by Hypothesis out of text, odd text and bytes, in each mode (static,
cache, cache and dynamic evaluation), and every file of this repository, with a cache. Without a run
it trains a small one on the topics of Python's own `help()`.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from common import bar, finish_command, write_topics
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spellonce import codec
from spellonce.adaptive import Learning
from spellonce.loading import load
from spellonce.model import Model

ROOT = Path(__file__).parent.parent
MODES = (Learning(), Learning(cache=True), Learning(cache=True, dynamic=True))
SIZES = ["n_embed=24", "lm.n_hidden=32", "speller.n_hidden=24", "lm.cuts=200", "vocab_size=2000"]


def comes_back(model: Model, data: bytes, learning: Learning) -> bool:
    packed, again = io.BytesIO(), io.BytesIO()
    codec.compress(model, io.BytesIO(data), packed, learning)
    packed.seek(0)
    codec.decompress(model, packed, again)
    return again.getvalue() == data


def made_up(model: Model, n: int) -> Counter[bool]:
    """How many files came back, and how many did not."""
    words = st.sampled_from(model.lexicon.types[2:400])
    lines = st.lists(st.one_of(words, st.text(max_size=8)), max_size=12).map(" ".join)
    text = st.lists(lines, max_size=4).map("\n".join)
    parts = st.one_of(
        text.map(lambda s: s.encode("utf-8", "surrogatepass")), st.binary(max_size=80)
    )
    found: Counter[bool] = Counter()

    @settings(
        max_examples=n, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(data=st.lists(parts, max_size=3).map(b"".join), mode=st.sampled_from(MODES))
    def ask(data: bytes, mode: Learning) -> None:
        found[comes_back(model, data, mode)] += 1

    ask()
    return found


def own_files() -> list[Path]:
    """All files of this repository that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--run", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = arguments.run
        if run is None:
            run, text = Path(scratch) / "run", write_topics(Path(scratch))
            sizes = [part for size in SIZES for part in ("--set", size)]
            train = ("train", str(text), "--recipe", "mixed-small", "--steps", "200")
            finish_command(*train, "--out", str(run), *sizes)
            finish_command("tune", str(run), "--tokens", "5000")
        model = load(run)
        begin = time.perf_counter()
        made = made_up(model, arguments.files)
        paths = [path for path in own_files() if path.is_file()]
        back = [comes_back(model, path.read_bytes(), MODES[1]) for path in paths]
    print(json.dumps({
        "benchmark": "codec", "seconds": round(time.perf_counter() - begin),
        "bars": [
            bar("made-up files that came back", made[True], "at least", arguments.files),
            bar("made-up files that did not", made[False], "at most", 0),
            bar("files of this repository that came back", sum(back), "at least", len(paths)),
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
