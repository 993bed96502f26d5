"""The model that comes with the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import spellonce
from spellonce.loading import BOX
from spellonce.model import Model

SENTENCE = "The wug zibbled the cat.\n"


@pytest.fixture(scope="module")
def model() -> Model:
    return spellonce.load()


def test_it_is_small_and_has_a_card() -> None:
    files = [path for path in BOX.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 16e6
    card = (BOX / "README.md").read_text(encoding="utf-8")
    for word in ("trained on", "bits per character", "CC BY-SA", "Limits"):
        assert word in card


def test_it_names_no_folder_of_its_maker() -> None:
    for name in ("config.json", "result.json"):
        found = re.findall(r'"(/[^"]*)"', (BOX / name).read_text(encoding="utf-8"))
        assert not found


def test_it_has_an_opinion_of_english(model: Model) -> None:
    def bits(text: str) -> float:
        return float(model.score(text).bits.sum())

    assert bits("The cat sat on the table.\n") < bits("The table on sat cat the.\n")
    assert bits("He was born in London.\n") < bits("He was born in Lnodon.\n")
    novel = [t for t, is_novel in zip(*_tokens(model), strict=True) if is_novel]
    assert novel == ["wug", "zibbled"]


def _tokens(model: Model) -> tuple[list[str], list[bool]]:
    scores = model.score(SENTENCE)
    return list(scores.tokens), [bool(x) for x in scores.is_novel]


def test_commands_take_it_when_no_other_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spellonce", "score", "--format", "jsonl"],
        input=SENTENCE, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["token"] for row in rows] == ["The", "wug", "zibbled", "the", "cat", ".", "\\n"]
    assert done.stderr == ""


def test_it_compresses_with_what_it_has_read(model: Model, tmp_path) -> None:
    from spellonce.adaptive import Learning
    from spellonce.codec import compress_file, decompress_file

    text = tmp_path / "text"
    text.write_text(SENTENCE * 20, encoding="utf-8")
    sizes = []
    for learning in (Learning(), Learning(cache=True)):
        packed, back = tmp_path / f"{learning.name}.sp", tmp_path / f"{learning.name}.txt"
        sizes.append(compress_file(model, text, packed, learning)[1])
        decompress_file(model, packed, back)
        assert back.read_bytes() == text.read_bytes()
    assert sizes[1] < sizes[0] < len(SENTENCE) * 20
