"""HTML and inline SVG out of plain strings.

All markup is made by `tag`, which escapes whatever is not markup already.

No torch here, and no matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from spellonce.surprisal import escape

Point = tuple[float, float]


class Html(str):
    """Markup. Any other string is text, and is escaped where it becomes part of markup."""


def tag(name: str, *inside: str, **attributes: object) -> Html:
    """An element with what is inside it; `class_` is the attribute class, `text_anchor` has a
    dash, `xml__space` a colon.

    >>> tag("td", "a < b", tag("b", "!"), class_="x")
    '<td class="x">a &lt; b<b>!</b></td>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("__", ":").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    content = "".join(part if isinstance(part, Html) else escape(part) for part in inside)
    return Html(f"<{name}{told}>{content}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Html:
    """A table whose first columns, `left` of them, are words and the others figures."""
    kinds = ["" if i < left else "figure" for i in range(len(head))]
    top = [tag("th", cell, class_=kind) for cell, kind in zip(head, kinds, strict=True)]
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    heads = [tag("thead", tag("tr", *top))] if any(head) else []
    return tag("div", tag("table", *heads, tag("tbody", *body)), class_="wide")


def folded(title: str, *inside: str) -> Html:
    """What is seen only when one asks for it."""
    return tag("details", tag("summary", title), *inside)


# --- text ---------------------------------------------------------------------------------------

_LINE, _TEXT_WIDTH = 30, 760
"""Pixels from line to line, and of a picture of text."""
_TEXT_STYLE = """
text { font: 19px Georgia, "Noto Serif", serif; fill: #222; white-space: pre; }
.given { fill: #777; } .novel { fill: #b34700; font-style: italic; }
rect { fill: #fff; stroke: #ddd; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8e8e8; } .given { fill: #999; } .novel { fill: #ffab70; }
  rect { fill: #161616; stroke: #333; }
}
"""


def paragraph(parts: Sequence[tuple[str, str]], columns: int = 76) -> Html:
    """A picture of text: (text, what it is: nothing, `given` or `novel`) of its parts, one by one.

    Lines are broken before a part that begins with a space, and where the text has a line break.

    >>> paragraph([("The", "given"), (" wug", "novel"), (".", "")]).count("<tspan")
    3
    """
    lines: list[list[tuple[str, str]]] = [[]]
    for text, kind in parts:
        first, *others = text.split("\n")
        length = sum(len(own) for own, _ in lines[-1])
        if first.startswith(" ") and length + len(first) > columns:
            lines.append([])
            first = first.removeprefix(" ")
        lines[-1].append((first, kind))
        lines += [[(other, kind)] for other in others]
    while len(lines) > 1 and not any(text for text, _ in lines[-1]):
        lines.pop()
    height = _LINE * len(lines) + 34
    rows = [
        tag("text", *(tag("tspan", text, class_=kind) for text, kind in line if text),
            x=24, y=_LINE * (i + 1) + 14, xml__space="preserve")
        for i, line in enumerate(lines)
    ]  # fmt: skip
    box = tag("rect", x=0.5, y=0.5, width=_TEXT_WIDTH - 1, height=height - 1, rx=8)
    told = "".join(text for text, _ in parts).strip()
    return tag(
        "svg", tag("title", told), tag("style", Html(_TEXT_STYLE)), box, *rows, role="img",
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {_TEXT_WIDTH} {height}",
        width=_TEXT_WIDTH, height=height,
    )  # fmt: skip


# --- curves -------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 250, 40, 8, 10, 32
_MOST_POINTS = 400
_BEGINNING = 20
"""The first of so many parts of a training is so bad that it may stand above the picture."""


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two others, at most so many and one.

    >>> ticks(0, 859), ticks(1.18, 1.57)
    ([0.0, 200.0, 400.0, 600.0, 800.0], [1.2, 1.3, 1.4, 1.5])
    """
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * times for times in (1, 2, 5, 10) if (high - low) / (size * times) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def curve(log: Sequence[dict[str, Any]]) -> Html | None:
    """bpc in training and validation over the steps of a log, and the learning rate behind them."""
    train, valid, rate = (points(log, n) for n in ("train_bpc", "valid_bpc", "learning_rate"))
    if not train:
        return None
    settled = train[len(train) // _BEGINNING :]
    heights = [y for _, y in [*settled, *valid]]
    low, high = min(heights), max(heights)
    room = max(0.06 * (high - low), 0.005)
    low, high = low - room, high + room
    end = max(x for x, _ in [*train, *valid])
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    top_rate = max((y for _, y in rate), default=0.0) or 1.0

    def across(x: float) -> float:
        return width * x / max(end, 1.0)

    def up(y: float) -> float:
        return height * (high - y) / (high - low)

    def line(points: Sequence[Point], kind: str) -> Html:
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return tag("polyline", points=drawn, class_=kind)

    axes = []
    for y in ticks(low, high):
        at = f"{_TOP + up(y):.1f}"
        axes.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at, class_="grid"))
        axes.append(tag("text", f"{y:g}", x=_LEFT - 6, y=at, dy=".32em", text_anchor="end"))
    for x in ticks(0, max(end, 1.0)):
        at = f"{_LEFT + across(x):.1f}"
        axes.append(tag("text", f"{x:,g}" if x < 1e6 else f"{x / 1e6:g} M", x=at,
                        y=_HEIGHT - 16, text_anchor="middle"))  # fmt: skip
    axes.append(tag("text", "steps", x=_WIDTH - _RIGHT, y=_HEIGHT - 3, text_anchor="end"))
    # A picture in the picture is clipped at its borders.
    drawn = [
        line([(across(x), height * (1 - 0.94 * y / top_rate)) for x, y in rate], "rate"),
        line([(across(x), up(y)) for x, y in train], "train"),
    ]
    dots = [
        tag("circle", cx=f"{_LEFT + across(x):.1f}", cy=f"{_TOP + up(y):.1f}", r=4, class_="valid")
        for x, y in valid
    ]
    inner = tag("svg", *drawn, x=_LEFT, y=_TOP, width=width, height=height)
    return tag(
        "svg", tag("title", "bits per character over the steps of training"), *axes, inner, *dots,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", class_="curve",
    )  # fmt: skip


def points(log: Sequence[dict[str, Any]], name: str) -> list[Point]:
    """(step, figure) of the lines of a log that have it; of very many, some."""
    found = [
        (float(line["step"]), float(line[name]))
        for line in log
        if isinstance(line.get("step"), int) and isinstance(line.get(name), int | float)
    ]
    found = [point for point in found if math.isfinite(point[1])]
    every = math.ceil(len(found) / _MOST_POINTS) or 1
    return found[(len(found) - 1) % every :: every]
