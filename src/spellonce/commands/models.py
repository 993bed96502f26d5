"""Train a model and use it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from spellonce import api
from spellonce.commands import shared
from spellonce.commands.shared import (
    MAX_SEED,
    CacheOption,
    DeviceOption,
    DynamicOption,
    JsonOption,
    ModelOption,
    ResetOption,
    SeedOption,
    app,
    file_lines,
    in_groups,
    load_model,
    open_all,
    print_json,
    stdin_lines,
    write,
)
from spellonce.errors import ConfigError, SpellOnceError


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Where to keep the demo's run.")] = None,
    seconds: Annotated[int, typer.Option(min=20, help="How long to train.")] = 60,
) -> None:
    """A guided tour in about two minutes, on text that comes with Python."""
    from spellonce import demo as tour

    tour.run(out, seconds)


@app.command()
def tokenize() -> None:
    """Reversible tokenization of stdin to stdout, line by line."""
    from spellonce.tokenizer import tokenize_stream

    write(tokenize_stream(stdin_lines()))


@app.command()
def detokenize() -> None:
    """Undoes `tokenize`: stdin to stdout, line by line."""
    from spellonce.tokenizer import detokenize_stream

    write(detokenize_stream(stdin_lines()))


@app.command()
def train(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE…]", help="Text files, or one folder.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="A data set by name.")] = None,
    recipe: Annotated[str | None, typer.Option(help="What to train: `spellonce recipes`.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="The run's folder.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time of the whole command: 90s, 30m, 2h.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps, instead of a budget.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change the recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run.")] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MAX_SEED, help="Of all randomness (0).")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to compute: cpu (the default), cuda, …")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write events too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model on your text."""
    from spellonce.parallel import is_leader
    from spellonce.show import TrainingDisplay, training_summary

    with TrainingDisplay() as display:
        result = api.train(
            files or (), out, dataset=dataset, recipe=recipe, settings=settings or (),
            budget=budget, steps=steps, resume=resume, force=force, seed=seed, device=device,
            threads=threads, tensorboard=tensorboard, reporter=display, started=shared.STARTED,
        )  # fmt: skip
    if not is_leader():
        return
    if as_json:
        print_json(result)
    else:
        training_summary(result)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show all fields of one recipe.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="As it is for a --budget: 5m, 2h.")
    ] = None,
) -> None:
    """The named recipes, one line each; with a name, its fields."""
    seconds = None if budget is None else api.parse_duration(budget)
    from spellonce import recipes as all_recipes
    from spellonce.show import recipe_fields

    if name is not None:
        from spellonce import runtime

        means = all_recipes.Means(seconds, bfloat16=runtime.has_bfloat16("cpu"))
        recipe_fields(all_recipes.get(name, means))
        return
    if budget is not None:
        raise ConfigError("--budget goes with the name of a recipe: spellonce recipes cpu …")
    width = max(map(len, all_recipes.names()))
    for known in all_recipes.names():
        typer.echo(f"{known:{width}}  {all_recipes.get(known).about}")


@app.command("eval")
def evaluate(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run folder.")] = None,
    model: ModelOption = None,
    split: Annotated[
        str | None, typer.Option(help="valid (the default) or test, of the run's own data.")
    ] = None,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Any text instead.")] = None,
    segmentations: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="pure-bpe: estimate, on N tokens, what other segmentations are worth.",
        ),
    ] = 0,
    cache: CacheOption = False,
    dynamic: DynamicOption = False,
    renormalise: Annotated[
        bool, typer.Option("--renormalise", help="Let UNK spell only what is no lexeme (slow).")
    ] = False,
    reset: ResetOption = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Bits per character of a text, in all and by frequency of the word."""
    if run and model:
        raise ConfigError("name one run: as the argument, or with -m")
    if text is not None and split is not None:
        raise ConfigError("give a --split of the run's data or a --text, not both")
    result = api.evaluate(
        run or model, split or "valid", text=text, cache=cache, dynamic=dynamic,
        renormalise=renormalise, reset=reset, segmentations=segmentations, device=device,
    )  # fmt: skip
    if as_json:
        print_json(result)
        return
    from spellonce.show import evaluation_table

    evaluation_table(result)


@app.command()
def score(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE…]")] = None,
    model: ModelOption = None,
    form: Annotated[str, typer.Option("--format", help="tsv, jsonl or html.")] = "tsv",
    by: Annotated[
        str, typer.Option(help="What a row is: token, word (with its punctuation), line, article.")
    ] = "token",
    apart: Annotated[
        bool, typer.Option("--apart", help="Each line is a text of its own, as in a list of items.")
    ] = False,
    context: Annotated[
        str, typer.Option(metavar="TEXT", help="What comes before each text; it is not scored.")
    ] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Each line is a context, a tab, and what is scored.")
    ] = False,
    line_ends: Annotated[
        str, typer.Option(help="Line ends: row, word (they count to the word before) or skip.")
    ] = "row",
    first_word: Annotated[
        str, typer.Option(help="The first word of each line: score or skip.")
    ] = "score",
    word_ends: Annotated[
        str, typer.Option(help="That a word ends counts to the next word or its own (slow).")
    ] = "next",
    characters: Annotated[
        bool, typer.Option("--characters", help="How the spelling of novel words adds up.")
    ] = False,
    entropy: Annotated[
        bool,
        typer.Option(
            "--entropy", help="How uncertain the model was before each token, and its rank (slow)."
        ),
    ] = False,
    cache: CacheOption = False,
    dynamic: DynamicOption = False,
    reset: ResetOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Bits for every word of files or of stdin."""
    from spellonce.surprisal import View, check_form, lines, page

    view = View(by, line_ends, first_word, word_ends)  # type: ignore[arg-type]
    form = check_form(form)
    if form == "html" and (view != View() or characters or entropy):
        raise ConfigError(
            "a page shows every token: leave --by, --line-ends, --first-word, --word-ends, "
            "--characters and --entropy out"
        )
    loaded = load_model(model, device)
    from spellonce.adaptive import Learning

    learning = Learning(cache=cache, dynamic=dynamic, reset=reset)
    columns = [*view.columns, *["characters"] * characters, *["entropy", "rank"] * entropy]
    pages = []
    header = True
    for names, texts in _named_texts(files or []):
        if form == "html":
            found = loaded.score_texts(texts, learning, apart=apart, context=context, pairs=pairs)
            labels = [name or "standard input" for name in names]
            pages += list(zip(labels, texts, found, strict=True))
            continue
        tables = loaded.each_surprisal(
            texts, view, learning, apart=apart, context=context, pairs=pairs,
            characters=characters, entropy=entropy,
        )  # fmt: skip
        for name, rows in zip(names, tables, strict=True):
            more = {"file": name} if len(files or []) > 1 else {}
            shown = lines((row | more for row in rows), form, [*columns, *more], header=header)
            write(shown)
            header = False
    if form == "html":
        write([page(pages)])


