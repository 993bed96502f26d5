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
    from matplotlib.figure import Figure

_COLORS = {"cpu": BLUE, "pure-bpe": VERMILLION, "pure-char": ORANGE, "hclm-cache": GREEN}


def minutes(outcomes: Sequence[Outcome], command: str) -> Report:
    """What each system makes of each budget."""
    rows: list[Row] = [
        {"minutes": None if o.budget is None else o.budget / 60, **run_row(o)} for o in outcomes
    ]
    head = ["system", "minutes", "dev", "test", "p_LM (test)", "p_spell (test)", "steps", "epochs",
            "tokens/s", "seconds in all", "lexemes"]  # fmt: skip
    cells = [
        [
            escape(row["system"]), number(row["minutes"], 0), number(row["dev_bpc"]),
            number(row["test_bpc"]), number(row["test_bpc_lm"]), number(row["test_bpc_spell"]),
            number(row["steps"], 0), number(row["epochs"], 2), number(row["tokens_per_second"], 0),
            number(row["seconds_in_all"], 0), number(row["lexemes"], 0),
        ]
        for row in sorted(rows, key=lambda row: (row["minutes"] or 0, row["test_bpc"] or 0))
    ]  # fmt: skip
    parts = [
        "# bpc against minutes of training",
        *about(outcomes, command, None),
        "A budget is the time of the whole command: reading the text, training, and scoring the "
        "validation split.",
        "![bpc on test against minutes of training](minutes.svg)" if rows else "",
        table(head, cells) if rows else f"{NOT_YET.capitalize()}.",
        *signatures(outcomes),
    ]
    figures = {"minutes": partial(_figure, rows)} if rows else {}
    return Report("minutes", join(parts) + "\n", {"minutes": rows}, figures)


def _figure(rows: Sequence[Row]) -> Figure:
    """A curve for each system, time on a logarithmic scale."""
    fig = plots.figure(7.2, 4.2)
    panel = fig.subplots()
    done = [row for row in rows if None not in (row["minutes"], row["test_bpc"])]
    names: list[tuple[float, float, str, str]] = []
    others = iter(["#CC79A7", "#56B4E9", "#6B6B6B"] * 9)
    for system in dict.fromkeys(row["system"] for row in done):
        curve = sorted((r["minutes"], r["test_bpc"]) for r in done if r["system"] == system)
        color = _COLORS.get(system) or next(others)
        panel.plot(
            *zip(*curve, strict=True), "-", color=color, marker="o", markersize=4.5,
            linewidth=2.2 if system == "cpu" else 1.3,
        )  # fmt: skip
        names.append((*curve[-1], f"{system}  {number(curve[-1][1])}", color))
    times = sorted({row["minutes"] for row in done})
    panel.set_xscale("log")
    names_beside(panel, names)
    if times:
        panel.set_xlim(0.9 * times[0], 1.9 * times[-1])
    panel.set_xticks(times, [number(time, 0) for time in times])
    panel.set_xticks([], minor=True)
    panel.tick_params(length=0)
    panel.grid(axis="y", color=FAINT, linewidth=0.6)
    panel.set_xlabel("minutes of training, reading and validation included")
    note(fig, "bits per character on test, less is better; last figure of each at its name")
    return fig
