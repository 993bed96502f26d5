"""What the command line prints: progress, tables, coloured text. Progress goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from spellonce.configuration import Recipe
from spellonce.errors import ConfigError, DataError
from spellonce.generation import Sample
from spellonce.parallel import is_leader
from spellonce.significance import LEVEL

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
            disable=not self._console.is_terminal or not is_leader(),
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


@contextmanager
def byte_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar that is told bytes, and how many there are in all if that is known."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda n_bytes, total: bar.update(task, completed=n_bytes, total=total)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """One line that says what is being done; silent where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda message: None
        return
    with console.status("") as status:
        yield lambda message: status.update(Text(message))


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
    if result["adaptive"] is not None:
        result = result | {"static_bpc": result["static"]["bpc"]}
        rows.append(("static_bpc", "  the same without learning while reading"))
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
    if "segmentations" in result:
        found = result["segmentations"]
        error = found["bpc_saved_error"]
        console.print(
            f"other segmentations would save about {found['bpc_saved']:.4f} bits per character"
            + (f" (standard error {error:.4f})" if error is not None else "")
            + f", from {found['tokens']} tokens",
            highlight=False,
        )
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


def system_names(result: dict[str, Any]) -> list[str]:
    """What to call the systems of `compare`: as much of the end of their paths as tells them apart.

    >>> system_names({"systems": [{"run": "runs/a"}, {"run": "runs/b/"}]})
    ['a', 'b']
    >>> system_names({"systems": [{"run": "runs/x/a"}, {"run": "runs/y/a"}]})
    ['x/a', 'y/a']
    """
    runs = [Path(system["run"]) for system in result["systems"]]
    for n in range(1, max(len(run.parts) for run in runs)):
        names = [str(Path(*run.parts[-n:])) for run in runs]
        if len(set(names)) == len(names):
            return names
    return [str(run) for run in runs]


