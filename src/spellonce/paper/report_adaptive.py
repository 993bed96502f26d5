"""What learning while reading is worth: not in the paper, which names it as a weakness.

`Outcome.seen` has `modes`: name of a mode → split → the JSON of `eval`; `tried`: what `tune` tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from spellonce import plots
from spellonce.paper.markdown import NOT_YET, escape, number, plural, table
from spellonce.paper.outcomes import Outcome, Report, Row
from spellonce.paper.report_figures import names_beside, note
from spellonce.paper.report_text import NAMES, about, join
from spellonce.plots import BLUE, FAINT, GREEN, VERMILLION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = {"static": VERMILLION, "cache": BLUE, "cache+dynamic": GREEN}


def adaptive(outcomes: Sequence[Outcome], command: str, budget: float | None) -> Report:
    """Each run in each mode."""
    rows = [row for outcome in outcomes for row in _rows(outcome, outcome.seen["modes"])]
    head = ["run", "mode", "dev", "test", "gain (test)", "never seen (test)", "its gain",
            "tokens/s"]  # fmt: skip
    cells = [
        [
            escape(row["run"]), escape(row["mode"]), number(row["dev"]), number(row["test"]),
            number(row["test_gain"]), number(row["test_unseen"]),
            number(row["unseen_gain"], 0) + " %" if row["unseen_gain"] else "",
            number(row["tokens_per_second"], 0),
        ]
        for row in rows
    ]  # fmt: skip
    parts = [
        "# A model that learns while it reads",
        *about(outcomes, command, budget),
        "Tuned on dev, then scored once on test; every token is scored before anything is learned "
        "from it. `cache` remembers words by the state that predicted them, `dynamic` lets the "
        "weights follow the text. `never seen` are tokens whose type was not in the training text.",
        table(head, cells, words=2) if rows else f"{NOT_YET.capitalize()}.",
    ]
    figures = {}
    for outcome in outcomes:
        found = outcome.seen
        name = f"adaptive-{outcome.name}"
        curves = _curves(found["modes"])
        if curves:
            figures[name] = partial(_figure, curves)
            n_types = next(iter(found["modes"].values()))["test"]["recurrence"]["types"]
            parts.append(
                f"## {escape(outcome.name)}: a novel word, and again\n\n"
                f"![Bits of novel words at their first, second … occurrence]({name}.svg)\n\n"
                f"{plural(n_types, 'word')} of test that are no lexemes and come again that often: "
                "mean bits of each occurrence."
            )
        if found["tried"]:
            tried = [[escape(row["what"]), number(row["bpc"], 4)] for row in found["tried"]]
            parts.append(f"### What `tune` tried on dev\n\n{table(['', 'bpc'], tried)}")
    signatures = [row["signature"] for row in rows if row["signature"]]
    if signatures:
        parts += ["## Signatures", "```\n" + "\n".join(signatures) + "\n```"]
    return Report("adaptive", join(parts) + "\n", {"adaptive": rows}, figures)


def _rows(outcome: Outcome, modes: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    static = modes.get("static", {})
    for mode, splits in modes.items():
        row: dict[str, Any] = {"run": outcome.name, "dataset": outcome.dataset, "mode": mode}
        for split, name in NAMES.items():
            result = splits.get(split, {})
            row[name] = result.get("bpc")
            row[f"{name}_unseen"] = _unseen(result)
        test, before = splits.get("test", {}), static.get("test", {})
        is_static = mode == "static" or not test or not before
        row["test_gain"] = None if is_static else before["bpc"] - test["bpc"]
        own, other = _unseen(test), _unseen(before)
        row["unseen_gain"] = None if is_static or not own or not other else 100 * (1 - own / other)
        row["tokens_per_second"] = test.get("tokens_per_second")
        row["signature"] = test.get("signature")
        rows.append(row)
    return rows


def _unseen(result: Mapping[str, Any]) -> float | None:
    found = [row["bpc"] for row in result.get("bins", ()) if row["lo"] == 0]
    return found[0] if found else None


def _curves(modes: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Bits of the first, second … occurrence in each mode."""
    found = {mode: splits.get("test", {}).get("recurrence") for mode, splits in modes.items()}
    return {mode: list(again["bits"]) for mode, again in found.items() if again and again["types"]}


def _figure(curves: Mapping[str, Sequence[float]]) -> Figure:
    """A curve for each mode."""
    fig = plots.figure(6.4, 3.6)
    panel = fig.subplots()
    names: list[tuple[float, float, str, str]] = []
    n = 1
    for mode, bits in curves.items():
        color = _COLORS.get(mode, "#6B6B6B")
        times = range(1, len(bits) + 1)
        panel.plot(times, bits, "-", color=color, marker="o", markersize=4.5, linewidth=1.8)
        names.append((len(bits), bits[-1], f"{mode}  {number(bits[-1], 1)}", color))
        n = max(n, len(bits))
    panel.set_ylim(bottom=0)
    names_beside(panel, names)
    panel.set_xlim(0.8, 1.45 * n)
    panel.set_xticks(range(1, n + 1))
    panel.tick_params(length=0)
    panel.grid(axis="y", color=FAINT, linewidth=0.6)
    panel.set_xlabel("occurrence of a word that the model does not know")
    note(fig, "mean bits of the word, less is better; last figure of each at its name")
    return fig
