"""The examples run, and are short."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["surprisal", "wugs", "unseen_words", "compress"])
def test_an_example_runs(
    name: str, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 40
    monkeypatch.setattr(sys, "argv", [str(path), str(tiny_run)])
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 2
