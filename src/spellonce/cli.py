"""The command line: parse → call → show. Whatever takes torch is imported when it is needed."""

from __future__ import annotations

import os
import time

_STARTED = time.monotonic()  # a budget is the time of the whole command
# Threads that wait for each other spin for a moment and then sleep: where other programs want the
# cores too, spinning on makes training several times slower. Read when torch is first imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import io  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import shlex  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from collections.abc import Iterable, Iterator  # noqa: E402
from contextlib import suppress  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Annotated, Any  # noqa: E402

import typer  # noqa: E402

from spellonce import __version__  # noqa: E402
from spellonce.errors import ConfigError, DataError, SpellOnceError  # noqa: E402

if TYPE_CHECKING:
    from spellonce.model import Model

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Two-level open-vocabulary language models: spell once, summon anywhere.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelOption = Annotated[
    str | None, typer.Option("-m", "--model", metavar="RUN", help="A folder that `train` wrote.")
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, …")]
MAX_SEED = 2**63 - 1
SeedOption = Annotated[
    int, typer.Option(min=0, max=MAX_SEED, help="The same seed gives the same words.")
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

    _write(tokenize_stream(_stdin_lines()))


@app.command()
def detokenize() -> None:
    """Undoes `tokenize`: stdin to stdout, line by line."""
    from spellonce.tokenizer import detokenize_stream

    _write(detokenize_stream(_stdin_lines()))


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
    if out is None:
        raise ConfigError("where to? give the run a folder: --out RUN")
    if files and dataset:
        raise ConfigError("give files or a --dataset, not both")
    if not (files or dataset or resume):
        raise ConfigError("nothing to train on: name text files or a --dataset")
    seconds = None if budget is None else parse_duration(budget)
    from spellonce import corpus, recipes
    from spellonce.preparation import Length
    from spellonce.show import TrainingDisplay, training_summary
    from spellonce.training import train as run_training

    length = Length(steps, seconds) if (steps, seconds) != (None, None) else None
    chosen = None
    if recipe is not None or settings:
        chosen = recipes.override(recipes.get(recipe or "small"), settings or [])
    data = None
    if dataset is not None:
        data = corpus.find_dataset(dataset)
    elif files:
        data = corpus.open_files(files)
    with TrainingDisplay() as display:
        result = run_training(
            data, chosen, out, seed=seed, length=length, resume=resume, force=force, device=device,
            threads=threads, tensorboard=tensorboard, reporter=display, started=_STARTED,
        )  # fmt: skip
    if as_json:
        _print_json(result)
    else:
        training_summary(result)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show all fields of one recipe.")] = None,
) -> None:
    """The named recipes, one line each; with a name, its fields."""
    from spellonce import recipes as all_recipes
    from spellonce.show import recipe_fields

    if name is not None:
        recipe_fields(all_recipes.get(name))
        return
    width = max(map(len, all_recipes.names()))
    for known in all_recipes.names():
        typer.echo(f"{known:{width}}  {all_recipes.get(known).about}")


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
        _print_json({"datasets": rows})
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
    from rich import progress as bars
    from rich.console import Console

    from spellonce import registry

    console = Console(stderr=True)
    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(name, total=None)
        got = registry.get(
            name, url=url, sha256=sha256,
            progress=lambda n_bytes, total: bar.update(task, completed=n_bytes, total=total),
        )  # fmt: skip
    if as_json:
        row = {key: getattr(got, key) for key in ("name", "was_there", "url", "sha256", "checked")}
        _print_json(row | {"folder": str(got.folder)})
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


@app.command("eval")
def evaluate(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run folder.")] = None,
    model: ModelOption = None,
    split: Annotated[str, typer.Option(help="valid or test, of the run's own data.")] = "valid",
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Any text instead.")] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Bits per character of a text, in all and by frequency of the word."""
    if split not in ("train", "valid", "test"):
        raise ConfigError(f"--split must be valid or test, not {split!r}")
    loaded = _load(run or model, device)
    if text is None:
        from spellonce.evaluations import evaluate_and_store

        result = evaluate_and_store(loaded, Path(run or model or ""), split)
    else:
        result = loaded.evaluate(_file_lines(text), "text")
    if as_json:
        _print_json(result)
        return
    from spellonce.show import evaluation_table

    evaluation_table(result)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="Run folders.")],
    split: Annotated[str, typer.Option(help="valid or test, of the runs' own data.")] = "test",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .svg, .png or .pdf.")
    ] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Runs side by side, and which differences are more than luck."""
    if split not in ("train", "valid", "test"):
        raise ConfigError(f"--split must be valid or test, not {split!r}")
    from spellonce import plots

    if plot is not None:
        plots.check(plot)
    from spellonce.comparison import compare as compare_runs
    from spellonce.show import comparison_table, status_line, system_names

    with status_line() as status:
        result = compare_runs(runs, split, device=device, status=status)
    if plot is not None:
        plots.draw_comparison(result, system_names(result), plot)
    if as_json:
        _print_json(result)
    else:
        comparison_table(result)


@app.command()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="table1, vocabulary, mwc, samples or types-tokens.")
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
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, …")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    as_json: JsonOption = False,
) -> None:
    """A table or figure of the paper, ours beside theirs; goes on where it stopped."""
    if out is None:
        raise ConfigError("where to? give the results a folder: --out DIR")
    seconds, seconds_each = (None if t is None else parse_duration(t) for t in (budget, each))
    from spellonce import plots, reproduction
    from spellonce.show import TrainingDisplay

    plots.check(Path("figure.svg"))
    wish = reproduction.Wish(
        datasets=tuple(dataset or ()), size=size, systems=_names(systems),
        sizes=tuple(_whole_number("--vocabulary", n) for n in _names(vocabulary)), seeds=seeds,
        budget=seconds, each=seconds_each, steps=steps,
        command=f"spellonce {' '.join(shlex.quote(argument) for argument in sys.argv[1:])}",
    )  # fmt: skip
    with TrainingDisplay() as display:
        written = reproduction.reproduce(
            experiment, wish, out, device=device, threads=threads, reporter=display,
            told=(lambda message: None) if as_json else typer.echo,
        )  # fmt: skip
    if as_json:
        _print_json({"experiment": experiment, "written": [str(path) for path in written]})
    else:
        typer.echo(f"written: {', '.join(str(path) for path in written)}")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{option}: {text!r} is not a whole number")
    return int(text)


@app.command()
def score(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE…]")] = None,
    model: ModelOption = None,
    form: Annotated[str, typer.Option("--format", help="tsv or jsonl.")] = "tsv",
    device: DeviceOption = "cpu",
) -> None:
    """Bits for every word of files or of stdin."""
    if form not in ("tsv", "jsonl"):
        raise ConfigError(f"--format must be tsv or jsonl, not {form!r}")
    loaded = _load(model, device)
    sources = [_file_lines(path) for path in files] if files else [_stdin_lines()]
    for number, lines in enumerate(sources):
        rows = list(loaded.score_lines(lines).rows())
        extra = {"file": str(files[number])} if files and len(files) > 1 else {}
        _write(_format_rows(rows, form, extra, header=number == 0))


def _format_rows(
    rows: list[dict[str, Any]], form: str, extra: dict[str, str], *, header: bool
) -> Iterator[str]:
    columns = ["line", "index", "token", "start", "end", "bits", "bits_lexeme", "bits_spelling",
               "novel", *extra]  # fmt: skip
    if form == "tsv" and header:
        yield "\t".join(columns) + "\n"
    for row in rows:
        row = row | extra
        if form == "jsonl":
            yield json.dumps(row, ensure_ascii=False) + "\n"
            continue
        fields = [f"{v:.9f}" if isinstance(v, float) else v for v in map(row.get, columns)]
        yield "\t".join(str(int(f) if isinstance(f, bool) else f) for f in fields) + "\n"


@app.command()
def sample(
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", help="How many tokens.")] = 200,
    temperature: Annotated[float, typer.Option("-T", "--temperature")] = 0.75,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    seed: SeedOption = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Do not mark invented words.")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """Write text; invented words stand in colour, or between ‹ › when piped."""
    from spellonce.show import sampled_text

    drawn = _load(model, device).sample(n, temperature=temperature, prompt=prompt, seed=seed)
    sampled_text(drawn, plain)


@app.command()
def spell(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD…]", hidden=True)] = None,
    like: Annotated[list[str] | None, typer.Option(metavar="WORD…", help="Resemble these.")] = None,
    context: Annotated[str | None, typer.Option(help="Fit after this text.")] = None,
    model: ModelOption = None,
    n: Annotated[int, typer.Option("-n", help="How many words.")] = 10,
    temperature: Annotated[float, typer.Option("-T", "--temperature")] = 1.0,
    novel_only: Annotated[
        bool, typer.Option("--novel-only", help="Only words that are not in the lexicon.")
    ] = False,
    min_length: Annotated[int, typer.Option(help="In characters.")] = 1,
    max_length: Annotated[int, typer.Option(help="In characters.")] = 30,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
) -> None:
    """Words that look like given words, or that fit a context; one a line."""
    if words and not like:
        raise ConfigError(f"unexpected {words[0]!r}: name words to resemble after --like")
    found = _load(model, device).spell(
        [*(like or []), *(words or [])], context=context, n=n, temperature=temperature,
        novel_only=novel_only, min_length=min_length, max_length=max_length, seed=seed,
    )  # fmt: skip
    if not found:
        raise SpellOnceError(
            "no word was found that fits: allow other lengths, or raise the temperature with -T"
        )
    _write(word + "\n" for word in found)
    if len(found) < n:
        typer.echo(f"spellonce: only {len(found)} different words were found", err=True)


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `30m`, `1h30m`, `2h`, or a plain number.

    >>> parse_duration("1h30m"), parse_duration("90")
    (5400.0, 90.0)
    """
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text.strip())
    try:
        if match and any(match.groups()):
            hours, minutes, seconds = (float(part or 0) for part in match.groups())
            return 3600 * hours + 60 * minutes + seconds
    except ValueError:
        pass
    raise ConfigError(f"{text!r} is not a length of time: write 90s, 30m or 2h")


