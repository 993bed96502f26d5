"""Get data, compare systems, report on one, reproduce the paper."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from spellonce.api import parse_duration
from spellonce.commands.shared import (
    CacheOption,
    DeviceOption,
    DynamicOption,
    JsonOption,
    app,
    load_model,
    print_json,
)
from spellonce.errors import ConfigError

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data", help="Known data sets: which there are, and fetching them.")


@data_app.command("list")
def data_list(as_json: JsonOption = False) -> None:
    """The known data sets, one line each, and where they are on this machine."""
    from spellonce import registry

    rows = []
    for known in registry.known():
        row = {key: getattr(known, key) for key in ("name", "about", "licence", "n_bytes")}
        there = registry.where(known.name)
        row |= {"checksum": known.checksum, "sha256": known.sha256, "crc32": known.crc32}
        rows.append(row | {"urls": known.urls, "folder": None if there is None else str(there)})
    if as_json:
        print_json({"datasets": rows})
        return
    columns = [
        (
            row["name"],
            row["about"],
            row["licence"],
            f"{row['n_bytes'] / 1e6:.1f} MB" if row["n_bytes"] else "size unknown",
            row["checksum"],
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    for row, cells in zip(rows, columns, strict=True):
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        typer.echo(f"{line}  {row['folder'] or 'not here'}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="One of `spellonce data list`.")],
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another address of its archive, or a file.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="The SHA-256 that the archive must have.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a data set into the user's cache folder, where --dataset finds it."""
    from spellonce import registry
    from spellonce.show import byte_bar

    with byte_bar(name) as progress:
        got = registry.get(name, url=url, sha256=sha256, progress=progress)
    if as_json:
        row = {key: getattr(got, key) for key in ("name", "was_there", "url", "sha256", "checked")}
        print_json(row | {"folder": str(got.folder)})
        return
    if got.was_there:
        typer.echo(f"{name} is there already: {got.folder}")
        return
    held = "as it should be"
    if got.checked != "SHA-256":
        held = f"no SHA-256 is published, {got.checked or 'nothing'} was checked"
    typer.echo(f"{name} is in {got.folder}")
    typer.echo(f"sha256 of its archive: {got.sha256} ({held})")
    typer.echo(f"next: spellonce train --dataset {name} --out my-run")


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="Run folders.")],
    split: Annotated[str, typer.Option(help="valid or test, of the runs' own data.")] = "test",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .svg, .png or .pdf.")
    ] = None,
    cache: CacheOption = False,
    dynamic: DynamicOption = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Runs side by side, and which differences are more than luck."""
    if split not in ("train", "valid", "test"):
        raise ConfigError(f"--split must be valid or test, not {split!r}")
    from spellonce import plots

    if plot is not None:
        plots.check(plot)
    from spellonce.adaptive import Learning
    from spellonce.comparison import compare as compare_runs
    from spellonce.loading import find_run
    from spellonce.show import comparison_table, status_line, system_names

    learning = Learning(cache=cache, dynamic=dynamic)
    with status_line() as status:
        found = [find_run(str(run)) for run in runs]
        result = compare_runs(found, split, device=device, learning=learning, status=status)
    if plot is not None:
        plots.draw_comparison(result, system_names(result), plot)
    if as_json:
        print_json(result)
    else:
        comparison_table(result)


@app.command()
def tune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    tokens: Annotated[
        int, typer.Option(min=100, help="Of valid, for trying rates of dynamic evaluation.")
    ] = 20_000,
    static: Annotated[
        bool, typer.Option("--no-dynamic", help="Leave dynamic evaluation out.")
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Find how a model best learns while it reads, on its validation split; stored with the run."""
    from spellonce.show import status_line
    from spellonce.tuning import tune_run

    with status_line() as status:
        result = tune_run(
            load_model(str(run), device), n_dynamic=0 if static else tokens, status=status
        )
    if as_json:
        print_json(result)
        return
    width = max(len(row["what"]) for row in result["tried"])
    for row in result["tried"]:
        typer.echo(f"{row['what']:{width}}  {row['bpc']:.4f} bpc")
    options = "--cache" if result["adaptive"]["dynamic"] is None else "--cache, --dynamic or both"
    typer.echo(f"stored in {run}: give eval, score, compare, sample or compress {options}")


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; else the run's name and .html.")
    ] = None,
    split: Annotated[str, typer.Option(help="valid or test, of the run's own data.")] = "valid",
    force: Annotated[bool, typer.Option("--force", help="Replace a file.")] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """One page about one run: figures, curves, words, settings; an HTML file to send to people."""
    from spellonce import run_report
    from spellonce.show import status_line

    with status_line() as status:
        path = run_report.write(run, out, split, force=force, device=device, status=status)
    if as_json:
        print_json({"run": run, "split": split, "out": str(path)})
    else:
        typer.echo(f"{path.stat().st_size:,} bytes: {path}")


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="table1, vocabulary, mwc, samples, types-tokens, asides, minutes or adaptive."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For runs, tables and figures.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time of everything: 2h, 90m.")
    ] = None,
    each: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time of each training, instead.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each training, instead.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Data set; may be given repeatedly.")
    ] = None,
    size: Annotated[str, typer.Option(help="small, or paper (made for a GPU).")] = "small",
    systems: Annotated[str | None, typer.Option(metavar="A,B…", help="Only these systems.")] = None,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="N,N…", help="Sizes of the vocabulary.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Of full, no-reg and pure-bpe, in table1.")] = 1,
    minutes: Annotated[
        str | None, typer.Option(metavar="N,N…", help="Lengths of trainings, in minutes.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, …")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    as_json: JsonOption = False,
) -> None:
    """A table or figure of the paper, ours beside theirs; goes on where it stopped."""
    if out is None:
        raise ConfigError("where to? give the results a folder: --out DIR")
    seconds, seconds_each = (None if t is None else parse_duration(t) for t in (budget, each))
    from spellonce.paper import experiments, running
    from spellonce.show import TrainingDisplay

    wish = experiments.Wish(
        datasets=tuple(dataset or ()), size=size, systems=_names(systems),
        sizes=tuple(_whole_number("--vocabulary", n) for n in _names(vocabulary)), seeds=seeds,
        minutes=tuple(_whole_number("--minutes", n) for n in _names(minutes)),
        budget=seconds, each=seconds_each, steps=steps,
        command=f"spellonce {' '.join(shlex.quote(argument) for argument in sys.argv[1:])}",
    )  # fmt: skip
    with TrainingDisplay() as display:
        written = running.reproduce(
            experiment, wish, out, device=device, threads=threads, reporter=display,
            told=(lambda message: None) if as_json else typer.echo,
        )  # fmt: skip
    if as_json:
        print_json({"experiment": experiment, "written": [str(path) for path in written]})
    else:
        typer.echo(f"written: {', '.join(str(path) for path in written)}")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{option}: {text!r} is not a whole number")
    return int(text)
