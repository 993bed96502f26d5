"""bpc against the minutes of training. Not in the paper: it is what users without a GPU ask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from spellonce import plots
from spellonce.paper.markdown import NOT_YET, escape, number, table
from spellonce.paper.outcomes import Outcome, Report, Row
from spellonce.paper.report_figures import names_beside, note
from spellonce.paper.report_text import about, join, run_row, signatures
from spellonce.plots import BLUE, FAINT, GREEN, ORANGE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = {"cpu": BLUE, "pure-bpe": VERMILLION, "pure-char": ORANGE, "hclm-cache": GREEN}


def minutes(outcomes: Sequence[Outcome], command: str) -> Report:
    """What each system makes of each budget."""
    rows: list[Row] = [
        {"minutes": None if o.budget is None else o.budget / 60, **run_row(o)} for o in outcomes
    ]
    datasets = list(dict.fromkeys(o.dataset for o in outcomes))
    are_many = len({row["minutes"] for row in rows}) > 1
    head = ["text", "system", "minutes", "dev", "test", "p_LM (test)", "p_spell (test)", "steps",
            "epochs", "tokens/s", "seconds in all", "lexemes"]  # fmt: skip
    figures_of = (("minutes", 0), ("dev_bpc", 3), ("test_bpc", 3), ("test_bpc_lm", 3),
                  ("test_bpc_spell", 3), ("steps", 0), ("epochs", 2), ("tokens_per_second", 0),
                  ("seconds_in_all", 0), ("lexemes", 0))  # fmt: skip
    rows.sort(
        key=lambda row: (
            datasets.index(row["dataset"]), row["minutes"] or 0, row["test_bpc"] or 0
        )
    )  # fmt: skip
    cells = [
        [
            escape(row["dataset"]),
            escape(row["system"]),
            *(number(row[name], digits) for name, digits in figures_of),
        ]
        for row in rows
    ]
    parts = [
        "# bpc against minutes of training",
        *about(outcomes, command, None),
        "A budget is the time of the whole command: reading the text, training, and scoring the "
        "validation split.",
        "![bpc on test against minutes of training](minutes.svg)" if are_many else "",
        table(head, cells, words=2) if rows else f"{NOT_YET.capitalize()}.",
        *signatures(outcomes),
    ]
    figures = {"minutes": partial(_figure, rows)} if are_many else {}
    return Report("minutes", join(parts) + "\n", {"minutes": rows}, figures)


def _figure(rows: Sequence[Row]) -> Figure:
    """A curve for each system, time on a logarithmic scale; a panel for each text."""
    done = [row for row in rows if None not in (row["minutes"], row["test_bpc"])]
    datasets = list(dict.fromkeys(row["dataset"] for row in done))
    fig = plots.figure(7.2 * max(len(datasets), 1), 4.2)
    panels = fig.subplots(1, max(len(datasets), 1), squeeze=False)[0]
    for dataset, panel in zip(datasets, panels, strict=False):
        if len(datasets) > 1:
            panel.set_title(dataset, fontweight="bold")
        _curves(panel, [row for row in done if row["dataset"] == dataset])
    note(fig, "bits per character on test, less is better; last figure of each at its name")
    return fig


def _curves(panel: Axes, rows: Sequence[Row]) -> None:
    names: list[tuple[float, float, str, str]] = []
    others = iter(["#CC79A7", "#56B4E9", "#6B6B6B"] * 9)
    for system in dict.fromkeys(row["system"] for row in rows):
        curve = sorted((r["minutes"], r["test_bpc"]) for r in rows if r["system"] == system)
        color = _COLORS.get(system) or next(others)
        panel.plot(
            *zip(*curve, strict=True), "-", color=color, marker="o", markersize=4.5,
            linewidth=2.2 if system == "cpu" else 1.3,
        )  # fmt: skip
        names.append((*curve[-1], f"{system}  {number(curve[-1][1])}", color))
    times = sorted({row["minutes"] for row in rows})
    panel.set_xscale("log")
    names_beside(panel, names)
    if times:
        panel.set_xlim(0.9 * times[0], 1.9 * times[-1])
    panel.set_xticks(times, [number(time, 0) for time in times])
    panel.set_xticks([], minor=True)
    panel.tick_params(length=0)
    panel.grid(axis="y", color=FAINT, linewidth=0.6)
    panel.set_xlabel("minutes of training, reading and validation included")