def _named_texts(files: list[Path]) -> Iterator[tuple[list[str], list[str]]]:
    """Files, or what is on stdin, as (names, texts), some at a time."""
    if not files:
        yield [""], ["".join(stdin_lines())]
    for group in in_groups(open_all(files)):
        names = [str(source.segments[0].path) for source in group]
        yield names, ["".join(source.lines()) for source in group]


@app.command()
def sample(
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", help="How many tokens.")] = 200,
    temperature: Annotated[float, typer.Option("-T", "--temperature")] = 0.75,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    seed: SeedOption = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Do not mark invented words.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it too, as .svg.")
    ] = None,
    cache: CacheOption = False,
    dynamic: DynamicOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Write text; invented words stand in colour, or between ‹ › when piped."""
    from spellonce.adaptive import Learning
    from spellonce.show import check_picture, draw_sample, sampled_text

    if picture is not None:
        check_picture(picture)
    drawn = load_model(model, device).sample(
        n, temperature=temperature, prompt=prompt, seed=seed, learning=Learning(cache, dynamic)
    )
    sampled_text(drawn, plain)
    if picture is not None:
        draw_sample(drawn, picture)


@app.command()
def spell(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD…]", hidden=True)] = None,
    like: Annotated[
        list[str] | None, typer.Option(metavar="WORD…", help="Resemble these, lexemes or not.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Fit at its end, or at a ___ in it.")
    ] = None,
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", help="How many words.")] = 10,
    temperature: Annotated[float, typer.Option("-T", "--temperature")] = 1.0,
    novel_only: Annotated[
        bool, typer.Option("--novel-only", help="No word of the training text.")
    ] = False,
    min_length: Annotated[int, typer.Option(help="In characters.")] = 1,
    max_length: Annotated[int, typer.Option(help="In characters.")] = 30,
    prefix: Annotated[str, typer.Option(help="How they begin.")] = "",
    suffix: Annotated[str, typer.Option(help="How they end.")] = "",
    letters: Annotated[str, typer.Option(help="The only characters to be used.")] = "",
    exclude: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Words that are not wanted, one a line.")
    ] = None,
    min_distance: Annotated[
        int, typer.Option(help="Edits from any word of the training text, at least.")
    ] = 0,
    min_bits: Annotated[float, typer.Option(help="Bits of the spelling, at least.")] = 0.0,
    max_bits: Annotated[
        float | None, typer.Option(help="Bits of the spelling, at most.", show_default=False)
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Words that look like given words, or that fit a context; one a line."""
    if words and not like:
        raise ConfigError(f"unexpected {words[0]!r}: name words to resemble after --like")
    from spellonce.wugs import excluded

    found = load_model(model, device).wugs(
        [*(like or []), *(words or [])], context=context, n=n, temperature=temperature, seed=seed,
        novel_only=novel_only, min_length=min_length, max_length=max_length, prefix=prefix,
        suffix=suffix, letters=letters, min_distance=min_distance, min_bits=min_bits,
        max_bits=math.inf if max_bits is None else max_bits,
        exclude=frozenset() if exclude is None else excluded(file_lines(exclude)),
    )  # fmt: skip
    if not found.wugs:
        raise SpellOnceError(
            f"no word was found that fits ({found.why()}): ask for less, or raise -T"
        )
    if as_json:
        print_json({"words": [{"word": w.word, "bits": w.bits} for w in found.wugs]})
    else:
        write(wug.word + "\n" for wug in found.wugs)
    if len(found.wugs) < n:
        typer.echo(
            f"spellonce: no more than {len(found.wugs)} were found ({found.why()})",
            err=True,
        )
