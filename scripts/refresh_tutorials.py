"""Runs the commands and the Python of tutorials (or the README), and puts in what they print.

    python scripts/refresh_tutorials.py RUN PAGE [PAGE …]

In a folder of its own, where RUN is `my-run`. A `console` block is refreshed command by command; a
`python` block fills the `text` block that follows it. Read the pages afterwards: what they say
about the output is not refreshed. Pages whose commands need more than a run are not for this.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (?:[^\n]*\\\n)*[^\n]*\n", re.MULTILINE)


def printed(command: list[str], folder: Path) -> str:
    """What a command prints; whatever it says on stderr is shown here."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout


def refreshed(page: str, folder: Path) -> str:
    """The page with what its blocks print now, in their order."""

    def console(match: re.Match[str]) -> str:
        commands = [found.group() for found in _COMMAND.finditer(match[1])]
        told = [
            command + printed(["bash", "-c", command.removeprefix("$ ")], folder)
            for command in commands
        ]
        return f"```console\n{''.join(told)}```"

    def python(match: re.Match[str]) -> str:
        output = printed([sys.executable, "-c", match[1]], folder)
        return f"```python\n{match[1]}```\n\n```text\n{output}```"

    return _PYTHON.sub(python, _CONSOLE.sub(console, page))


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    run, *pages = map(Path, sys.argv[1:])
    for page in pages:
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "my-run").symlink_to(run.resolve())
            text = refreshed(page.read_text(encoding="utf-8"), Path(scratch))
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
