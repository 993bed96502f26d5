"""Are there bytes that the program does not withstand? One line of JSON.

    python benchmarks/soak_fuzz.py [--minutes 20]  (needs: pip install atheris)

Coverage-guided fuzzing (atheris, which is libFuzzer) of `tests/fuzz_targets.py`: the tokenizer, the
lexicon's file, the folder of a run whose checksums are right, a compressed file whose checksums are
right. Two at a time, one on each core. A case fails by an error that is not one of ours, by taking
longer than 30 seconds, or by more than 2.5 GB. What is found goes to `tests/fuzz_cases`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMES = ("tokenizer", "lexicon", "run", "container")
SETTINGS = ["n_embed=16", "lm.n_hidden=24", "speller.n_hidden=16", "vocab_size=60", "rails=4"]


def fuzz(name: str, run: Path, options: list[str]) -> None:
    """Fuzzes one target; does not return."""
    import atheris

    sys.path.insert(0, str(ROOT))
    with atheris.instrument_imports(include=["spellonce"], enable_loader_override=False):
        from tests import fuzz_targets

    with fuzz_targets.targets(run) as targets:
        atheris.Setup([sys.argv[0], *options], targets[name])
        atheris.Fuzz()


def seeds(name: str, run: Path, folder: Path) -> None:
    """What to begin with."""
    folder.mkdir()
    if name == "lexicon":
        (folder / "own").write_bytes((run / "lexicon.tsv").read_bytes()[:4000])
    elif name == "tokenizer":
        (folder / "text").write_text("“Né(e)—don't”, 1\u200b2 \t⇹.⇹ x\n", encoding="utf-8")
    else:
        for i in range(8):
            (folder / str(i)).write_bytes(bytes([i, i % 2, 9, 0]) + b'{"a": [1]}')


def trial(name: str, run: Path, scratch: Path, minutes: float) -> dict[str, float]:
    """What came of fuzzing one target for so long."""
    corpus = scratch / name
    seeds(name, run, corpus)
    cases = ROOT / "tests" / "fuzz_cases" / name
    cases.mkdir(parents=True, exist_ok=True)
    before = set(cases.iterdir())
    done = subprocess.run(
        [sys.executable, __file__, "--target", name, "--run", str(run), "--", str(corpus),
         f"-max_total_time={round(60 * minutes)}", "-timeout=30", "-rss_limit_mb=2500",
         "-max_len=4096", f"-artifact_prefix={cases}/", "-print_final_stats=1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    executed = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    found = set(cases.iterdir()) - before
    if not any(cases.iterdir()):
        cases.rmdir()
    return {
        "minutes": minutes, "cases": int(executed[1]) if executed else 0,
        "covered": int(covered[-1]) if covered else 0, "failed": len(found) or done.returncode,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--target", choices=NAMES)
    parser.add_argument("--run", type=Path)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    if arguments.target:
        fuzz(arguments.target, arguments.run, arguments.options)
    # Not before: what atheris is to watch must not be imported yet where it fuzzes.
    from common import bar, finish_command, write_topics

    if importlib.util.find_spec("atheris") is None:
        print(json.dumps({"benchmark": "fuzz", "skipped": "pip install atheris"}))
        return
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        finish_command(
            "train", str(write_topics(Path(scratch))), "--recipe", "mixed-small", "--steps", "10",
            *settings, "--out", str(run),
        )  # fmt: skip
        finish_command("tune", str(run), "--tokens", "200")
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(
                lambda name: trial(name, run, Path(scratch), arguments.minutes), NAMES
            ))  # fmt: skip
    runs = dict(zip(NAMES, found, strict=True))
    print(json.dumps({
        "benchmark": "fuzz", "runs": runs,
        "bars": [
            one
            for name, run in runs.items()
            for one in (
                bar(f"{name}: failures in {arguments.minutes:g} minutes", run["failed"],
                    "at most", 0),
                bar(f"{name}: branches that were seen", run["covered"], "at least", 100),
            )
        ],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
