"""Makes the model that comes with the package, from WikiText-2 (or a part of it).

    python scripts/build_box.py WIKITEXT OUT [--budget 60m] [--threads 2]

WIKITEXT is a folder as WikiText comes; the text is made natural first (natural_wikitext.py). OUT
gets the run; what ships, a byte for each weight, goes to src/spellonce/box, with its card.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from spellonce import hub
from spellonce.loading import BOX, load
from spellonce.runs import RunFolder
from spellonce.tuning import tune_run

RECIPE = "cpu"
SETTINGS = ["vocab_size=28000", "n_embed=256", "lm.n_hidden=512", "ngrams.order=2",
            "lexicon_interval=1", "lexicon_batch=100"]  # fmt: skip
LIMIT = 16e6
TUNED = 60_000
"""Tokens of valid on which the cache is tuned."""
CARD = """# The model in the box

A small English model for natural text. Every command of spellonce uses it when no other is named.

| | |
|---|---|
| trained on | {tokens:,} tokens of `{data}`: WikiText-2, its tokenisation undone by `scripts/natural_wikitext.py` |
| recipe | `{recipe}` with {settings}; {minutes:.0f} minutes, CPU threads: {threads} |
| lexemes | {lexemes:,} |
| bits per character | {valid:.3f} on valid, {test:.3f} on test |
| with `--cache` | {cached:.3f} where it has {uncached:.3f} without, on the {tuned:,} tokens of valid that it was tuned on |
| weights | a byte each, with a scale for every row, which costs {loss:+.5f} bits per character on valid |
| licence | the text is Wikipedia's, CC BY-SA 3.0, and so are the counts and weights made from it |

Limits: it has read two million words of encyclopedia, most of whose rare words are missing where the
training text had `<unk>`. It knows nothing of conversation, of other languages, or of what happened
since; what it says is what Wikipedia's authors happened to write, with their biases.

Made by `python scripts/build_box.py`.
"""  # noqa: E501


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("wikitext", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", default="60m")
    parser.add_argument("--threads")
    arguments = parser.parse_args()
    here = Path(__file__).parent
    natural = arguments.out / "wikitext-2-natural"
    if not natural.is_dir():
        subprocess.run(
            [sys.executable, here / "natural_wikitext.py", arguments.wikitext, natural], check=True
        )
    run = arguments.out / "run"
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    subprocess.run(
        [sys.executable, "-m", "spellonce", "train", natural, "--recipe", RECIPE,
         "--budget", arguments.budget, "--out", run, "--resume", *settings,
         *(["--threads", arguments.threads] if arguments.threads else [])],
        check=True,
    )  # fmt: skip
    folder = RunFolder(run)
    if not (folder / "adaptive.json").is_file():
        tune_run(load(run), n_tokens=TUNED, n_dynamic=0)
    if BOX.exists():
        shutil.rmtree(BOX)
    hub.pack(folder, BOX, small=True, dynamic=False)
    write_card(run)
    size = sum(path.stat().st_size for path in BOX.rglob("*") if path.is_file())
    print(f"{BOX}: {size / 1e6:.1f} MB")
    return int(size > LIMIT)


def write_card(run: Path) -> None:
    full, small = load(run), load(BOX)
    result = json.loads((run / "result.json").read_text())
    tried = json.loads((run / "adaptive.json").read_text())["tried"]
    static = {
        split: small.evaluate(list(full.split_lines(split)))["bpc"] for split in ("valid", "test")
    }
    cached = min(one["bpc"] for one in tried if one["what"].startswith("cache"))
    (BOX / "README.md").write_text(
        CARD.format(
            tokens=full.config["data"]["train_tokens"], data=full.config["data"]["name"],
            recipe=RECIPE, settings=", ".join(f"`{setting}`" for setting in SETTINGS),
            minutes=result["seconds_in_all"] / 60,
            threads=full.config["threads"], lexemes=full.lexicon.n_lexemes - 2,
            valid=static["valid"], test=static["test"],
            cached=cached, uncached=tried[0]["bpc"], tuned=TUNED,
            loss=static["valid"] - result["valid_bpc"],
        ),
        encoding="utf-8",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