def comparison_table(result: dict[str, Any]) -> None:
    """The figures of `compare`: the systems, best first, and whether they differ."""
    console = Console()
    systems, names = result["systems"], system_names(result)
    order = sorted(range(len(systems)), key=lambda i: systems[i]["bpc"])
    n = result["n_articles"]
    console.print(
        f"{result['split']}: {systems[0]['n_chars']:,} characters, {n:,} "
        f"article{'s' * (n != 1)} ({result['article_rule']})",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("run", overflow="fold")
    table.add_column("recipe", overflow="fold")
    for head in ("bpc", "lm", "spell", *map(_bin_name, systems[0]["bins"])):
        table.add_column(head, justify="right", no_wrap=True)
    for place, i in enumerate(order):
        system = systems[i]
        parts = [system["bpc"], system["bpc_lm"], system["bpc_spell"]]
        values = [*parts, *(row["bpc"] for row in system["bins"])]
        cells = ["–" if value is None else f"{value:.3f}" for value in values]
        bpc = Text(cells[0], style="bold")
        table.add_row(str(place + 1), Text(names[i]), system["recipe"], bpc, *cells[1:])
    console.print(table, highlight=False)
    meaning = "bpc = lm + spell; then bpc by how often the word was seen in training."
    console.print(Text(f"{meaning}\n", style="dim"))
    ranks = {systems[i]["run"]: place + 1 for place, i in enumerate(order)}
    pairs = []
    for pair in result["pairs"]:
        better, worse = sorted((ranks[pair["a"]], ranks[pair["b"]]))
        pairs.append((better, worse, pair))
    pairs.sort(key=lambda pair: pair[:2])
    if len(pairs) <= 6:
        _list_of_pairs(console, pairs, [names[i] for i in order])
    elif 2 + 7 * len(order) <= console.width:
        _matrix_of_pairs(console, pairs, len(order))
    else:
        console.print("There are too many pairs for this width: --json has them all.")
    how = "all" if result["exact"] else "drawn at random"
    console.print(
        f"\n{_verdict(pairs)}\nPaired permutation test over articles; "
        f"{result['n_permutations']:,} permutations, {how}.",
        highlight=False,
    )
    for note in result["notes"]:
        console.print(Text(f"Note: {note}"))


def _bin_name(row: dict[str, Any]) -> str:
    """Training counts as the head of a column."""
    if row["hi"] is None:
        return f"{row['lo']}+"
    return str(row["lo"]) if row["hi"] == row["lo"] + 1 else f"{row['lo']}–{row['hi'] - 1}"


def _list_of_pairs(
    console: Console, pairs: list[tuple[int, int, dict[str, Any]]], names: list[str]
) -> None:
    table = Table(box=None, pad_edge=False)
    for head in ("better", "worse"):
        table.add_column(head, overflow="fold")
    for head in ("by bpc", "p", "p (Holm)"):
        table.add_column(head, justify="right", no_wrap=True)
    for a, b, pair in pairs:
        table.add_row(
            Text(f"{a} {names[a - 1]}"), Text(f"{b} {names[b - 1]}"), f"{abs(pair['delta']):.4f}",
            f"{pair['p']:.4f}", _p_text(pair["p_holm"], f"{pair['p_holm']:.4f}"),
        )  # fmt: skip
    console.print(table, highlight=False)


def _matrix_of_pairs(
    console: Console, pairs: list[tuple[int, int, dict[str, Any]]], n: int
) -> None:
    """p after Holm below the diagonal, p above it."""
    cells: dict[tuple[int, int], Text] = {}
    for a, b, pair in pairs:
        cells[a, b] = Text(_short_p(pair["p"]), style="dim")
        cells[b, a] = _p_text(pair["p_holm"], _short_p(pair["p_holm"]))
    table = Table(box=None, pad_edge=False)
    for head in ("", *map(str, range(1, n + 1))):
        table.add_column(head, justify="right", no_wrap=True)
    for row in range(1, n + 1):
        marks = (cells.get((row, column), Text("·")) for column in range(1, n + 1))
        table.add_row(Text(str(row), style="bold"), *marks)
    console.print("p of each pair: before Holm's correction above the dots, after it below them")
    console.print(table, highlight=False)


def _p_text(p: float, text: str) -> Text:
    return Text(text, style="bold green" if p < LEVEL else "")


def _short_p(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"


def _verdict(pairs: list[tuple[int, int, dict[str, Any]]]) -> str:
    """Which differences may be luck, in words."""
    unsure = [f"{a}–{b}" for a, b, pair in pairs if pair["p_holm"] >= LEVEL]
    if len(pairs) == 1:
        return f"The difference is {'not ' if unsure else ''}significant at {LEVEL}."
    if not unsure:
        return f"All differences are significant at {LEVEL} after Holm's correction."
    if len(unsure) == len(pairs):
        return f"No difference is significant at {LEVEL} after Holm's correction."
    others = "All other differences are."
    return f"Not significant at {LEVEL} after Holm's correction: {', '.join(unsure)}. {others}"


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


def draw_sample(sample: Sample, path: Path) -> None:
    """Writes a picture of a sample, an SVG file that is not there yet."""
    from spellonce.markup import paragraph

    parts = [(sample.prompt, "given"), *((p.text, "novel" * p.is_novel) for p in sample.pieces)]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(paragraph(parts) + "\n")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def check_picture(path: Path) -> None:
    """Refuses what cannot become a picture."""
    if path.suffix != ".svg":
        raise ConfigError(f"{path} is to be a picture: name it .svg")
    if path.exists():
        raise DataError(f"{path} is there already: name another file, or remove it")


def recipe_fields(recipe: Recipe) -> None:
    """All fields of a recipe with their values."""
    print(f"{recipe.name}: {recipe.about}")
    for part, field in recipe.fields():
        print(f"  {part + '.' + field:30} {getattr(getattr(recipe, part), field)}")
