"""What `spellonce reproduce` writes: each experiment as words, tables and pictures, the published
figures beside ours.

    reports.table1(outcomes, "spellonce reproduce table1 --out here", 1200.0).write(Path("here"))

Nothing here is a conclusion written by hand: all that is said follows from the figures. What is
not there yet is said to be so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from spellonce.paper import published, report_figures
from spellonce.paper.markdown import NONE, NOT_YET, escape, number, table, with_spread
from spellonce.paper.outcomes import (
    Differences,
    Entry,
    Outcome,
    Place,
    Report,
    Row,
    Split,
    agreement,
    differences,
    entries,
)
from spellonce.paper.report_adaptive import adaptive
from spellonce.paper.report_minutes import minutes
from spellonce.paper.report_text import (
    NAMES,
    TRAINING,
    about,
    agreement_text,
    bpc_and_spread,
    differences_text,
    join,
    language_of,
    on_seeds,
    run_row,
    signatures,
    unlike,
)
from spellonce.paper.report_words import samples, types_tokens
from spellonce.significance import LEVEL

__all__ = [
    "Outcome",
    "Report",
    "adaptive",
    "asides",
    "languages",
    "minutes",
    "samples",
    "table1",
    "types_tokens",
    "vocabulary",
]

# --- table1 -----------------------------------------------------------------------------------

_BINS = {0: ("dev_0", "never seen"), 1: ("dev_1_99", "1–99 times"), 100: ("dev_100", "100+ times")}
"""Bins by training count, by where they begin: key and name."""


def table1(outcomes: Sequence[Outcome], command: str, budget: float | None) -> Report:
    """The systems side by side on one data set (the paper's table 1)."""
    found = entries(outcomes)
    rows = _table1_rows(found)
    order = [row["label"] for row in rows]
    tests = {split: differences(found, split) for split in NAMES}
    agreed = _table1_agreement(rows, tests)
    parts = [
        "# Systems side by side (table 1 of the paper)",
        *about(outcomes, command, budget),
        f"{unlike(outcomes)}: compare orders and differences, not levels.",
        "## Bits per character",
        _bpc_table(rows),
        "p_LM is what choosing lexemes costs, p_spell what spelling novel words costs; dev is "
        f"their sum.{on_seeds(rows)}",
        "![Ours and the published figures of each system](table1.svg)",
        "## Dev by how often the word was seen in training",
        _bins_table(rows, outcomes),
        "## Training",
        _training_table(rows),
        "## Which differences are more than luck",
        f"Paired permutation test over articles, Holm's correction over all pairs, level {LEVEL}. "
        "Where a system was trained with several seeds, the bits of an article are their mean.",
        *(differences_text(tests[split], name, order) for split, name in NAMES.items()),
        "## What agrees with the paper's ordering and what does not",
        *agreement_text(agreed),
        *signatures(outcomes),
    ]
    tables: dict[str, Sequence[Row]] = {
        "table1": rows,
        "table1-runs": [run_row(outcome) for outcome in outcomes],
        "table1-pairs": [row for test in tests.values() if test for row in test.pairs],
        "table1-agreement": agreed,
    }
    draw = partial(report_figures.table1_figure, rows)
    return Report("table1", join(parts) + "\n", tables, {"table1": draw})


def _table1_rows(found: Sequence[Entry]) -> list[Row]:
    """One row a system, the best on dev first; then those not there yet, in the paper's order."""
    ranks = sorted(published.WIKITEXT_2, key=lambda name: published.WIKITEXT_2[name].dev)
    missing = [name for name in ranks if name not in {entry.system for entry in found}]
    rows: list[dict[str, Any]] = []
    for entry in (*found, *(Entry(name, name, ()) for name in missing)):
        first = entry.outcomes[0] if entry.outcomes else None
        is_theirs = first is None or not first.settings
        paper = published.WIKITEXT_2.get(entry.system) if is_theirs else None
        rows.append({
            "label": entry.label, "system": entry.system,
            "recipe": first and first.recipe, "settings": first and " ".join(first.settings),
            "seeds": len(entry.values("valid", "bpc")),
            **bpc_and_spread(entry),
            "dev_lm": entry.mean("valid", "bpc_lm"), "dev_spell": entry.mean("valid", "bpc_spell"),
            **{key: entry.mean("valid", f"bin {lo}") for lo, (key, _) in _BINS.items()},
            **{key: entry.training(key) for key in TRAINING},
            "rank": None,
            "published_dev": paper and paper.dev, "published_test": paper and paper.test,
            **{f"published_{key}": paper and paper.dev_bin(lo) for lo, (key, _) in _BINS.items()},
            "published_rank": ranks.index(entry.system) + 1 if paper else None,
        })  # fmt: skip
    last = len(ranks) + 1
    rows.sort(key=lambda row: (row["dev"] is None, row["dev"] or row["published_rank"] or last))
    for i, row in enumerate(rows):
        row["rank"] = None if row["dev"] is None else i + 1
    return list(rows)


def _bpc_table(rows: Sequence[Row]) -> str:
    return table(
        ["system", "dev", "test", "p_LM (dev)", "p_spell (dev)", "rank (dev)",
         "published dev", "published test", "published rank"],
        [
            [
                escape(row["label"]),
                with_spread(row["dev"], row["dev_sd"], NOT_YET),
                with_spread(row["test"], row["test_sd"], NOT_YET),
                number(row["dev_lm"]), number(row["dev_spell"]), number(row["rank"], 0),
                number(row["published_dev"]), number(row["published_test"]),
                number(row["published_rank"], 0),
            ]
            for row in rows
        ],
    )  # fmt: skip


def _bins_table(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    head, tokens = ["system"], ["*tokens*"]
    for lo, (_, name) in _BINS.items():
        head += [name, "published"]
        found = {b["tokens"] for o in outcomes for b in o.valid.get("bins", ()) if b["lo"] == lo}
        tokens.append(" or ".join(number(n, 0) for n in sorted(found)) or NOT_YET)
        tokens.append(number(published.WIKITEXT_2_BIN_TOKENS[lo], 0))
    cells = []
    for row in rows:
        line = [escape(row["label"])]
        for key, _ in _BINS.values():
            line.append(number(row[key], missing=NOT_YET if row["dev"] is None else NONE))
            line.append(number(row[f"published_{key}"], 2))
        cells.append(line)
    return table(head, [*cells, tokens])


def _training_table(rows: Sequence[Row]) -> str:
    cells = [
        [
            escape(row["label"]), number(row["seeds"], 0),
            *(number(row[key], digits, NOT_YET if row["dev"] is None else NONE)
              for key, digits in (("steps", 0), ("epochs", 2), ("tokens_per_second", 0),
                                  ("seconds", 0))),
        ]
        for row in rows
    ]  # fmt: skip
    return table(["system", "seeds", "steps", "epochs", "tokens/s", "seconds"], cells)


def _table1_agreement(rows: Sequence[Row], tests: Mapping[Split, Differences | None]) -> list[Row]:
    """All pairs that have an order in the paper: on dev, on test, and in each bin of dev."""
    found: list[Row] = []
    system = {row["label"]: row["system"] for row in rows}
    columns = [("dev", "dev", tests["valid"]), ("test", "test", tests["test"])]
    columns += [(key, f"dev, {name}", None) for key, name in _BINS.values()]
    for key, where, test in columns:
        places = [Place(row["label"], row[key], row[f"published_{key}"]) for row in rows]
        for row in agreement(places, where, test.p_holm if test else lambda a, b: None):
            pair = {system[row["better"]], system[row["worse"]]}
            said = key in NAMES.values() and pair <= set(published.WIKITEXT_2_TESTED)
            significant = not pair <= set(published.WIKITEXT_2_ALIKE) if said else None
            found.append({**row, "published_significant": significant})
    return found


# --- asides -------------------------------------------------------------------------------------


def asides(
    outcomes: Sequence[Outcome],
    segmentations: Mapping[str, Mapping[str, Any]],
    command: str,
    budget: float | None,
) -> Report:
    """What the paper says by the way, a line each; `segmentations` by the name of the outcome."""
    found = entries(outcomes)
    rows = [row for row in _table1_rows(found) if row["dev"] is not None]
    order = [row["label"] for row in rows]
    tests = {split: differences(found, split) for split in NAMES}
    gains = [_segmentations_text(name, gain) for name, gain in segmentations.items()]
    parts = [
        "# Asides",
        *about(outcomes, command, budget),
        f"{unlike(outcomes)}: compare orders and differences, not levels.",
        "## Bits per character",
        _bpc_table(rows),
        *gains,
        "## Dev by how often the word was seen in training",
        _bins_table(rows, outcomes),
        "## Training",
        _training_table(rows),
        "## Which differences are more than luck",
        *(differences_text(tests[split], name, order) for split, name in NAMES.items()),
        *signatures(outcomes),
    ]
    tables: dict[str, Sequence[Row]] = {
        "asides": rows,
        "asides-runs": [run_row(outcome) for outcome in outcomes],
    }
    return Report("asides", join(parts) + "\n", tables, {})


def _segmentations_text(name: str, gain: Mapping[str, Any]) -> str:
    return (
        f"Other segmentations, {escape(name)}: importance sampling ({gain['samples']} draws for "
        f"each of {gain['tokens']} dev tokens) finds {gain['bits_saved_per_token']:.4f} bits a "
        f"token beside the canonical one, {gain['bpc_saved']:.4f} bits per character (standard "
        f"error {number(gain['bpc_saved_error'], 4)})."
    )


# --- vocabulary -------------------------------------------------------------------------------

_SIZE_FIELDS = ("vocab_size", "merges")


def vocabulary(outcomes: Sequence[Outcome], command: str, budget: float | None) -> Report:
    """bpc on dev against the size of the vocabulary (the paper's figure)."""
    rows = [_size_row(entry) for entry in entries(outcomes, ignore=_SIZE_FIELDS)]
    rows.sort(key=lambda row: (_rank(row["system"]), row["label"], row["size"] or 0))
    paper: list[Row] = [
        {
            "label": system, "system": system, "size": size, "bpc": bpc,
            "lm": published.VOCABULARY_DEV_LM.get(size) if system == "full" else None,
        }
        for system, sizes in published.VOCABULARY_DEV.items() for size, bpc in sizes.items()
    ]  # fmt: skip
    parts = [
        "# bpc against the size of the vocabulary",
        *about(outcomes, command, budget),
        "Sizes are lexemes, and units for pure-bpe.",
        f"{unlike(outcomes)}: compare shapes, not levels.",
        "![bpc against the size of the vocabulary, here and in the paper](vocabulary.svg)",
        "## The best size of each",
        _best_table(rows, paper),
        "## Here",
        _sizes_table(rows) if rows else f"{NOT_YET.capitalize()}.",
        "## In the paper",
        _sizes_table(paper),
        *signatures(outcomes),
    ]
    tables: dict[str, Sequence[Row]] = {
        "vocabulary": rows,
        "vocabulary-published": paper,
        "vocabulary-runs": [run_row(outcome) for outcome in outcomes],
    }
    draw = partial(report_figures.vocabulary_figure, rows, paper)
    return Report("vocabulary", join(parts) + "\n", tables, {"vocabulary": draw})


def _rank(system: str) -> int:
    order = list(published.VOCABULARY_DEV)
    return order.index(system) if system in order else len(order)


def _size(outcome: Outcome) -> int | None:
    """Lexemes, or units of a system that reads units; what was asked for where neither is known."""
    is_pure = outcome.system.startswith("pure-")
    made = outcome.data.get("units" if is_pure else "lexemes")
    asked = outcome.setting("merges" if is_pure else "vocab_size") or ""
    if made is not None:
        return int(made)
    return int(asked.replace("_", "")) if asked.replace("_", "").isdigit() else None


def _size_row(entry: Entry) -> Row:
    return {
        "label": entry.label, "system": entry.system, "size": _size(entry.outcomes[0]),
        "seeds": len(entry.values("valid", "bpc")),
        "bpc": entry.mean("valid", "bpc"), "bpc_sd": entry.spread("valid", "bpc"),
        "lm": entry.mean("valid", "bpc_lm"), "spell": entry.mean("valid", "bpc_spell"),
        "recipe": entry.outcomes[0].recipe, "settings": " ".join(entry.outcomes[0].settings),
    }  # fmt: skip


def _best_table(ours: Sequence[Row], paper: Sequence[Row]) -> str:
    def best(rows: Sequence[Row]) -> tuple[list[str], str]:
        done = [row for row in rows if None not in (row["bpc"], row["size"])]
        if not done:
            return [NOT_YET, NOT_YET], NOT_YET
        found = min(done, key=lambda row: (row["bpc"], row["size"]))
        sizes = [row["size"] for row in done]
        where = "inside" if min(sizes) < found["size"] < max(sizes) else "at the edge"
        place = "the only one" if len(set(sizes)) == 1 else where
        return [number(found["size"], 0), number(found["bpc"])], place

    labels = {row["label"]: row["system"] for row in ours}
    missing = [name for name in published.VOCABULARY_DEV if name not in labels.values()]
    cells = []
    for label, system in (*labels.items(), *((name, name) for name in missing)):
        mine, place = best([row for row in ours if row["label"] == label])
        theirs = best([row for row in paper if row["system"] == system])[0]
        if system not in published.VOCABULARY_DEV:
            theirs = [NONE, NONE]
        cells.append([escape(label), *mine, place, *theirs])
    head = ["system", "best size", "bpc", "of the sizes tried", "published best size", "bpc"]
    return table(head, cells)


def _sizes_table(rows: Sequence[Row]) -> str:
    """A line for each size, a column for each system; for `full`, its parts as well."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    head, cells = ["size"], []
    for label in labels:
        head += [escape(label), "its p_LM", "its p_spell"] if label == "full" else [escape(label)]
    for size in sorted({row["size"] for row in rows if row["size"] is not None}):
        line = [number(size, 0)]
        for label in labels:
            here = [row for row in rows if (row["label"], row["size"]) == (label, size)]
            row = here[0] if here else {}
            values = [number(row.get("bpc"), missing=NOT_YET if here else "")]
            if label == "full":
                bpc, lm = row.get("bpc"), row.get("lm")
                values.append(number(lm, missing=""))
                values.append("" if bpc is None or lm is None else number(bpc - lm))
            line += values
        cells.append(line)
    return table(head, cells)


# --- languages --------------------------------------------------------------------------------


def languages(outcomes: Sequence[Outcome], command: str, budget: float | None) -> Report:
    """Systems by language and tokenization (the paper's table of the MWC)."""
    rows = _language_rows(outcomes)
    agreed: list[Row] = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        mine = [row for row in rows if row["dataset"] == name]
        kinds = {f"{r['label']}, {r['tokenization']}": r for r in mine}
        for split in NAMES.values():
            places = [Place(k, r[split], r[f"published_{split}"]) for k, r in kinds.items()]
            for pair in agreement(places, f"{name}, {split}", lambda a, b: None):
                one, other = kinds[pair["better"]], kinds[pair["worse"]]
                # What differs in both, system and tokenization, tells nothing about either.
                if any(one[key] == other[key] for key in ("tokenization", "system")):
                    agreed.append(pair)
    head = ["data set", "tokenization", "system", "dev", "test", "published dev", "published test"]
    cells = [
        [
            escape(row["dataset"]), escape(row["tokenization"]), escape(row["label"]),
            with_spread(row["dev"], row["dev_sd"], NOT_YET),
            with_spread(row["test"], row["test_sd"], NOT_YET),
            number(row["published_dev"]), number(row["published_test"]),
        ]
        for row in rows
    ]  # fmt: skip
    parts = [
        "# Languages (the paper's table of the MWC)",
        *about(outcomes, command, budget),
        "Bits per character, over the characters of the original text whatever the tokenization. "
        f"The published figures are {_their_texts(outcomes)}, with 60,000 lexemes or merges and "
        "another budget: compare orders within a language, not levels.",
        table(head, cells, words=3) if rows else f"{NOT_YET.capitalize()}.",
        on_seeds(rows).strip(),
        "![bpc of each data set and system on test](mwc.svg)" if rows else "",
        "## What agrees with the paper's ordering and what does not",
        "Only pairs that differ in one thing, system or tokenization; differences were not tested.",
        *agreement_text(agreed),
        *signatures(outcomes),
    ]
    tables: dict[str, Sequence[Row]] = {
        "mwc": rows,
        "mwc-runs": [run_row(outcome) for outcome in outcomes],
        "mwc-agreement": agreed,
    }
    draw = partial(report_figures.languages_figure, rows)
    return Report("mwc", join(parts) + "\n", tables, {"mwc": draw} if rows else {})


def _their_texts(outcomes: Sequence[Outcome]) -> str:
    ours = {outcome.dataset for outcome in outcomes}
    if all(name.startswith("mwc-") for name in ours):
        return "those of the Multilingual Wikipedia Corpus"
    return (
        "of the same language but of other texts, those of the Multilingual Wikipedia Corpus "
        "(only data sets named mwc are these)"
    )


def _tokenization(outcome: Outcome) -> str:
    """What was set, or what the figures say that the data set has."""
    if (chosen := outcome.setting("tokenization")) is not None:
        return chosen
    for result in (outcome.valid, outcome.test):
        for part in result.get("signature", "").split("|"):
            if part.startswith("tok:"):
                return str(part.removeprefix("tok:"))
    return published.REVERSIBLE  # what a data set is that says nothing


def _language_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Data set × tokenization × system: what was trained, and what the paper has."""
    rows: list[Row] = []
    kinds = dict.fromkeys([*published.MWC_DEV, *map(_tokenization, outcomes)])
    for dataset in dict.fromkeys(outcome.dataset for outcome in outcomes):
        language = language_of(dataset) or ""
        for kind in kinds:
            mine = [o for o in outcomes if (o.dataset, _tokenization(o)) == (dataset, kind)]
            paper = published.MWC_DEV.get(kind, {})
            found = entries(mine, ignore=("tokenization",))
            elsewhere = [o.system for o in outcomes if _tokenization(o) == kind]
            expected = [name for name in paper if language in paper[name]] + elsewhere
            missing = [
                name for name in dict.fromkeys(expected) if name not in {e.system for e in found}
            ]
            order = list(paper)
            all_of_it = [*found, *(Entry(name, name, ()) for name in missing)]
            all_of_it.sort(key=lambda e: order.index(e.system) if e.system in order else len(order))
            for entry in all_of_it:
                first = entry.outcomes[0] if entry.outcomes else None
                rows.append({
                    "dataset": dataset, "language": language or None, "tokenization": kind,
                    "label": entry.label, "system": entry.system, "recipe": first and first.recipe,
                    "seeds": len(entry.values("valid", "bpc")),
                    **bpc_and_spread(entry),
                    "published_dev": paper.get(entry.system, {}).get(language),
                    "published_test": published.MWC_TEST.get(kind, {})
                    .get(entry.system, {}).get(language),
                })  # fmt: skip
    return rows
