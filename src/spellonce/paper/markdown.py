"""Markdown out of figures and words: numbers, tables, and text that stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

NOT_YET = "not yet"
"""What stands where a run has not been made."""
NONE = "–"
"""What stands where there is no such figure."""


def number(value: float | None, digits: int = 3, missing: str = NONE) -> str:
    """A number for readers.

    >>> number(1.41649), number(-1234.5, 1), number(50_000, 0), number(None)
    ('1.416', '−1,234.5', '50,000', '–')
    """
    return missing if value is None else f"{value:,.{digits}f}".replace("-", "−")


def difference(value: float | None) -> str:
    """A number with its sign.

    >>> difference(0.0123), difference(-0.5), difference(0.0001)
    ('+0.012', '−0.500', '0.000')
    """
    if value is None:
        return NONE
    return number(abs(value)) if abs(value) < 0.0005 else f"{'+−'[value < 0]}{number(abs(value))}"


def with_spread(mean: float | None, spread: float | None, missing: str = NONE) -> str:
    """A mean and the standard deviation around it, if there is one.

    >>> with_spread(1.5, 0.002), with_spread(1.5, None)
    ('1.500 ± 0.002', '1.500')
    """
    text = number(mean, missing=missing)
    return text if mean is None or spread is None else f"{text} ± {number(spread)}"


def p_value(p: float | None) -> str:
    """A p-value for readers.

    >>> p_value(0.04), p_value(0.00004)
    ('0.040', '<0.001')
    """
    if p is None:
        return NONE
    return "<0.001" if p < 0.001 else number(p)


def duration(seconds: float) -> str:
    """A time for readers.

    >>> duration(45), duration(1200), duration(5430)
    ('45 s', '20 min', '1 h 30 min 30 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{n} {unit}" for n, unit in parts if n) or "0 s"


def plural(n: int, noun: str) -> str:
    """So many of something.

    >>> plural(1, "pair"), plural(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is, in a paragraph or in a cell of a table.

    >>> print(escape("a|b *c* <d> x_y"))
    a\|b \*c\* \<d\> x\_y
    >>> print(escape("1. one"), escape("- two"), escape("= = Three = ="))
    1\. one \- two \= = Three = =
    """
    text = re.sub(r"([\\`*_\[\]<>|~&#$])", r"\\\1", text)
    text = re.sub(r"^(\s*)([+=:-])", r"\1\\\2", text)  # what would begin a list or underline
    return re.sub(r"^(\s*\d+)([.)])", r"\1\\\2", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table of cells that are Markdown already; after the first `words` columns come figures.

    >>> print(table(["name", "bpc"], [["full", "1.416"]]))
    | name | bpc |
    |---|--:|
    | full | 1.416 |
    """
    rule = ["---" if i < words else "--:" for i in range(len(head))]
    if any(len(row) != len(head) for row in rows):
        raise ValueError("a row has not as many cells as the head")
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def block(text: str) -> str:
    """Text that is shown letter by letter.

    >>> print(block("a ``` b"))
    ````
    a ``` b
    ````
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
