"""A guided tour: train, measure and play, in about two minutes, on text that every Python has."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import platformdirs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spellonce import corpus, recipes
from spellonce.configuration import Recipe
from spellonce.evaluation import unigram_bits
from spellonce.lexicon import N_SPECIAL, Lexicon
from spellonce.loading import load
from spellonce.model import Model
from spellonce.preparation import Length
from spellonce.show import NOVEL_STYLE, TrainingDisplay, styled_sample
from spellonce.spellers import UnigramSpeller
from spellonce.training import train
from spellonce.two_level import TwoLevel


def text() -> str:
    """The help topics of `pydoc`: some hundred thousand characters of English about Python.

    They are broken into short lines; here a paragraph is a line.
    """
    whole = "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"
    return re.sub(r"(?<=\S)\n(?=[^\W_]|[\"(])", " ", whole)


def recipe() -> Recipe:
    """`full-small`, smaller still: for half a megabyte of text and one minute."""
    small = recipes.full_small()
    return replace(
        small,
        name="full-demo",
        about="the paper's model at the size of a demonstration",
        data=replace(small.data, vocab_size=3_000),
        windows=replace(small.windows, rails=16, window=40),
        lm=replace(
            small.lm, n_embed=128, n_hidden=256, cuts=(),
            drop_input=0.2, drop_hidden=0.2, drop_output=0.2,
        ),
        speller=replace(small.speller, n_hidden=128),
        objective=replace(small.objective, lexicon_interval=10, lexicon_batch=250),
        training=replace(small.training, learning_rate=6e-3, checkpoint_every=500),
    )  # fmt: skip


def run(out: Path | None, seconds: int) -> None:
    """The tour."""
    console = Console()
    folder = out or _folder()
    # Next to each other, so that the run can be evaluated and resumed later.
    source = folder.with_name(folder.name + "-text") / "pydoc-topics.txt"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text(), encoding="utf-8", newline="\n")
    dataset = corpus.open_files([source])
    console.print(
        f"[bold]1. Train.[/bold] {source.stat().st_size:,} bytes of English, the help topics of "
        f"pydoc.\n   A word LSTM learns how words are used, a character LSTM how they look.\n"
        f"   This takes about {seconds} seconds.",
        highlight=False,
    )
    with TrainingDisplay() as display:
        result = train(
            dataset, recipe(), folder, length=Length(budget=seconds), force=out is None,
            reporter=display,
        )  # fmt: skip
    model = load(folder)
    console.print(
        f"   {result['steps']} steps, {result['epochs']:.1f} epochs, "
        f"{result['tokens_per_second']:,.0f} tokens per second.\n",
        highlight=False,
    )
    _measure(console, model, dataset)
    _spell(console, model)
    _write(console, model)
    program = "spellonce" if shutil.which("spellonce") else sys.argv[0]
    console.print("\n[bold]5. Your turn.[/bold] The model is kept; try")
    for command in (
        f"{program} sample -m {folder} -T 1.0 --seed 7",
        f'{program} spell -m {folder} --context "This method will" --novel-only',
        f'echo "The wug returns a list." | {program} score -m {folder}',
        f"{program} train your-text.txt --budget 20m --out my-run",
    ):
        console.print(Text(f"   {command}"), soft_wrap=True)


def _folder() -> Path:
    folder = platformdirs.user_cache_path("spellonce") / "demo"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="spellonce-")) / "demo"
    return folder


def type_unigram(lexicon: Lexicon) -> UnigramSpeller:
    """The best speller that knows only how often characters stand in the words of the lexicon."""
    spellings = lexicon.spellings()
    counts = np.bincount(spellings.symbols, minlength=len(lexicon.alphabet))
    counts[0] = len(spellings) - N_SPECIAL
    return UnigramSpeller.from_counts(counts)


def _measure(console: Console, model: Model, dataset: corpus.Dataset) -> None:
    lines = list(dataset.split("test").lines())
    test = "".join(lines)
    full = model.evaluate(lines)
    network = model.network
    assert isinstance(network, TwoLevel)
    speller, network.novel = network.novel, type_unigram(model.lexicon)
    helpless = model.evaluate(lines)
    network.novel = speller
    characters = Counter("".join(dataset.split("train").lines()))
    unigram = unigram_bits(characters, test) / len(test)
    table = Table(box=None, pad_edge=False)
    for name in ("", "all", "never seen", "1–99 times", "100+ times"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, figures in (
        ("full", full),
        ("without the speller's help", helpless),
    ):
        bins = [f"{b['bpc']:.2f}" if b["bpc"] else "–" for b in figures["bins"]]
        table.add_row(name, f"{figures['bpc']:.2f}", *bins)
    table.add_row("a character unigram", f"{unigram:.2f}", "", "", "")
    console.print("[bold]2. Measure.[/bold] Bits per character of text held back; less is better.")
    console.print(table, highlight=False)
    console.print(
        "   By how often the word was seen in training. Without the speller's help, a\n"
        "   novel word is spelled by how common each of its characters is in words.\n"
    )


def _spell(console: Console, model: Model) -> None:
    console.print("[bold]3. Spell.[/bold] What might a word look like that is used as this one is?")
    lexicon = model.lexicon
    words = [w for w in lexicon.types[N_SPECIAL : lexicon.n_lexemes] if w.isalpha() and len(w) > 5]
    for seed, word in enumerate(words[40:440:40]):
        drawn = model.spell(word, n=1, temperature=0.7, seed=seed, novel_only=True) or ["–"]
        console.print(Text.assemble(f"   {word:>14} → ", (drawn[0], NOVEL_STYLE)))
    console.print()


def _write(console: Console, model: Model) -> None:
    console.print(
        Text.assemble(
            ("4. Write. ", "bold"), "What it makes up stands out ", ("like this", NOVEL_STYLE), "."
        )
    )
    sample = model.sample(130, temperature=0.8, prompt="The ", seed=3)
    console.print(Text("   The") + styled_sample(sample), highlight=False)
