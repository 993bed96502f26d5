"""Golden loss curves: seeded training whose losses are pinned. A refactor may not move them.

The quick curves take some seconds; the slow one is the first of them carried on for a minute. To
pin them anew after a change that is meant to move them: `python -m tests.test_golden`, and say in
docs/log.md why they moved.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from spellonce import configuration, corpus, recipes
from spellonce.training import Length, train

PINNED = Path(__file__).with_name("golden.json")
SIZES = ["n_embed=48", "lm.n_hidden=64", "speller.n_hidden=32", "rails=8", "window=20",
         "vocab_size=300", "min_char_count=5", "cuts=100", "lexicon_batch=60", "report_every=25",
         "checkpoint_every=1000"]  # fmt: skip
CURVES = {
    "adam": (["lexicon_interval=5"], 150),
    "sgd": (
        ["optimizer=sgd", "learning_rate=3", "drop_embed=0.1", "drop_recurrent=0.5", "alpha=2",
         "beta=1", "speller.drop=0.2", "window_spread=3", "short_windows=0.05", "nonmonotone=1",
         "evaluate_every=40", "clip_separately=no", "lexicon_interval=7"],
        150,
    ),
}  # fmt: skip
LONG_STEPS = 3000


def text(seed: int = 0) -> str:
    """Some 100 kB over a few hundred stems with endings, from Python's own stable generator."""
    rng = random.Random(seed)
    stems = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(
        rng.randint(1, 3))) for _ in range(400)]  # fmt: skip
    lines = []
    for _ in range(2000):
        words = [
            stems[min(int(rng.expovariate(0.02)), 399)] + rng.choice(["", "", "s", "ed", "ing"])
            for _ in range(rng.randint(3, 14))
        ]
        lines.append(" ".join(words) + ".")
    return "\n".join(lines) + "\n"


def curve(
    name: str, folder: Path, steps: int | None = None, more: Sequence[str] = ()
) -> dict[str, float]:
    settings, planned = CURVES[name]
    source = folder / "text.txt"
    source.write_text(text(), encoding="utf-8")
    recipe = configuration.override(recipes.get("small"), [*SIZES, *settings, *more])
    run = folder / name
    train(
        corpus.open_files([source]), recipe, run, seed=1, threads=1, force=True,
        length=Length(steps=steps or planned),
    )  # fmt: skip
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().split("\n") if line]
    return {
        f"{line['step']}{key[5:]}": line[key]
        for line in lines
        for key in ("train_bpc_lm", "train_bpc_spell", "valid_bpc")
        if key in line
    }


def check(found: dict[str, float], pinned: dict[str, float], tolerance: float) -> None:
    assert found.keys() == pinned.keys()
    for key, expected in pinned.items():
        assert found[key] == pytest.approx(expected, rel=tolerance), key


@pytest.mark.parametrize("name", CURVES)
def test_quick_curves(name: str, tmp_path: Path) -> None:
    check(curve(name, tmp_path), json.loads(PINNED.read_text())[name], 2e-3)


def test_products_in_bfloat16_learn_as_well(tmp_path: Path) -> None:
    found = curve("adam", tmp_path, more=["precision=bfloat16"])
    check(found, json.loads(PINNED.read_text())["adam"], 2e-2)


@pytest.mark.slow
def test_a_minute_of_training(tmp_path: Path) -> None:
    check(curve("adam", tmp_path, LONG_STEPS), json.loads(PINNED.read_text())["long"], 2e-2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        pinned = {name: curve(name, Path(scratch)) for name in CURVES}
        long = Path(scratch) / "long"
        long.mkdir()
        pinned["long"] = curve("adam", long, LONG_STEPS)
    PINNED.write_text(json.dumps(pinned, indent=1) + "\n")
    sys.stdout.write(f"pinned {', '.join(pinned)}\n")
