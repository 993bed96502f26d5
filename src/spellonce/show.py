"""What the command line prints: progress, tables, coloured text. Progress goes to stderr."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from spellonce.model import Sample
from spellonce.recipes import Recipe

NOVEL_STYLE = "bold magenta"


class TrainingDisplay:
    """A progress bar with bpc so far and time left; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bpc]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, bpc="")

    def __enter__(self) -> TrainingDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def status(self, message: str) -> None:
        """What is being done now."""
        self._bar.update(self._task, description=message)

    def warn(self, message: str) -> None:
        """Said even where there is no progress bar."""
        self._console.print(Text(f"spellonce: {message}"), soft_wrap=True)

    def progress(self, step: int, total: int, bpc: float | None) -> None:
        """A step was taken."""
        self._bar.update(self._task, completed=step, total=total)
        if bpc is not None:
            self._bar.update(self._task, bpc=f"{bpc:.3f} bpc in training")


def training_summary(result: dict[str, Any]) -> None:
    """What a finished training says."""
    minutes, seconds = divmod(round(result["seconds"]), 60)
    print(
        f"{result['recipe']}: {result['steps']:,} steps ({result['epochs']} epochs) in "
        f"{minutes}:{seconds:02d} at {result['tokens_per_second']:,.0f} tokens/s\n"
        f"valid: {result['valid_bpc']:.3f} bits per character\n"
        f"next:  spellonce eval {result['run']} --split test\n"
        f"       spellonce sample -m {result['run']}"
    )


def evaluation_table(result: dict[str, Any]) -> None:
    """The figures of `eval`, each with what it is."""
    console = Console()
    figures = Table(box=None, show_header=False, pad_edge=False)
    figures.add_column(justify="right")
    figures.add_column()
    rows = [("bpc", "bits per character of the text as it is; a rare character counts as ◇")]
    if result["bpc_lm"] is not None:
        rows += [
            ("bpc_lm", "  of these for summoning lexemes (and for UNK)"),
            ("bpc_spell", "  of these for spelling novel words"),
        ]
    rows += [
        ("bpc_strict", "bits per character of a lossless coder: which ◇, all white space"),
        ("bpb", "bits per byte of UTF-8 (◇ as in bpc)"),
    ]
    for key, meaning in rows:
        figures.add_row(f"{result[key]:.4f}", f"[bold]{key}[/bold]  {meaning}")
    console.print(
        f"{result['recipe']} on {result['split']}: {result['n_tokens']:,} tokens "
        f"({result['n_novel']:,} novel), {result['n_chars']:,} characters, "
        f"{result['n_articles']} articles ({result['article_rule']})",
        highlight=False,
    )
    console.print(figures, highlight=False)
    bins = Table(box=None, pad_edge=False)
    for name in ("seen in training", "tokens", "characters", "bpc"):
        bins.add_column(name, justify="left" if name.startswith("seen") else "right")
    for row in result["bins"]:
        seen = "never" if row["hi"] == 1 else f"{row['lo']}+ times"
        if row["hi"] not in (1, None):
            seen = f"{row['lo']}–{row['hi'] - 1} times"
        bpc = "–" if row["bpc"] is None else f"{row['bpc']:.3f}"
        bins.add_row(seen, f"{row['tokens']:,}", f"{row['chars']:,}", bpc)
    console.print(bins, highlight=False)
    console.print(
        f"{result['seconds']:.1f} s, {result['tokens_per_second']:,.0f} tokens/s", highlight=False
    )
    console.print(Text(result["signature"], style="dim"), soft_wrap=True)


def styled_sample(sample: Sample) -> Text:
    """A sample with its invented words in another colour."""
    text = Text()
    for piece in sample.pieces:
        body = piece.text.lstrip(" ")
        text.append(piece.text[: len(piece.text) - len(body)])
        text.append(body, style=NOVEL_STYLE if piece.is_novel else "")
    return text


def sampled_text(sample: Sample, plain: bool) -> None:
    """Prints a sample: in colour on a terminal, with marks when piped, bare when asked."""
    console = Console()
    if plain:
        sys.stdout.write(f"{sample.prompt}{sample.text}\n")
    elif console.is_terminal:
        console.print(Text(sample.prompt, style="dim") + styled_sample(sample), highlight=False)
    else:
        marked = [
            f"{p.text[: len(p.text) - len(p.text.lstrip(' '))]}‹{p.text.lstrip(' ')}›"
            if p.is_novel
            else p.text
            for p in sample.pieces
        ]
        sys.stdout.write(f"{sample.prompt}{''.join(marked)}\n")


def recipe_fields(recipe: Recipe) -> None:
    """All fields of a recipe with their values."""
    print(f"{recipe.name}: {recipe.about}")
    for part in dataclasses.fields(recipe):
        config = getattr(recipe, part.name)
        if not dataclasses.is_dataclass(config):
            continue
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            print(f"  {part.name + '.' + field.name:30} {value}")
