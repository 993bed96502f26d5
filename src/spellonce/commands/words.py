"""Vectors of words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from spellonce.commands.shared import (
    DeviceOption,
    JsonOption,
    ModelOption,
    app,
    file_lines,
    load_model,
    print_json,
    write,
)
from spellonce.errors import ConfigError

ContextOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Where an unseen word stands: with the word, or ___, in it."),
]


@app.command()
def embed(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD…]")] = None,
    model: ModelOption = None,
    context: ContextOption = None,
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A vector for each token of a text instead, as JSONL."),
    ] = None,
    when: Annotated[
        str, typer.Option(help="The state before or after a token of the text is read.")
    ] = "after",
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """The vectors of words, one a line; those of unseen words are inferred from their spelling."""
    if bool(words) == (text is not None):
        raise ConfigError("give words, or a --text, one of the two")
    loaded = load_model(model, device)
    vectors = loaded.vectors()
    if text is not None:
        from spellonce.text import read

        reading = read(file_lines(text), loaded.format)
        states = vectors.states(reading.tokens, when)
        found = zip(reading.line, reading.surfaces, reading.start, reading.end, states, strict=True)
        names = ("line", "token", "start", "end", "vector")
        write(
            json.dumps(
                dict(zip(names, (int(line), token, int(a), int(b), row.tolist()), strict=True)),
                ensure_ascii=False,
            )
            + "\n"
            for line, token, a, b, row in found
        )
        return
    if context:
        for word in filter(vectors.__contains__, words or ()):
            typer.echo(
                f"spellonce: {word!r} is a lexeme: its contexts make no difference", err=True
            )
    words = words or []
    every = [(word, vectors.of(word, context or ()), word in vectors) for word in words]
    if as_json:
        rows = [{"word": w, "known": known, "vector": v.tolist()} for w, v, known in every]
        print_json({"words": rows})
        return
    write(f"{word} {' '.join(f'{x:.6g}' for x in v.tolist())}\n" for word, v, _ in every)


@app.command()
def neighbours(
    word: Annotated[str, typer.Argument(metavar="WORD")],
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    context: ContextOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """The lexemes that are used most like a word, with their cosines."""
    vectors = load_model(model, device).vectors()
    known = word in vectors
    near = vectors.neighbours(vectors.of(word, context or ()), n, but=[word])
    if as_json:
        rows = [{"word": one.word, "cosine": one.cosine} for one in near]
        print_json({"word": word, "known": known, "neighbours": rows})
        return
    if not known:
        whence = "its spelling and contexts" if context else "its spelling"
        typer.echo(f"spellonce: {word!r} is no lexeme; its vector follows from {whence}", err=True)
    write(f"{one.word}\t{one.cosine:.4f}\n" for one in near)


@app.command()
def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file that is not there yet.")],
    model: ModelOption = None,
    form: Annotated[
        str, typer.Option("--format", help="word2vec or word2vec-binary.")
    ] = "word2vec",
    device: DeviceOption = "cpu",
) -> None:
    """Write the embeddings of all lexemes to a file that gensim and others read."""
    n = load_model(model, device).vectors().export(out, form)
    typer.echo(f"{n:,} vectors: {out}")
