"""What `run.py` writes: a table of bars, a picture, and every figure that was measured."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spellonce import plots
from spellonce.paper.markdown import number, table
from spellonce.plots import BLUE, FAINT, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Found = Mapping[str, Mapping[str, Any]]
_UNITS = {
    "tokens_per_second": "tokens/s", "peak_rss_mb": "MB at the peak",
    "microseconds_per_token": "µs a token", "ratio": "of a step of `full-small`",
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """What is written where."""

    name: str
    begin: str
    picture: Callable[[Found], Figure] | None = None


def write(page: Page, found: Found, scripts: Mapping[str, Path], out: Path) -> None:
    """The page, and its picture."""
    parts = [
        f"# {page.name.capitalize()}",
        page.begin,
        "" if page.picture is None else f"![{_PICTURED}]({page.name}.svg)",
        "## Bars",
        _bars(found),
    ]
    for name, result in found.items():
        docstring = ast.get_docstring(ast.parse(scripts[name].read_text(encoding="utf-8"))) or ""
        parts += [f"## {name.capitalize()}", docstring.replace("\n    ", "\n\n    ", 1)]
        parts += [_details(result), result.get("note", ""), _origin(result)]
    (out / f"{page.name}.md").write_text(
        "\n\n".join(part for part in parts if part) + "\n", encoding="utf-8"
    )
    for suffix in ("svg", "png") if page.picture else ():
        with plots.style():
            plots.save(page.picture(found), out / f"{page.name}.{suffix}")


def _bars(found: Found) -> str:
    rows = [
        [
            name, bar["what"], f"{number(bar['value'], 2)} {bar['unit']}".strip(),
            f"{bar['relation']} {number(bar['limit'], 2)}", "yes" if bar["met"] else "**no**",
        ]
        for name, result in found.items()
        for bar in result.get("bars", ())
    ]  # fmt: skip
    return table(["benchmark", "", "measured", "bar", "met"], rows, words=2)


def _details(result: Mapping[str, Any]) -> str:
    """Every figure that has a name, in one table or two."""
    columns = {key: result[key] for key in _UNITS if isinstance(result.get(key), dict)}
    tables = []
    if columns:
        names = list(dict.fromkeys(name for column in columns.values() for name in column))
        rows = [
            [name, *(number(column.get(name), 2 if key == "ratio" else 0)
                     for key, column in columns.items())]
            for name in names
        ]  # fmt: skip
        tables.append(table(["", *(_UNITS[key] for key in columns)], rows))
    records = result.get("runs") or result.get("texts") or {}
    if not isinstance(records, dict):
        records = {str(i): record for i, record in enumerate(records, 1)}
    if records:
        heads = [head.replace("_", " ") for head in next(iter(records.values()))]
        rows = [[name, *map(_cell, record.values())] for name, record in records.items()]
        tables.append(table(["", *heads], rows))
    return "\n\n".join(tables)


def _cell(value: float) -> str:
    return number(value, 0 if float(value).is_integer() else 1)


def _origin(result: Mapping[str, Any]) -> str:
    m = result["machine"]
    return (
        f"{result['date']}, commit `{result['commit']}`: {m['cpu']}, {m['cores']} cores, "
        f"{m['instructions']}, Python {m['python']}, torch {m['torch']}."
    )


def _figure(found: Found) -> Figure:
    fig = plots.figure(9.6, 6.4)
    panels = fig.subplots(2, 2).flatten()
    speed = {name: found.get(name, {}).get("tokens_per_second", {}) for name in found}
    _columns(panels[0], speed.get("training", {}), "Training, tokens/s")
    _vocabulary(panels[1], found.get("vocabulary", {}).get("microseconds_per_token", {}))
    _columns(panels[2], speed.get("scoring", {}), "Scoring, tokens/s")
    texts = found.get("tokenizer", {}).get("texts", {})
    reading = {
        f"tokenize {name.partition('/')[0]}": t["tokenize_mb_per_s"] for name, t in texts.items()
    }
    for run in found.get("encoding", {}).get("runs", ()):
        reading[f"encode {run['megabytes']:,} MB, {run['processes']} cores"] = run["mb_per_s"]
    _columns(panels[3], reading, "Reading, MB/s")
    return fig


def _columns(panel: Axes, values: Mapping[str, float], title: str) -> None:
    panel.set_title(title, fontweight="bold")
    panel.set_visible(bool(values))  # what was not measured has no picture
    names = list(values)
    panel.barh(names, [values[name] for name in names], color=BLUE, height=0.6)
    for place, name in enumerate(names):
        panel.annotate(
            f" {number(values[name], 0)}", (values[name], place), va="center", fontsize=8
        )
    panel.invert_yaxis()
    panel.margins(x=0.18)
    panel.set_xticks([])
    panel.tick_params(length=0)


def _vocabulary(panel: Axes, values: Mapping[str, float]) -> None:
    panel.set_title("A training token, µs, by lexemes", fontweight="bold")
    panel.set_visible(bool(values))
    for kind, color in (("split", BLUE), ("exact", ORANGE)):
        points = sorted(
            (int(name.split()[1]), value) for name, value in values.items() if name.startswith(kind)
        )
        if points:
            panel.plot(*zip(*points, strict=True), "o-", color=color, label=f"{kind} softmax")
    panel.set_xscale("log")
    sizes = sorted({int(name.split()[1]) for name in values})
    panel.set_xticks(sizes, [number(size, 0) for size in sizes])
    panel.set_xticks([], minor=True)
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", color=FAINT, linewidth=0.6)
    panel.tick_params(length=0)
    if values:
        panel.legend(frameon=False)


_PICTURED = "Speed of training, scoring and reading"
PERFORMANCE = Page(
    "performance",
    "Measured by `make bench`, which writes this page, its picture and `performance.json`. "
    "What is compared ran in turns in one process, and figures are medians: ratios mean more "
    "than seconds, which differ from machine to machine and from hour to hour.",
    _figure,
)
RELIABILITY = Page(
    "reliability",
    "What a training, a file or an input may meet, and what becomes of it, tried for as long as it "
    "takes. `make soak` makes all of these trials and writes this page and `reliability.json`; "
    "`make test` has a short version of most.",
)
