"""The guided tour: its text, and (slowly) all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spellonce import demo


def test_the_text_is_english_in_paragraphs() -> None:
    text = demo.text()
    assert len(text) > 300_000 and text.count(" the ") > 2000
    lines = text.split("\n")
    assert max(map(len, lines)) > 300, "paragraphs are lines"


@pytest.mark.slow
def test_the_tour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.run(tmp_path / "demo", 40)
    out = capsys.readouterr().out
    figures = {
        name: float(line.removeprefix(name).split()[0])
        for line in out.split("\n")
        for name in ("full", "without the speller's help", "a character unigram")
        if line.startswith(name)
    }
    assert figures["full"] < figures["without the speller's help"] < figures["a character unigram"]
    assert sum(" → " in line for line in out.split("\n")) == 10
    assert "train your-text.txt" in out
