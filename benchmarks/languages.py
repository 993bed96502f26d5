"""Do the bits of all rows add up to what `eval` says, and do their places cut the text?

    python benchmarks/languages.py RUN [RUN …]

The test split of each run is written to a file and scored by `spellonce score` and by `spellonce
eval --text`, in a process of their own each. One line of JSON for each run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from spellonce.preparation import source_of
from spellonce.runs import RunFolder

_MEANT = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def spellonce(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "spellonce", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def check(run: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "test.txt"
        text = "".join(source_of(RunFolder(run).read_config(), "test").lines())
        path.write_bytes(text.encode())
        lines = spellonce("score", "-m", str(run), "--format", "jsonl", str(path)).split("\n")
        rows = [json.loads(line) for line in lines if line]
        announced = json.loads(spellonce("eval", str(run), "--text", str(path), "--json"))
    total = sum(row["bits"] for row in rows)
    place, gaps, wrong = 0, "", 0
    for row in rows:
        token = re.sub(r"\\(.)", lambda found: _MEANT[found.group(1)], row["token"])
        gaps += text[place : row["start"]]
        wrong += text[row["start"] : row["end"]] != token
        place = row["end"]
    gaps += text[place:]
    return {
        "run": str(run), "tokens": len(rows), "bits": total,
        "relative_error": abs(total - announced["bits"]) / announced["bits"],
        "tokens_that_are_not_there": wrong,
        "characters_between_them_that_are_no_spaces": len(gaps.strip(" ")),
    }  # fmt: skip


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    for run in sys.argv[1:]:
        print(json.dumps(check(Path(run))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
