"""Pictures of what was trained. Each function draws one figure, inside `plots.style()`.

Ours is filled and coloured, what the paper published is open or dashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spellonce import plots
from spellonce.paper.markdown import number
from spellonce.plots import BLUE, FAINT, GREEN, INK, ORANGE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
GREY, PURPLE, SKY = "#6B6B6B", "#CC79A7", "#56B4E9"
_COLORS = {
    "full": BLUE, "no-reg": ORANGE, "sep-reg": PURPLE, "only-reg": GREEN, "pure-bpe": VERMILLION,
}  # fmt: skip
_MARKERS = {"full": "o", "no-reg": "s", "sep-reg": "D", "only-reg": "^", "pure-bpe": "v"}
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""A name that stands on a line interrupts it."""


def note(fig: Figure, text: str) -> None:
    """The line below a figure."""
    fig.supxlabel(text, x=0.01, ha="left", fontsize=8, color="#595959")


def _key(fig: Figure) -> None:
    """What the two kinds of dots are."""
    from matplotlib.lines import Line2D

    dots = [
        Line2D([], [], marker="o", linestyle="", color=BLUE, markersize=6),
        Line2D([], [], marker="o", linestyle="", color=GREY, markerfacecolor="white", markersize=5),
    ]
    fig.legend(
        dots, ["here", "in the paper"], loc="outside upper left", ncols=2, frameon=False,
        handletextpad=0.1, columnspacing=1.2,
    )  # fmt: skip


def _bare(panel: Axes) -> None:
    panel.set_xticks([])
    panel.tick_params(length=0)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)


def _pairs_of_dots(
    panel: Axes,
    pairs: Sequence[tuple[float | None, float | None]],
    places: Sequence[float],
    scale: Sequence[float],
    digits: int = 3,
) -> None:
    """(here, in the paper) at each place: two dots one above the other, each with its figure.

    `scale` holds all values that are to have room; `digits` is what the paper gives.
    """
    low, high = (min(scale), max(scale)) if scale else (0.0, 1.0)
    spread = max(high - low, 0.02 * high)
    panel.set_xlim(low - 0.08 * spread, low + 1.5 * spread)
    for place, (ours, paper) in zip(places, pairs, strict=True):
        panel.axhline(place, color=FAINT, linewidth=0.6, zorder=0)
        for value, text, up, color, face in (
            (ours, number(ours), -0.19, BLUE, BLUE),
            (paper, number(paper, digits), 0.19, GREY, "white"),
        ):
            if value is None:
                continue
            panel.plot(
                value, place + up, "o", markersize=5.5, color=color, markerfacecolor=face,
                clip_on=False,
            )  # fmt: skip
            panel.annotate(
                text, (value, place + up), xytext=(5, 0), textcoords="offset points", fontsize=7.5,
                va="center_baseline", color=INK if face == BLUE else GREY,
            )  # fmt: skip
    _bare(panel)


def _known(pairs: Sequence[tuple[float | None, float | None]]) -> list[float]:
    return [value for pair in pairs for value in pair if value is not None]


def _not_yet(panel: Axes, place: float) -> None:
    """What stands where a dot of ours would."""
    panel.text(
        panel.get_xlim()[0], place - 0.19, " not yet", fontsize=7.5, va="center_baseline",
        color=BLUE, fontstyle="italic",
    )  # fmt: skip


# --- systems ----------------------------------------------------------------------------------


