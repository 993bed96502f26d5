"""The documentation is true: links lead somewhere, made pages are up to date, the site builds."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spellonce

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "spellonce"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as both GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    """Where its relative links lead."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: no heading {anchor} in {found.name}"


def test_the_command_line_is_described_as_it_is() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "command_line_docs.py"))
    written = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert written == script["render"](), "run python scripts/command_line_docs.py"


def test_every_public_name_is_described() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    described = re.findall(r"^::: spellonce\.(\w+)\.(\w+)$", page, re.M)
    assert sorted(name for _, name in described) == sorted(spellonce.__all__)
    homes = {name: home for home, name in described}
    assert homes == spellonce._HOME


def layers() -> dict[str, int]:
    """The row of the table in architecture.md that each module, or package.*, stands in."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = page.split("\n## Layers\n")[1].split("\n## ")[0]
    found: dict[str, int] = {}
    for number, row in enumerate(re.findall(r"^\| \w+ \| (`.*?) \|", table, re.M)):
        for module in re.findall(r"`([\w.*]+)`", row):
            assert module not in found, f"{module} stands in two rows"
            found[module] = number
    return found


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules of this package that a module imports anywhere but for type checking."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spellonce":
            home = (node.module or "").removeprefix("spellonce").removeprefix(".")
            names = [f"{home}.{alias.name}".removeprefix(".") for alias in node.names]
            is_package = not home or (SOURCE / home).is_dir()
            yield from names if is_package else [home]
        yield from imports(node)


def test_every_module_has_its_layer_and_imports_none_below() -> None:
    row = layers()

    def place(module: str) -> int:
        name = module if module in row else f"{module.split('.')[0]}.*"
        assert name in row, f"docs/architecture.md has no layer for {module}"
        return row[name]

    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module.endswith("__init__"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for imported in imports(tree):
            if not imported.startswith("__"):  # the version, which is no module
                assert place(imported) <= place(module), f"{module} imports {imported}"
    there = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    assert {module for module in row if not module.endswith(".*")} == there


def test_text_needs_no_torch() -> None:
    row = layers()
    for module in (name for name, number in row.items() if number == row["text"]):
        assert not re.search(r"^(import|from) torch", (SOURCE / f"{module}.py").read_text(), re.M)


def test_long_code_is_found(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "long_code.py"))
    body = "class A:\n    def f(self):\n" + "        pass\n" * 9
    (tmp_path / "a.py").write_text(body, encoding="utf-8")
    assert script["long_modules"](tmp_path, 10) == [("a.py", 11)]
    assert script["long_modules"](tmp_path, 11) == []
    assert script["long_functions"](tmp_path, 9) == [("a.py:A.f", 10)]
    assert script["long_functions"](tmp_path, 10) == []


def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an announcement of the theme's makers
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    loaded = (
        r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*\shref=[\"']?https?://"
    )
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(loaded, text), f"{page.name} asks another host"
