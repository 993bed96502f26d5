"""Compress files, losslessly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from spellonce.commands.shared import (
    CacheOption,
    DynamicOption,
    JsonOption,
    ModelOption,
    app,
    load_model,
    print_json,
)


@app.command()
def compress(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Any file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file that is not there yet.")],
    model: ModelOption = None,
    cache: CacheOption = False,
    dynamic: DynamicOption = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not decode it again to be sure.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compress a file without loss: text takes the bits that `eval` announces."""
    loaded = load_model(model, "cpu")
    from spellonce.adaptive import Learning
    from spellonce.codec import compress_file

    with _bar(source, 1 if no_verify else 2) as progress:
        before, after = compress_file(
            loaded, source, out, Learning(cache, dynamic), verify=not no_verify, progress=progress
        )
    if as_json:
        print_json({"in": str(source), "out": str(out), "n_bytes": before, "compressed": after})
    else:
        share = f", {8 * after / before:.3f} bits per byte" if before else ""
        typer.echo(f"{before:,} bytes became {after:,}{share}: {out}")


@app.command()
def decompress(
    source: Annotated[Path, typer.Argument(metavar="IN", help="What `compress` wrote.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file that is not there yet.")],
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo `compress`, with the model that it was made with."""
    loaded = load_model(model, "cpu")
    from spellonce.codec import decompress_file

    with _bar(None, 1) as progress:
        n_bytes = decompress_file(loaded, source, out, progress=progress)
    if as_json:
        print_json({"in": str(source), "out": str(out), "n_bytes": n_bytes})
    else:
        typer.echo(f"{n_bytes:,} bytes: {out}")


@contextmanager
def _bar(source: Path | None, times: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of a file, which are gone over some times."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    total = times * source.stat().st_size if source is not None and source.is_file() else None
    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("coding", total=total)
        yield lambda n_bytes: bar.update(task, completed=n_bytes)
