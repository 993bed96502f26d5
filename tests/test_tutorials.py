"""What the tutorials tell a reader to type works as it stands, but for sizes and times.

Each page is run from its top to its end in an empty folder: fences with a title are files,
`console` fences are what is typed after `$ `, `python` fences are one program.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import Result, call, make_text, tiny

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
STEPS = 20
KNOWN = (
    "The old man walked to the house . The old men walked along the river .\n"
    "The old women walked to the river . The old man sailed the boats .\n"
) * 20
"""Words that the tutorials take for known."""
Change = Callable[[str], str]


@dataclass(frozen=True)
class Fence:
    """A block of code on a page."""

    language: str
    title: str
    body: str


def fences(page: str) -> list[Fence]:
    """The blocks of a page, in order.

    >>> fences('```text title="a.txt"\\nhello\\n```\\n')
    [Fence(language='text', title='a.txt', body='hello\\n')]
    """
    found = re.findall(
        r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', page, re.DOTALL | re.MULTILINE
    )
    return [Fence(*parts) for parts in found]


def typed(fence: Fence) -> list[str]:
    """The commands of a `console` fence; lines without `$ ` are what they printed.

    >>> typed(Fence("console", "", "$ a \\\\\\n    b\\nout\\n$ c\\n"))
    ['a      b', 'c']
    """
    lines = fence.body.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def smaller(command: str) -> str:
    """The same command in milliseconds."""
    command = re.sub(r"--budget \S+", shlex.join(["--steps", str(STEPS), *tiny()]), command)
    command = re.sub(r"^head -c \d+ ", "head -c 1000 ", command)
    return re.sub(r"^spellonce tune ", "spellonce tune --tokens 100 ", command)


def smaller_program(program: str) -> str:
    """The same program."""
    settings = f"steps={STEPS}, settings={tiny()[1::2]!r}"
    program = re.sub(r'budget="[^"]*"', settings, program)
    return re.sub(r"\bsteps = \d+", "steps = 3", program)


def perform(command: str) -> str:
    """What a command prints: `spellonce` in this process, all else in a shell."""
    piped, _, target = command.partition(" > ")
    data = b""
    for stage in piped.split(" | "):
        words = shlex.split(stage, comments=True)
        if words[0] == "spellonce":
            done: Result = call(*words[1:], stdin=data)
            assert done.code == 0, (command, done)
            data = done.out.encode()
        else:
            data = subprocess.run(
                stage, shell=True, input=data, capture_output=True, check=True
            ).stdout
    if target:
        Path(target.strip()).write_bytes(data)
    return "" if target else data.decode()


def run_page(page: str, command: Change = smaller, program: Change = smaller_program) -> list[str]:
    """Runs all of a page here; what came of each fence that does something."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    printed = []
    for fence in fences(page):
        if fence.title:
            Path(fence.title).write_text(fence.body, encoding="utf-8")
        elif fence.language == "console":
            printed.append("".join(perform(command(line)) for line in typed(fence)))
        elif fence.language == "python":
            exec(compile(program(fence.body), "tutorial", "exec"), names)
    return printed


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.md")), ids=lambda path: path.stem)
def test_a_tutorial_works(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = path.read_text(encoding="utf-8")
    assert any(fence.language in ("console", "python") for fence in fences(page))
    text = make_text(200) + KNOWN
    for name in ("my-text.txt", "book.txt"):
        Path(name).write_text(text, encoding="utf-8")
    if "--out my-run" not in page:
        call("train", "my-text.txt", "--steps", STEPS, "--out", "my-run", *tiny()).ok()
    run_page(page)
