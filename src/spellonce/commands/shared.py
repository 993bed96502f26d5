"""What the commands share: the app, options, reading, writing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spellonce import __version__
from spellonce.errors import DataError

if TYPE_CHECKING:
    from spellonce.corpus import Source
    from spellonce.model import Model

STARTED = time.monotonic()
"""When the command began: a budget is the time of all of it."""

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Two-level open-vocabulary language models: spell once, summon anywhere.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        metavar="RUN",
        help="A folder that `train` wrote, or a Hub id; without it, the model in the package.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, …")]
MAX_SEED = 2**63 - 1
SeedOption = Annotated[
    int, typer.Option(min=0, max=MAX_SEED, help="The same seed gives the same words.")
]
CacheOption = Annotated[
    bool, typer.Option("--cache", help="Remember words that were read (needs `tune`).")
]
DynamicOption = Annotated[
    bool, typer.Option("--dynamic", help="Let the weights follow the text (needs `tune`).")
]
ResetOption = Annotated[
    bool, typer.Option("--reset", help="With --cache: forget words where an article begins.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spellonce {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


def load_model(run: str | None, device: str) -> Model:
    from spellonce.loading import load

    return load(run, device=device)


def file_lines(path: Path) -> Iterator[str]:
    from spellonce.corpus import open_text

    return open_text(path).lines()


def open_all(paths: Sequence[Path]) -> list[Source]:
    """Text files, all of which are there; some may be empty."""
    from spellonce.corpus import open_text

    return [open_text(path, may_be_empty=True) for path in paths]


def in_groups(sources: Sequence[Source], n_bytes: int = 1 << 22) -> Iterator[list[Source]]:
    """Texts in their order, some at a time: what can well be read side by side."""
    group: list[Source] = []
    total = 0
    for source in sources:
        own = source.n_bytes()
        if group and total + own > n_bytes:
            yield group
            group, total = [], 0
        group.append(source)
        total += own
    if group:
        yield group


def stdin_lines() -> Iterator[str]:
    if sys.stdin is None:
        raise DataError("there is nothing to read: standard input is closed")
    for number, raw in enumerate(sys.stdin.buffer):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"the input is not valid UTF-8 (line {number + 1}): "
                "convert it first, e.g. with iconv -t utf-8"
            ) from error


def write(parts: Iterable[str]) -> None:
    out = sys.stdout.buffer
    for part in parts:
        out.write(part.encode("utf-8", "surrogateescape"))
        out.flush()  # whoever reads a pipe gets each line when it is there


def print_json(value: Any) -> None:
    write([json.dumps(value, allow_nan=False) + "\n"])
