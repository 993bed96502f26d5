"""Compress files, losslessly."""

from __future__ import annotations

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
    from spellonce.show import byte_bar

    size = source.stat().st_size if source.is_file() else 0
    total = size if no_verify else 2 * size
    with byte_bar("coding") as progress:
        before, after = compress_file(
            loaded, source, out, Learning(cache, dynamic), verify=not no_verify,
            progress=lambda n_bytes: progress(n_bytes, total),
        )  # fmt: skip
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
    from spellonce.show import byte_bar

    with byte_bar("decoding") as progress:
        n_bytes = decompress_file(loaded, source, out, progress=lambda n: progress(n, None))
    if as_json:
        print_json({"in": str(source), "out": str(out), "n_bytes": n_bytes})
    else:
        typer.echo(f"{n_bytes:,} bytes: {out}")
