"""Writes docs/command-line.md: every command and option, as the program itself knows them.

    python scripts/command_line_docs.py

Help texts are taken from the program, not from its printed help, so the page depends neither on the
width of a terminal nor on who prints it.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from spellonce import cli

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
_VALUES = {int: "N", float: "X", Path: "PATH"}
HEAD = """\
# Command line

<!-- Written by scripts/command_line_docs.py. Change the commands, not this page. -->

`spellonce COMMAND --help` says the same. Exit codes: 0 done, 1 it could not be done (one line on
stderr says why and what to do), 2 wrong usage. `--json` prints one JSON object on stdout and
nothing else there.
"""


def render() -> str:
    """The page."""
    root = typer.main.get_command(cli.app)
    parts = [HEAD, *(_section(name, command) for name, command in _commands(root, "spellonce"))]
    return "\n".join(parts)


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(what is typed, command) of all that can be called, in the program's order."""
    for own, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {own}")
        else:
            yield f"{name} {own}", command


def _section(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option" and p.name != "help"]
    typed = [name, *map(_argument_name, arguments), *["[OPTIONS]"] * bool(options)]
    lines = [f"## {name.removeprefix('spellonce ')}", "", _paragraph(command.help or ""), ""]
    lines += ["```", " ".join(typed), "```", ""]
    rows = [(f"`{_argument_name(p)}`", _cell(p.help or "")) for p in arguments if p.help]
    kinds = typing.get_type_hints(inspect.unwrap(command.callback))
    rows += [(_option_name(p, kinds[p.name]), _about(p)) for p in options]
    if rows:
        lines += ["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows), ""]
    return "\n".join(lines)


def _argument_name(argument: Any) -> str:
    """As it stands in the usage: in brackets if it may be left out."""
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option_name(option: Any, kind: Any) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} {option.metavar or _value_name(kind)}"


def _value_name(kind: Any) -> str:
    """What stands for a value of a type.

    >>> _value_name(int | None), _value_name(list[str])
    ('N', 'TEXT')
    """
    kinds = typing.get_args(kind) or (kind,)
    return next((name for one, name in _VALUES.items() if one in kinds), "TEXT")


def _about(option: Any) -> str:
    """Its help, and its default where it has one that says something."""
    default = option.default
    told = _cell(option.help or "")
    if option.is_flag or default in (None, "", ()) or callable(default) or not option.show_default:
        return told
    value = f"`{default}`"
    return f"{told} Default: {value}." if told else f"Default: {value}."


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _paragraph(text))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{PAGE}\n")
