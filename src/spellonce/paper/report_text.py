"""Sentences and tables that the reports of several experiments have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spellonce.paper.markdown import (
    NONE,
    NOT_YET,
    block,
    difference,
    duration,
    escape,
    number,
    p_value,
    plural,
    table,
)
from spellonce.paper.outcomes import (
    AGREES,
    EQUAL,
    MISSING,
    REVERSED,
    Differences,
    Entry,
    Outcome,
    Row,
    Split,
)
from spellonce.significance import LEVEL

NAMES: Mapping[Split, str] = {"valid": "dev", "test": "test"}
"""What the splits are called in the paper."""
TRAINING = ("steps", "epochs", "tokens", "tokens_per_second", "seconds", "seconds_in_all")
"""Keys of `result.json` that are reported."""


def join(parts: Iterable[str]) -> str:
    """Paragraphs as a text."""
    return "\n\n".join(part for part in parts if part)


def about(outcomes: Sequence[Outcome], command: str, budget: float | None) -> list[str]:
    """The command, seconds that each training was given, and what was trained on."""
    lines = [] if budget is None else [f"- Budget of each training: {duration(budget)}."]
    spent = [o.train["seconds_in_all"] for o in outcomes if o.train.get("seconds_in_all")]
    if spent:
        lines.append(f"- {plural(len(spent), 'training')} took {duration(sum(spent))} in all.")
    for name in dict.fromkeys(outcome.dataset for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.dataset == name]
        sizes = {
            (o.data["train_tokens"], o.data["train_types"]) for o in mine if "train_types" in o.data
        }
        sizes_text = " or ".join(f"{n:,} tokens of {k:,} types" for n, k in sorted(sizes))
        lines.append(f"- Data: `{name}`, trained on {sizes_text or NOT_YET}.")
        for split, title in NAMES.items():
            results = [o.valid if split == "valid" else o.test for o in mine]
            chars = {r["n_chars"] for r in results if "n_chars" in r}
            if chars:
                found = " or ".join(f"{n:,}" for n in sorted(chars))
                lines[-1] += f" {title.capitalize()}: {found} characters."
    return [block(command), "\n".join(lines)]


def unlike(outcomes: Sequence[Outcome]) -> str:
    """What is not the same in the paper."""
    same_data = {outcome.dataset for outcome in outcomes} == {"wikitext-2"}
    is_small = any(outcome.recipe.endswith("-small") for outcome in outcomes)
    what = "the same budget"
    if not same_data:
        what = "the same data or budget"
    elif is_small:
        what = "the same sizes or budget"
    return (
        "The published figures are those of models of the paper's size on the complete "
        f"WikiText-2, and are not of {what} as ours"
    )


def on_seeds(rows: Sequence[Row]) -> str:
    """Of how many seeds the figures are."""
    counts = [row["seeds"] for row in rows if row["seeds"]]
    if not counts:
        return ""
    if max(counts) == 1:
        return " One seed each."
    return (
        f" Means over {' or '.join(map(str, sorted(set(counts))))} seeds; ± is the standard "
        "deviation over them."
    )


def signatures(outcomes: Iterable[Outcome]) -> list[str]:
    """The signatures of all figures; those that are the same once."""
    every = [r["signature"] for o in outcomes for r in (o.valid, o.test) if "signature" in r]
    found = dict.fromkeys(every)
    return ["## Signatures", block("\n".join(found))] if found else []


def is_without_lexemes(outcome: Outcome) -> bool:
    """Whether it reads characters or units."""
    return outcome.system.startswith(("pure-", "hclm"))


def run_row(outcome: Outcome) -> dict[str, Any]:
    """One run as a row of a table."""
    return {
        "name": outcome.name, "system": outcome.system, "recipe": outcome.recipe,
        "dataset": outcome.dataset, "seed": outcome.seed, "settings": " ".join(outcome.settings),
        "lexemes": None if is_without_lexemes(outcome) else outcome.data.get("lexemes"),
        "units": outcome.data.get("units"),
        "train_tokens": outcome.data.get("train_tokens"),
        **{key: outcome.train.get(key) for key in TRAINING},
        **{
            f"{name}_{key}": outcome.figure(split, key)
            for split, name in NAMES.items()
            for key in ("bpc", "bpc_lm", "bpc_spell", "bpc_strict", "bpb")
        },
        "dev_signature": outcome.valid.get("signature"),
        "test_signature": outcome.test.get("signature"),
    }  # fmt: skip


def bpc_and_spread(entry: Entry) -> dict[str, float | None]:
    """Mean and standard deviation of dev and test."""
    values = {}
    for split, name in NAMES.items():
        values[name] = entry.mean(split, "bpc")
        values[f"{name}_sd"] = entry.spread(split, "bpc")
    return values


def differences_text(test: Differences | None, name: str, order: Sequence[str]) -> str:
    """Which pairs may be luck, and p of all pairs; `order` is that of the labels in the matrix."""
    if test is None:
        return f"### On {name}\n\n{NOT_YET.capitalize()}: a test needs two systems."
    how = "all" if test.exact else "drawn at random"
    parts = [
        f"### On {name}",
        f"{plural(test.n_articles, 'article')}, {plural(test.n_permutations, 'permutation')} "
        f"({how}), {plural(len(test.pairs), 'pair')}.",
    ]
    if test.too_few:
        parts.append("With so few articles and so many pairs no difference can be significant.")
    unsure = [row for row in test.pairs if row["p_holm"] >= LEVEL]
    rest = len(test.pairs) - len(unsure)
    if not unsure:
        parts.append("All differences are significant.")
    elif not rest:
        parts.append("No difference is significant.")
    else:
        parts.append(f"Not significant, while the other {plural(rest, 'pair')} are:")
        parts.append("\n".join(
            f"- {escape(row['a'])} minus {escape(row['b'])}: {difference(row['delta'])}, "
            f"p = {p_value(row['p_holm'])}"
            for row in sorted(unsure, key=lambda row: (abs(row["delta"]), row["a"], row["b"]))
        ))  # fmt: skip
    named = {label for row in test.pairs for label in (row["a"], row["b"])}
    labels = [label for label in order if label in named]
    cells = []
    for i, label in enumerate(labels[1:], start=1):
        line = [f"{i + 1} {escape(label)}"]
        for other in labels[:i]:
            p = test.p_holm(label, other)
            line.append(f"**{p_value(p)}**" if p is not None and p >= LEVEL else p_value(p))
        cells.append([*line, *[""] * (len(labels) - 1 - i)])
    head = ["p after Holm", *(f"{i + 1} {escape(label)}" for i, label in enumerate(labels[:-1]))]
    return join([*parts, table(head, cells), "Bold: not significant." if unsure else ""])


def agreement_text(rows: Sequence[Row]) -> list[str]:
    """Counts of pairs in the paper's order and against it, and those that are against it."""
    counted = []
    for where in dict.fromkeys(row["where"] for row in rows):
        mine = [row for row in rows if row["where"] == where]
        counts = [escape(where), number(len(mine), 0)]
        # Where nothing was tested, zero would sound like an answer.
        tested = any(row["significant"] is not None for row in mine)
        for verdict in (AGREES, REVERSED):
            those = [row["significant"] for row in mine if row["verdict"] == verdict]
            counts.append(number(len(those), 0))
            counts.append(number(those.count(True), 0) if tested else NONE)
        for verdict in (EQUAL, MISSING):
            counts.append(number(sum(row["verdict"] == verdict for row in mine), 0))
        counted.append(counts)
    parts = [
        "Each pair that has an order in the paper, by whether it has the same order here. Pairs "
        "that are equal in the paper do not count.",
        table(
            ["", "pairs", "agree", "significantly", "reversed", "significantly", "equal", NOT_YET],
            counted,
        ),
    ]
    against = [row for row in rows if row["verdict"] == REVERSED]
    if not against:
        done = any(row["verdict"] == AGREES for row in rows)
        return [*parts, "No pair is reversed." if done else f"No pair is complete: {NOT_YET}."]
    said = {True: "yes", False: "no", None: NONE}
    tested = any(row["significant"] is not None for row in rows)
    head = ["where", "better in the paper", "worse in the paper", "Δ there", "Δ here"]
    cells = [
        [
            escape(row["where"]), escape(row["better"]), escape(row["worse"]),
            difference(row["published_delta"]), difference(row["delta"]),
        ]
        for row in against
    ]  # fmt: skip
    if tested:
        head += ["significant there", "significant here", "p after Holm"]
        for line, row in zip(cells, against, strict=True):
            line += [said[row.get("published_significant")], said[row["significant"]]]
            line.append(p_value(row["p_holm"]))
    return [
        *parts,
        "Reversed; Δ is the bpc of the second minus that of the first:",
        table(head, cells, words=3),
    ]


def language_of(dataset: str) -> str | None:
    """The language code at the end of a data set's name.

    >>> language_of("novels-de"), language_of("wikitext-2")
    ('de', None)
    """
    found = re.search(r"-([a-z]{2})$", dataset)
    return found[1] if found else None
