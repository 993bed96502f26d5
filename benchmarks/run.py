"""Runs every benchmark in a process of its own and prints their JSON, one line each.

Benchmarks that need a corpus look for it under $SPELLONCE_DATA and say so when it is absent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    scripts = sorted(Path(__file__).parent.glob("bench_*.py"))
    return max(subprocess.run([sys.executable, str(s)], check=False).returncode for s in scripts)


if __name__ == "__main__":
    sys.exit(main())