def _load(run: str | None, device: str) -> Model:
    if run is None:
        raise ConfigError("which model? name a run folder that `train` wrote with -m RUN")
    from spellonce.model import load

    return load(run, device=device)


def _file_lines(path: Path) -> Iterator[str]:
    from spellonce.corpus import open_text

    return open_text(path).lines()


def _stdin_lines() -> Iterator[str]:
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


def _write(parts: Iterable[str]) -> None:
    out = sys.stdout.buffer
    for part in parts:
        out.write(part.encode("utf-8", "surrogateescape"))
        out.flush()  # whoever reads a pipe gets each line when it is there


def _print_json(value: Any) -> None:
    _write([json.dumps(value) + "\n"])


def main() -> None:
    """Runs the command line; every failure is one line on stderr and an exit code."""
    if sys.stdout is None:
        sys.exit(_fail("there is nowhere to write: standard output is closed", 1))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        code = app(prog_name="spellonce", standalone_mode=False) or 0
        sys.stdout.flush()
    except SpellOnceError as error:
        code = _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("stopped", 1)
    except BrokenPipeError:
        _drop_output()
        code = 1  # whoever read us has gone; nothing is left to say
    except OSError as error:
        _drop_output()
        what = f"cannot use {error.filename}" if error.filename else "cannot write"
        code = _fail(f"{what}: {error.strerror or error}", 1)
    except Exception as error:
        if hasattr(error, "format_message"):
            code = _wrong_usage(error)
        elif isinstance(error, MemoryError) or "allocate memory" in str(error):
            code = _fail("out of memory: try a smaller recipe or a smaller vocab_size", 1)
        elif os.environ.get("SPELLONCE_DEBUG"):
            raise
        else:
            what = f"internal error, {type(error).__name__}: {error}"
            code = _fail(f"{what} (please report it; SPELLONCE_DEBUG=1 shows where it was)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(number: int, frame: object) -> None:
    """SIGTERM is to a command what Ctrl-C is; training saves first, where it has begun."""
    raise KeyboardInterrupt


def _wrong_usage(error: Any) -> int:
    message: str = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return 2
    hint = getattr(context, "command_path", "spellonce")
    return _fail(f"{message} (see {hint} --help)", 2)


def _drop_output() -> None:
    """What could not be written is not tried again when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    print(f"spellonce: {' '.join(message.split())}", file=sys.stderr)
    return code
