"""Runs benchmarks, each in a process of its own, and writes what they found.

    python benchmarks/run.py [NAME …] [--soak] [--out docs]

`performance.json` keeps the latest figures of each benchmark (`bench_*.py`), with machine and
commit; `performance.md` and `.svg` are made from it. With `--soak` it is the long trials of
`soak_*.py`, and `reliability.json` and `.md`. What needs a corpus looks for it under
`$SPELLONCE_DATA` and says so when it is absent.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch

HERE = Path(__file__).parent


def machine() -> dict[str, Any]:
    """What figures of speed depend on."""
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.is_file() else [])
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(), "python": platform.python_version(),
        "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip


def commit() -> str:
    """What was measured."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="*")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs")
    arguments = parser.parse_args()
    prefix = "soak_" if arguments.soak else "bench_"
    scripts = {p.stem.removeprefix(prefix): p for p in sorted(HERE.glob(f"{prefix}*.py"))}
    if unknown := set(arguments.name) - set(scripts):
        parser.error(f"no {', '.join(sorted(unknown))}: there are {', '.join(scripts)}")
    page = report.RELIABILITY if arguments.soak else report.PERFORMANCE
    path = arguments.out / f"{page.name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    failed = False
    for name in arguments.name or scripts:
        done = subprocess.run(
            [sys.executable, str(scripts[name])], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            print(f"{name} failed", file=sys.stderr)
            failed = True
            continue
        result = json.loads(done.stdout.strip().split("\n")[-1])
        print(json.dumps(result), flush=True)
        if "skipped" in result:
            print(f"{name} was skipped: {result['skipped']}", file=sys.stderr)
        for bar in result.get("bars", ()):
            if not bar["met"]:
                print(f"{name}: {bar['what']} is {bar['value']}, not {bar['relation']} "
                      f"{bar['limit']}", file=sys.stderr)  # fmt: skip
                failed = True
        if "skipped" not in result:
            today = datetime.date.today().isoformat()
            found[name] = {**result, "date": today, "commit": commit(), "machine": machine()}
    found = {name: found[name] for name in scripts if name in found}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report.write(page, found, scripts, arguments.out)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
