"""The reports that are about words: samples, and types against tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from spellonce import plots
from spellonce.lexicon import OTHER
from spellonce.paper import published
from spellonce.paper.markdown import NONE, NOT_YET, block, escape, number, table
from spellonce.paper.ngram_ranks import NgramRanks
from spellonce.paper.outcomes import Report, Row
from spellonce.paper.report_figures import BEHIND, note, spread_apart
from spellonce.paper.report_text import join
from spellonce.plots import BLUE, FAINT, INK, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Piece = tuple[str, bool]
"""A piece of text with the white space before it, and whether it was made up."""
TOP = 10
"""n-grams that are listed from the top."""


# --- samples ----------------------------------------------------------------------------------


def samples(
    draws: Sequence[tuple[str, Sequence[str]]], texts: Sequence[Mapping[str, Any]], command: str
) -> Report:
    """Words that look as others might, and text with invented words (the paper's samples).

    `draws` are spellings σ(w) with draws from p_spell(· | e(w)). Each of `texts` has `vocabulary`,
    `temperature` and `pieces`, which are (text with the white space before it, is it novel).
    """
    titles = [
        f"Vocabulary {number(text['vocabulary'], 0)}, temperature {_heat(text['temperature'])}"
        for text in texts
    ]
    paper = dict(published.SPELLER_SAMPLES)
    low, high = (number(n, 0) for n in published.SAMPLE_VOCABULARIES)
    heat = " and ".join(map(_heat, published.SAMPLE_TEMPERATURES))
    parts = [
        "# Samples",
        block(command),
        "## Words",
        "A word σ(w), and what the speller draws from p_spell(· | e(w)): words that might be used "
        "as it is.",
        table(
            ["σ(w)", "drawn here", "drawn in the paper"],
            [
                [
                    escape(word),
                    ", ".join(map(_in_cell, drawn)) or NONE,
                    escape(paper.get(word, NONE)),
                ]
                for word, drawn in draws
            ],
            words=3,
        )
        if draws
        else f"{NOT_YET.capitalize()}.",
        "The paper's own examples, with other lexemes and another model:",
        table(["σ(w)", "drawn"], [[escape(a), escape(b)] for a, b in paper.items()], words=2),
        "## Text",
        f"In bold what the speller made up. The paper shows such text for vocabularies from {low} "
        f"to {high} at temperatures {heat}.",
        "![Text with invented words marked](samples.svg)" if texts else f"{NOT_YET.capitalize()}.",
    ]
    for title, text in zip(titles, texts, strict=True):
        parts += [f"### {title}", quoted(text["pieces"])]
    figures = {}
    if texts:
        pages = [(title, text["pieces"]) for title, text in zip(titles, texts, strict=True)]
        figures["samples"] = partial(samples_figure, pages)
    return Report("samples", join(parts) + "\n", _samples_tables(draws, texts), figures)


def _samples_tables(
    draws: Sequence[tuple[str, Sequence[str]]], texts: Sequence[Mapping[str, Any]]
) -> dict[str, Sequence[Row]]:
    return {
        "samples-words": [
            {"word": word, "draw": i, "drawn": drawn}
            for word, all_drawn in draws
            for i, drawn in enumerate(all_drawn)
        ],
        "samples-novel": [
            {
                "vocabulary": text["vocabulary"], "temperature": text["temperature"],
                "tokens": len(text["pieces"]), "novel": sum(new for _, new in text["pieces"]),
                "invented": " ".join(body.strip() for body, new in text["pieces"] if new),
            }
            for text in texts
        ],
    }  # fmt: skip


def _heat(temperature: float) -> str:
    """A temperature as the paper writes it: 0.75, 1.0."""
    return f"{temperature:g}" if temperature % 1 else f"{temperature:.1f}"


def _in_cell(text: str) -> str:
    """Text in a cell of a table, which is one line."""
    return escape(" ".join(text.split()))


def quoted(pieces: Sequence[Piece]) -> str:
    r"""Text as a quotation, invented words in bold; nothing in it is taken for Markdown.

    >>> print(quoted([("A", False), (" w*g", True), (".", False), ("\n", False), ("- B", False)]))
    > A <b>w\*g</b>.
    >
    > \- B
    """
    lines: list[list[Piece]] = [[]]
    for text, is_novel in pieces:
        first, *rest = text.split("\n")
        lines[-1].append((first, is_novel))
        for part in rest:
            lines.append([(part, is_novel)])
    paragraphs = []
    for line in lines:
        out = ""
        for text, is_novel in line:
            body = text.strip()
            # Asterisks would be no emphasis beside some neighbours; a tag always is.
            shown = escape(body) if not out else escape(f"x{body}")[1:]
            before = " " if out and text[: len(text) - len(text.lstrip())] else ""
            out += before + (f"<b>{shown}</b>" if is_novel and body else shown)
        if out:
            paragraphs.append(f"> {out}")
    return "\n>\n".join(paragraphs)


# --- types against tokens ---------------------------------------------------------------------


def types_tokens(ranks: Sequence[NgramRanks], command: str) -> Report:
    """How frequent n-grams are among tokens and among types (the paper's footnote)."""
    parts = [
        "# Types against tokens",
        block(command),
        "The rank of a character n-gram by frequency: when all tokens of a text count, and when "
        "each type counts once. ␣ is the edge of a word, which trigrams see and bigrams do not. "
        "The published ranks are those of the Penn Treebank, another text.",
        "![Ranks among types against ranks among tokens](types-tokens.svg)" if ranks else "",
        "" if ranks else f"{NOT_YET.capitalize()}.",
    ]
    for one in ranks:
        parts += _ngram_text(one)
    parts += [
        "## In the paper",
        table(
            ["n-gram", "rank among tokens", "rank among types"],
            [[f"`{r.ngram}`", number(r.tokens, 0), _of(r.types, r.ngram)]
             for r in published.NGRAM_RANKS],
        ),
    ]  # fmt: skip
    tables: dict[str, Sequence[Row]] = {
        "types-tokens": [
            {
                "text": one.text, "n": one.n, "tokens": one.n_tokens, "types": one.n_types,
                "ngrams": len(one.ngrams), "spearman": one.spearman,
            }
            for one in ranks
        ],
        "types-tokens-ranks": [row for one in ranks for row in _rank_rows(one)],
    }  # fmt: skip
    draw = partial(ranks_figure, ranks)
    return Report(
        "types-tokens", join(parts) + "\n", tables, {"types-tokens": draw} if ranks else {}
    )


def _of(rank: int, ngram: str) -> str:
    """A published rank; of how many is known for trigrams."""
    n = number(published.TRIGRAM_TYPES, 0)
    return f"{number(rank, 0)} of {n}" if len(ngram) == 3 else number(rank, 0)


def _rank_rows(one: NgramRanks) -> list[Row]:
    columns = zip(
        one.ngrams, one.among_tokens, one.among_types, one.token_ranks, one.type_ranks, strict=True
    )
    return [
        {
            "text": one.text, "n": one.n, "ngram": ngram, "among_tokens": int(a),
            "among_types": int(b), "rank_among_tokens": int(c), "rank_among_types": int(d),
        }
        for ngram, a, b, c, d in columns
    ]  # fmt: skip


def _ngram_text(one: NgramRanks) -> list[str]:
    kind = {2: "Bigrams", 3: "Trigrams"}.get(one.n, f"{one.n}-grams")
    rows = _rank_rows(one)
    paper = {row.ngram: row for row in published.NGRAM_RANKS}
    cells = []
    for i in one.top(TOP):
        known = paper.get(one.ngrams[i])
        cells.append([
            _code(one.ngrams[i]), number(rows[i]["rank_among_tokens"], 0),
            number(rows[i]["rank_among_types"], 0),
            number(known.tokens if known else None, 0),
            _of(known.types, known.ngram) if known else NONE,
        ])  # fmt: skip
    back = [
        [_code(one.ngrams[i]), number(rows[i]["rank_among_types"], 0),
         number(rows[i]["rank_among_tokens"], 0)]
        for i in one.top(TOP, by_types=True)
    ]  # fmt: skip
    return [
        f"## {kind}",
        f"{escape(one.text)}: {number(one.n_tokens, 0)} tokens of {number(one.n_types, 0)} types, "
        f"{number(len(one.ngrams), 0)} different {kind.lower()}. Spearman's rank correlation of "
        f"both frequencies: {number(one.spearman)}.",
        "The most frequent among tokens:",
        table(
            ["n-gram", "among tokens", "among types", "published: tokens", "published: types"],
            cells,
        ),
        "The most frequent among types:",
        table(["n-gram", "among types", "among tokens"], back),
    ]


def _code(ngram: str) -> str:
    """An n-gram as code in a cell, where a bar and a backtick need care."""
    if "`" in ngram:
        return f"`` {ngram} ``".replace("|", "\\|")
    return f"`{ngram}`".replace("|", "\\|")


# --- pictures ------------------------------------------------------------------------------------

_WIDTH, _SIZE, _LINES = 7.6, 10.5, 6
"""Of a picture of text: inches, points, and lines of each text."""


def samples_figure(texts: Sequence[tuple[str, Sequence[Piece]]]) -> Figure:
    """The beginning of each text under its title, invented words marked."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import FancyBboxPatch
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Serif", size=_SIZE)

    def width(text: str) -> float:
        def ink(marked: str) -> float:
            return float(text_to_path.get_text_width_height_descent(marked, font, False)[0])

        return ink(f"|{text}|") - ink("||")  # so that blanks count

    room = 72 * _WIDTH - 24
    pages = [(title, _set_lines(pieces, room, width)) for title, pieces in texts]
    step = 1.62 * _SIZE
    height = 30 + sum(26 + step * len(lines) + 12 for _, lines in pages)
    fig = plots.figure(_WIDTH, height / 72)
    fig.set_layout_engine("none")
    panel = fig.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    panel.set_xlim(0, 72 * _WIDTH)
    panel.set_ylim(height, 0)
    y = 12.0
    for title, lines in pages:
        panel.text(12, y + 10, title, fontsize=9, fontweight="bold", va="baseline")
        y += 26
        for line in lines:
            x = 12.0
            for text, is_novel in line:
                wide = width(text)
                if is_novel:
                    panel.add_patch(
                        FancyBboxPatch(
                            (x - 1, y - 0.25 * _SIZE), wide + 2, 1.25 * _SIZE, linewidth=0,
                            boxstyle="round,pad=0,rounding_size=2", facecolor="#FBE0CC",
                        )
                    )  # fmt: skip
                color = "#8F3B00" if is_novel else INK
                panel.text(x, y + 0.72 * _SIZE, text, font=font, color=color, va="baseline")
                x += wide
            y += step
        y += 12
    panel.text(12, y + 6, "marked: words that the speller made up", fontsize=8, color="#595959")
    return fig


def _set_lines(
    pieces: Sequence[Piece], room: float, width: Callable[[str], float]
) -> list[list[Piece]]:
    """Pieces cut into the lines of a picture, no more than it shows."""
    chunks: list[list[Piece] | None] = []  # what no blank parts; None for the end of a line
    for text, is_novel in pieces:
        before = text[: len(text) - len(text.lstrip())]
        if "\n" in before:
            chunks.append(None)
        if not text.strip():
            continue
        if before or not chunks or chunks[-1] is None:
            chunks.append([])
        last = chunks[-1]
        assert last is not None
        last.append((_printable(text.strip()), is_novel))
    blank = width(" ")
    lines: list[list[Piece]] = [[]]
    x = 0.0
    for chunk in chunks:
        wide = sum(width(text) for text, _ in chunk or ())
        if x and (chunk is None or x + blank + wide > room):
            if len(lines) == _LINES:
                lines[-1].append((" …", False))
                return lines
            lines.append([])
            x = 0.0
        if chunk is None:
            continue
        if wide > room:  # no line can hold it
            text = "".join(text for text, _ in chunk)
            while width(f"{text}…") > room:
                text = text[: -max(1, len(text) // 20)]
            chunk, wide = [(f"{text}…", chunk[0][1])], room
        if x:
            lines[-1].append((" ", False))
            x += blank
        lines[-1] += chunk
        x += wide
    return lines if lines[-1] else lines[:-1]


def _printable(text: str) -> str:
    """Text that a picture can hold: SVG cannot have control characters.

    >>> _printable("a\\x00b")
    'a◇b'
    """
    return "".join(char if char.isprintable() else OTHER for char in text)


def ranks_figure(found: Sequence[NgramRanks], k: int = 5) -> Figure:
    """Rank among types against rank among tokens, a panel for each n, the top k of both named."""
    fig = plots.figure(4.7 * len(found), 4.5)
    panels = fig.subplots(1, len(found), squeeze=False)[0]
    for panel, one in zip(panels, found, strict=True):
        x, y = one.token_ranks, one.type_ranks
        limit = 1.5 * max(len(one.ngrams), 2)
        panel.plot([1, limit], [1, limit], color=FAINT, linewidth=1, zorder=0)
        panel.plot(x, y, ".", markersize=2.5, color="#A9A9A9", rasterized=True, zorder=1)
        by_tokens, by_types = one.top(k), one.top(k, by_types=True)
        for places, color in ((by_types, BLUE), (by_tokens, VERMILLION)):
            panel.plot(x[places], y[places], "o", markersize=4.5, color=color, zorder=3)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(0.45, limit)
        panel.set_ylim(0.45, limit)
        _name_points(panel, one, by_tokens, VERMILLION, limit, along_y=True)
        rest = [i for i in by_types if i not in by_tokens]
        _name_points(panel, one, rest, BLUE, limit, along_y=False)
        kind = {2: "bigrams", 3: "trigrams"}.get(one.n, f"{one.n}-grams")
        rho = one.spearman
        title = f"{number(len(one.ngrams), 0)} {kind}"
        panel.set_title(
            title if rho is None else f"{title}, Spearman {number(rho)}", fontweight="bold"
        )
        panel.set_xlabel("rank among tokens")
        panel.set_ylabel("rank among types")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(lambda v, _: number(v, 0))
        panel.tick_params(which="both", length=0)
    note(
        fig,
        f"{found[0].text}; red: the {k} most frequent among tokens, blue: among types"
        if found
        else "",
    )
    return fig


def _name_points(
    panel: Axes, one: NgramRanks, places: Sequence[int], color: str, limit: float, *, along_y: bool
) -> None:
    """Names in a column (or a row) beside the points, so that they do not touch."""
    x, y = one.token_ranks, one.type_ranks
    values = y if along_y else x
    order = sorted(places, key=lambda i: (int(values[i]), one.ngrams[i]))
    decades = math.log10(limit / 0.45)
    logs = [math.log10(values[i]) for i in order]
    moved = spread_apart(logs, decades * (0.05 if along_y else 0.085), math.log10(0.5))
    for i, at in zip(order, moved, strict=True):
        where = (0.52, 10**at) if along_y else (10**at, 0.55)
        panel.annotate(
            _printable(one.ngrams[i]), (x[i], y[i]), xytext=where, textcoords="data", fontsize=8,
            color=color, ha="left" if along_y else "center", va="center", zorder=4, bbox=BEHIND,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.5, "alpha": 0.7,
                        "shrinkA": 1, "shrinkB": 2},
        )  # fmt: skip