def table1_figure(rows: Sequence[Row]) -> Figure:
    """Ours and the published bpc of each system: dev, test, and dev by training count."""
    columns = [
        ("dev", "dev"), ("test", "test"), ("dev, never seen", "dev_0"),
        ("dev, 1–99 times", "dev_1_99"), ("dev, 100+ times", "dev_100"),
    ]  # fmt: skip
    fig = plots.figure(9.6, 1.2 + 0.43 * len(rows))
    panels = fig.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    places = range(len(rows))
    for panel, (title, key) in zip(panels, columns, strict=True):
        pairs = [(row[key], row[f"published_{key}"]) for row in rows]
        digits = 3 if key in ("dev", "test") else 2
        _pairs_of_dots(panel, pairs, places, _known(pairs), digits)
        for place, row in enumerate(rows):
            if row[key] is None and key in ("dev", "test"):
                _not_yet(panel, place)
        panel.set_title(title, fontweight="bold")
    panels[0].set_yticks(list(places), [str(row["label"]) for row in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    _key(fig)
    note(
        fig,
        "bits per character, less is better; each column has its scale; "
        "in the paper: the complete WikiText-2, models of its size",
    )
    return fig


# --- vocabulary -------------------------------------------------------------------------------


def vocabulary_figure(ours: Sequence[Row], published: Sequence[Row]) -> Figure:
    """bpc against the size of the vocabulary: here and in the paper; below, what `full` spends."""
    fig = plots.figure(9.6, 7)
    panels = fig.subplots(2, 2, height_ratios=[1.25, 1], squeeze=False)
    sides = ((ours, "here", "-"), (published, "in the paper (WikiText-2)", "--"))
    for column, (rows, where, dash) in enumerate(sides):
        above, below = panels[0][column], panels[1][column]
        _curves(above, rows, dash)
        above.set_title(f"All systems, {where}", fontweight="bold")
        _parts(below, [row for row in rows if row["label"] == "full"], dash)
        below.set_title(f"full = p_LM + p_spell, {where}", fontweight="bold")
        for panel in (above, below):
            panel.xaxis.set_major_formatter(lambda x, _: number(x, 0))
            panel.grid(axis="y", color=FAINT, linewidth=0.6)
            panel.tick_params(length=0)
            sizes = [row["size"] for row in rows if row["bpc"] is not None]
            top = max(sizes, default=1)
            panel.set_xlim(0, 1.5 * top)
            panel.set_xticks([tick for tick in panel.get_xticks() if tick <= 1.03 * top])
    note(
        fig,
        "bits per character on dev, less is better, against lexemes (pure-bpe: units); "
        "each panel has its scale; best size of each at its name",
    )
    return fig


def _finished(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """(label, system, rows by size) of the curves."""
    for label in dict.fromkeys(row["label"] for row in rows):
        curve = [
            row for row in rows if row["label"] == label and None not in (row["bpc"], row["size"])
        ]
        if curve:
            yield label, curve[0]["system"], sorted(curve, key=lambda row: int(row["size"]))


def _curves(panel: Axes, rows: Sequence[Row], dash: str) -> None:
    others = iter([SKY, INK, GREY] * 9)
    names: list[tuple[float, float, str, str]] = []
    taken: set[str] = set()
    for label, system, curve in _finished(rows):
        color = _COLORS.get(system, "")
        if not color or color in taken:  # two curves of one system are not to look the same
            color = next(others)
        taken.add(color)
        sizes, bpc = [row["size"] for row in curve], [row["bpc"] for row in curve]
        panel.plot(
            sizes, bpc, dash, color=color, marker=_MARKERS.get(system, "o"), markersize=4,
            markerfacecolor="white" if dash == "--" else color,
            linewidth=2.2 if system == "full" else 1.2,
            zorder=3 if system == "full" else 2,
        )  # fmt: skip
        best = min(curve, key=lambda row: float(row["bpc"]))
        text = f"{label}  {number(best['bpc'])} at {number(best['size'], 0)}"
        names.append((sizes[-1], bpc[-1], text, color))
    names_beside(panel, names)


def _parts(panel: Axes, rows: Sequence[Row], dash: str) -> None:
    found = [row for row in rows if None not in (row["bpc"], row["lm"], row["size"])]
    curve = sorted(found, key=lambda row: int(row["size"]))
    if not curve:
        panel.text(0.5, 0.5, "not yet", transform=panel.transAxes, ha="center", color=GREY)
        return
    sizes = [row["size"] for row in curve]
    total, lm = [row["bpc"] for row in curve], [row["lm"] for row in curve]
    panel.fill_between(sizes, lm, total, color=VERMILLION, alpha=0.14, linewidth=0)
    for values, color in ((total, BLUE), (lm, GREEN)):
        panel.plot(
            sizes, values, dash, color=color, marker="o", markersize=4, linewidth=1.8,
            markerfacecolor="white" if dash == "--" else color,
        )  # fmt: skip
    names = [
        (sizes[-1], total[-1], "total", BLUE),
        (sizes[-1], (total[-1] + lm[-1]) / 2, "p_spell", "#A04000"),
        (sizes[-1], lm[-1], "p_LM", GREEN),
    ]
    names_beside(panel, names)


def names_beside(panel: Axes, names: Sequence[tuple[float, float, str, str]]) -> None:
    """Names of curves right of their ends (x, y), moved apart where they would touch."""
    if not names:
        return
    panel.margins(y=0.08)
    low, high = panel.get_ylim()
    panel.set_ylim(low, high)  # names are not to move the scale
    gap = 0.06 * (high - low)
    ordered = sorted(names, key=lambda name: name[1])
    for (end, y, text, color), at in zip(
        ordered, spread_apart([name[1] for name in ordered], gap, low + gap / 2), strict=True
    ):
        panel.annotate(
            text, (end, y), xytext=(1.06 * end, at), textcoords="data", fontsize=8,
            color=_darker(color), va="center_baseline", annotation_clip=False, bbox=BEHIND,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.5, "alpha": 0.6,
                        "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def _darker(color: str) -> str:
    """A colour in which small letters can be read on white.

    >>> _darker("#E69F00")
    '#9d6c00'
    """
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.685):02x}" for i in (1, 3, 5))


def spread_apart(values: Sequence[float], gap: float, low: float) -> list[float]:
    """Rising values moved as little as need be, so that each is `gap` above the one before.

    >>> spread_apart([1.0, 1.0, 5.0], 1.0, 0.0)
    [0.5, 1.5, 5.0]
    """
    groups: list[tuple[float, int]] = []  # (middle, how many) of neighbours that touch
    for value in values:
        middle, n = value, 1
        while groups and middle - (n - 1) / 2 * gap < groups[-1][0] + (groups[-1][1] + 1) / 2 * gap:
            before, m = groups.pop()
            middle, n = (before * m + middle * n) / (m + n), m + n
        groups.append((max(middle, low + (n - 1) / 2 * gap), n))
    return [middle + (i - (n - 1) / 2) * gap for middle, n in groups for i in range(n)]


# --- languages --------------------------------------------------------------------------------


def languages_figure(rows: Sequence[Row], split: str = "test") -> Figure:
    """bpc of each data set and system, a panel for each tokenization."""
    kinds = list(dict.fromkeys(row["tokenization"] for row in rows))
    sets = list(dict.fromkeys(row["dataset"] for row in rows))
    labels: dict[str, list[str]] = {name: [] for name in sets}
    for row in rows:
        if row["label"] not in labels[row["dataset"]]:
            labels[row["dataset"]].append(row["label"])
    places: dict[tuple[str, str], float] = {}
    heads: list[tuple[float, str]] = []
    y = 0.0
    for name in sets:
        heads.append((y, name))
        for i, label in enumerate(labels[name]):
            places[name, label] = y + 1 + i
        y += len(labels[name]) + 1.3
    fig = plots.figure(8, 1.2 + 0.34 * y)
    panels = fig.subplots(1, max(len(kinds), 1), sharey=True, squeeze=False)[0]
    scale = _known([(row[split], row[f"published_{split}"]) for row in rows])
    for panel, kind in zip(panels, kinds, strict=False):
        mine = [row for row in rows if row["tokenization"] == kind]
        pairs = [(row[split], row[f"published_{split}"]) for row in mine]
        at = [places[row["dataset"], row["label"]] for row in mine]
        _pairs_of_dots(panel, pairs, at, scale)
        for place, row in zip(at, mine, strict=True):
            if row[split] is None:
                _not_yet(panel, place)
        panel.set_title(f"{split}, tokenization: {kind}", fontweight="bold")
    ticks = [*heads, *((place, label) for (_, label), place in places.items())]
    panels[0].set_yticks([place for place, _ in ticks], [text for _, text in ticks])
    for text, _ in zip(panels[0].get_yticklabels(), heads, strict=False):
        text.set_fontweight("bold")
    panels[0].set_ylim(max(y - 0.7, 0.5), -0.7)
    _key(fig)
    note(
        fig,
        "bits per character of the original text, less is better\n"
        "in the paper: the Multilingual Wikipedia Corpus in the same language",
    )
    return fig
