"""What the README tells a newcomer to type works as it stands, but for sizes and times."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from spellonce import cli

from .conftest import call, make_text, tiny
from .test_tutorials import fences, perform

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = README.split("\n```")[1::2]
QUICK_START = next(block for block in BLOCKS if "spellonce train my-text.txt" in block)


def commands(block: str) -> list[list[str]]:
    """What is typed in a block, in words."""
    lines = block.replace("\\\n", " ").splitlines()
    return [
        shlex.split(line, comments=True)
        for line in lines
        if re.match(r"(echo .*)?spellonce ", line)
    ]


def test_the_quick_start_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-text.txt").write_text(make_text(200), encoding="utf-8")
    typed = commands(QUICK_START)
    assert len(typed) >= 9
    for command in typed:
        stdin = b""
        if "|" in command:
            at = command.index("|")
            stdin, command = command[1].encode(), command[at + 1 :]
        _, *arguments = command
        if arguments[0] == "train":
            at = arguments.index("--budget")
            arguments[at : at + 2] = ["--steps", "20", *tiny()]
        if arguments[0] == "tune":
            arguments += ["--tokens", "100"]
        result = call(*arguments, stdin=stdin)
        assert result.code == 0 and result.out, (command, result)
        assert result.err.count("\n") <= 1, "a remark at most"


@pytest.mark.parametrize("command", [c for b in BLOCKS for c in commands(b)], ids=shlex.join)
def test_every_option_in_the_readme_exists(command: list[str]) -> None:
    found = typer.main.get_command(cli.app)
    words = [word for word in command[command.index("spellonce") + 1 :] if word not in ("…", "|")]
    while hasattr(found, "commands") and words:
        name = words.pop(0)
        assert name in found.commands, f"no command {name}"
        found = found.commands[name]
    options = {option for parameter in found.params for option in parameter.opts}
    for word in words:
        word = word.strip("[]")
        assert not word.startswith("-") or word in options, f"no option {word}"


def same(printed: str, told: str) -> bool:
    """Whether two texts are the same, but for the last digits of numbers with a point in them.

    >>> same("a 1.2345 b", "a 1.2346 b"), same("a 1.2 b", "a 1.3 b"), same("a 7", "a 8")
    (True, False, False)
    """
    number = r"(\d+\.\d+)"
    mine, theirs = (re.split(number, text) for text in (printed, told))
    return len(mine) == len(theirs) and all(
        abs(float(a) - float(b)) < 2e-3 if i % 2 else a == b
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True))
    )


def test_what_the_readme_shows_is_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands after `$ ` in `console` blocks, with the model in the package."""
    monkeypatch.chdir(tmp_path)
    shown = [fence for fence in fences(README) if fence.language == "console"]
    assert shown
    for fence in shown:
        for part in re.split(r"^\$ ", fence.body, flags=re.M)[1:]:
            command, _, told = part.partition("\n")
            printed = perform(command)
            assert same(printed, told), (command, printed, told)
