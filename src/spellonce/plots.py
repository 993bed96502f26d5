"""Pictures of figures: SVG, PNG or PDF, the same bytes for the same figures.

    with style():
        fig = figure(7, 3)
        …
        save(fig, path)

Needs the extra `plot` (matplotlib), which is imported when it is first used. No pyplot: nothing
global is left behind.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spellonce.errors import ConfigError, DataError
from spellonce.significance import LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
BLUE, VERMILLION, ORANGE, GREEN = "#0072B2", "#D55E00", "#E69F00", "#009E73"
"""Of the palette of Okabe and Ito, which colour-blind readers can tell apart."""
INK, FAINT = "#262626", "#D9D9D9"
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
"""A figure that stands on a line interrupts it."""
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so it is everywhere the same
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in the name of a run is one
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.hashsalt": "spellonce",
    "pdf.fonttype": 42,
}


def check(path: Path) -> None:
    """Refuses what cannot be drawn to, before any work is done for it."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if path.is_dir() or not path.parent.is_dir():
        raise DataError(f"cannot write {path}: name a file in a folder that exists")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("matplotlib is not installed: pip install 'spellonce[plot]'") from None


@contextmanager
def style() -> Iterator[None]:
    """The look of all pictures, for what is drawn and saved inside."""
    # The first import on a machine lists its fonts, and says so.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user has set elsewhere
        matplotlib.rcParams.update(_STYLE)
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height))
    FigureCanvasAgg(fig)
    return fig


def save(fig: Figure, path: Path) -> None:
    """Writes a figure; the end of the name says as what. It is there whole or not at all."""
    kind = path.suffix.lower().removeprefix(".")
    when = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")  # there may be two of us
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            fig.savefig(partial, format=kind, metadata={when: None} if when else None)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


# --- what `compare` found ---------------------------------------------------------------------


def draw_comparison(result: dict[str, Any], names: Sequence[str], path: Path) -> None:
    """Dots for bpc, in all and by training count, the best system on top.

    `names` are what the systems of `result` are to be called, in its order.
    """
    systems = result["systems"]
    order = sorted(range(len(systems)), key=lambda i: systems[i]["bpc"])
    rows = [systems[i] for i in order]
    columns = [("all words", BLUE, [row["bpc"] for row in rows])]
    kinds = zip(rows[0]["bins"], (VERMILLION, ORANGE, GREEN), strict=True)
    for k, (limits, color) in enumerate(kinds):
        title = f"{limits['lo']}+ times"
        if limits["hi"] is not None:
            title = (
                "never seen" if limits["hi"] == 1 else f"{limits['lo']}–{limits['hi'] - 1} times"
            )
        columns.append((title, color, [row["bins"][k]["bpc"] for row in rows]))
    open_dots = _like_the_best(result, rows[0]["run"])
    with style():
        fig = figure(8, 1.15 + 0.27 * len(rows))
        panels = fig.subplots(1, len(columns), sharey=True, width_ratios=[1.5, 1, 1, 1])
        for panel, (title, color, values) in zip(panels, columns, strict=True):
            is_first = panel is panels[0]
            hollow = [is_first and row["run"] in open_dots for row in rows]
            _dots(panel, values, color, hollow, room=0.45 if is_first else 0.75)
            panel.set_title(title, fontweight="bold")
        panels[0].set_yticks(range(len(rows)), [_short(names[i]) for i in order])
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        text = f"bits per character on {result['split']}, less is better; each column has its scale"
        if open_dots:
            text += f"\n○ not significantly worse than the best (p ≥ {LEVEL} after Holm)"
        fig.supxlabel(text, x=0.01, ha="left", fontsize=8, color="#595959")
        save(fig, path)


def _dots(
    panel: Axes, values: Sequence[float | None], color: str, hollow: list[bool], room: float
) -> None:
    """One dot a row, each with its figure beside it, for which there is `room` on the right."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    spread = max(high - low, 0.02 * high)  # what is nearly the same should look so
    panel.set_xlim(low - 0.08 * spread, low + (1 + room) * spread)
    for y, value in enumerate(values):
        panel.axhline(y, color=FAINT, linewidth=0.6, zorder=0)
        if value is None:
            panel.text(low, y, "–", ha="center", va="center_baseline", bbox=_BEHIND)
            continue
        panel.plot(
            value, y, "o", markersize=6, color=color, markeredgewidth=1.4, clip_on=False,
            markerfacecolor="white" if hollow[y] else color,
        )  # fmt: skip
        panel.annotate(
            f"{value:.3f}", (value, y), xytext=(6, 0), textcoords="offset points", fontsize=8,
            va="center_baseline", bbox=_BEHIND,
        )  # fmt: skip
    panel.set_xticks([])
    panel.tick_params(length=0)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)


def _like_the_best(result: dict[str, Any], best: str) -> set[str]:
    """The systems whose difference from the best one may be luck."""
    return {
        pair["b"] if pair["a"] == best else pair["a"]
        for pair in result["pairs"]
        if best in (pair["a"], pair["b"]) and pair["p_holm"] >= LEVEL
    }


def _short(name: str, longest: int = 28) -> str:
    """A name that leaves room for the picture.

    >>> _short("a" * 20 + "b" * 20)
    'aaaaaaaaaaaaa…bbbbbbbbbbbbbb'
    """
    if len(name) <= longest:
        return name
    half = longest // 2
    return f"{name[: half - 1]}…{name[-half:]}"
