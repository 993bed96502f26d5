"""Lists the modules and functions that are long enough to be asked whether they are two things.

    python scripts/long_code.py [--lines 450] [--function-lines 60] [FOLDER]

One line each, the longest first; exits with 0 whether or not there are any.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "spellonce"


def long_modules(folder: Path, limit: int) -> list[tuple[str, int]]:
    """(path, lines) of each module with more lines than that."""
    sizes = [
        (str(path.relative_to(folder)), len(path.read_text(encoding="utf-8").splitlines()))
        for path in folder.rglob("*.py")
    ]
    return sorted((row for row in sizes if row[1] > limit), key=lambda row: (-row[1], row[0]))


def long_functions(folder: Path, limit: int) -> list[tuple[str, int]]:
    """(path:name, lines from `def` to its end) of each function with more lines than that."""
    sizes = [
        (f"{path.relative_to(folder)}:{name}", lines)
        for path in folder.rglob("*.py")
        for name, lines in _functions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    return sorted((row for row in sizes if row[1] > limit), key=lambda row: (-row[1], row[0]))


def _functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}" if within else child.name
            if not isinstance(child, ast.ClassDef) and child.end_lineno is not None:
                yield name, child.end_lineno - child.lineno + 1
        yield from _functions(child, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SOURCE)
    parser.add_argument("--lines", type=int, default=450)
    parser.add_argument("--function-lines", type=int, default=60)
    arguments = parser.parse_args()
    for found in (
        long_modules(arguments.folder, arguments.lines),
        long_functions(arguments.folder, arguments.function_lines),
    ):
        for name, lines in found:
            print(f"{lines:5}  {name}")


if __name__ == "__main__":
    main()
