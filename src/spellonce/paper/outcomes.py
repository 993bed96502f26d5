"""What the reports of `spellonce reproduce` are made of: outcomes of runs, and what follows from
them by counting: means over seeds, significant differences, agreement with the paper's order.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spellonce import plots
from spellonce.errors import DataError
from spellonce.files import write_atomically
from spellonce.significance import LEVEL, holm, permutation_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Split = Literal["valid", "test"]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One run of an experiment: what was trained, and how good it is.

    What is not there yet is an empty dictionary.
    """

    name: str
    """Unique in the experiment: `full-small`, `full-small-seed1`."""
    system: str
    """As in the paper: full, no-reg, pure-bpe, hclm-cache; or a name that is not in it."""
    recipe: str
    """The recipe's name, `full-small`."""
    dataset: str
    seed: int
    settings: tuple[str, ...]
    """What `--set` changed, `field=value` each."""
    train: dict[str, Any]
    """The run's `result.json`."""
    data: dict[str, Any]
    """`data` of its `config.json`; for systems that read units, `units` is how many there are."""
    valid: dict[str, Any]
    """The JSON of `eval` on the validation split."""
    test: dict[str, Any]
    """The same on the test split."""
    budget: float | None = None
    """Seconds that the training was given, if it was given seconds."""
    seen: dict[str, Any] = field(default_factory=dict)
    """What else its experiment has found out about it."""

    def figure(self, split: Split, key: str) -> float | None:
        """A figure of a split: a key of `eval`, or `bin 0`, `bin 1`, `bin 100` for a bin's bpc."""
        result = self.valid if split == "valid" else self.test
        if not key.startswith("bin "):
            return result.get(key)
        found = [row["bpc"] for row in result.get("bins", ()) if row["lo"] == int(key[4:])]
        return found[0] if found else None

    def setting(self, field: str) -> str | None:
        """What a field was set to, whether or not it was named with its part."""
        for setting in reversed(self.settings):
            name, _, value = setting.partition("=")
            if name.rpartition(".")[2] == field:
                return value
        return None


def keep(outcome: Outcome, asked: Mapping[str, Any], path: Path) -> None:
    """Writes down an outcome and what was asked for, so that it outlives its run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        value = {"asked": asked, "outcome": asdict(outcome)}
        write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())
    except OSError as error:
        raise DataError(f"cannot write to {path}: {error.strerror or error}") from error


def kept(asked: Mapping[str, Any], path: Path) -> Outcome | None:
    """What `keep` wrote, if it was just this that was asked for."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["asked"] != json.loads(json.dumps(asked)):
            return None
        own = value["outcome"]
        return Outcome(**{**own, "settings": tuple(own["settings"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Report:
    """What an experiment writes."""

    name: str
    """Stem of the Markdown file."""
    markdown: str
    """Refers to the figures by their file names."""
    tables: Mapping[str, Sequence[Row]]
    """Stem of a CSV file → its rows, which have the same keys."""
    figures: Mapping[str, Callable[[], Figure]]
    """Stem of an SVG and a PNG file → what draws it, called only when it is written."""

    def write(self, folder: Path) -> list[Path]:
        """Writes all files, the same bytes for the same report, and says which.

        Words and tables come first: without matplotlib these are there, and the error says what
        the pictures need.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write to {folder}: {error.strerror or error}") from error
        written = [folder / f"{self.name}.md"]
        write_atomically(written[0], self.markdown.encode("utf-8", "backslashreplace"))
        for stem, rows in self.tables.items():
            written.append(folder / f"{stem}.csv")
            write_atomically(written[-1], _csv(rows).encode("utf-8", "backslashreplace"))
        for stem, draw in self.figures.items():
            paths = [folder / f"{stem}.svg", folder / f"{stem}.png"]
            for path in paths:
                plots.check(path)
                with plots.style():
                    plots.save(draw(), path)  # drawn anew: saving once may move things a little
            written += paths
        return written


def _csv(rows: Sequence[Row]) -> str:
    """Rows with a head; an empty field is a figure that does not exist."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


# --- seeds ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """Runs that differ in nothing but their seed."""

    label: str
    """What to call them: the system, or more where that would not tell them apart."""
    system: str
    outcomes: tuple[Outcome, ...]

    def values(self, split: Split, key: str) -> list[float]:
        """The figure of each run that has it."""
        found = (outcome.figure(split, key) for outcome in self.outcomes)
        return [value for value in found if value is not None]

    def mean(self, split: Split, key: str) -> float | None:
        """Its mean over the seeds."""
        values = self.values(split, key)
        return statistics.fmean(values) if values else None

    def spread(self, split: Split, key: str) -> float | None:
        """Its standard deviation over the seeds; none for a single one."""
        values = self.values(split, key)
        return statistics.stdev(values) if len(values) > 1 else None

    def training(self, key: str) -> float | None:
        """The mean of a figure of `result.json`."""
        values = [o.train[key] for o in self.outcomes if o.train.get(key) is not None]
        return statistics.fmean(values) if values else None

    def articles(self, split: Split) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """Bits of each article, the mean over the seeds."""
        found = [(o.valid if split == "valid" else o.test).get("articles") for o in self.outcomes]
        bits = [[article["bits"] for article in articles] for articles in found if articles]
        return np.mean(np.array(bits), axis=0) if bits else None


def entries(outcomes: Sequence[Outcome], ignore: Iterable[str] = ()) -> list[Entry]:
    """Outcomes without their seeds, in the order of the first of each.

    Settings of the fields `ignore` part the entries, but are not told in their labels.
    """
    skipped = set(ignore)
    variants: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
    recipes: dict[tuple[str, str], set[tuple[str, ...]]] = {}

    def told(outcome: Outcome) -> tuple[str, ...]:
        fields = ((s, s.partition("=")[0].rpartition(".")[2]) for s in outcome.settings)
        return tuple(setting for setting, field in fields if field not in skipped)

    for outcome in outcomes:
        variants.setdefault(outcome.system, set()).add((outcome.recipe, told(outcome)))
        recipes.setdefault((outcome.system, outcome.recipe), set()).add(told(outcome))
    found: dict[tuple[str, tuple[str, ...]], list[Outcome]] = {}
    for outcome in outcomes:
        label = outcome.system
        if len(variants[outcome.system]) > 1:
            label = outcome.recipe
            if len(recipes[outcome.system, outcome.recipe]) > 1:
                label = " ".join((outcome.recipe, *told(outcome)))
        found.setdefault((label, outcome.settings), []).append(outcome)
    return [Entry(label, runs[0].system, tuple(runs)) for (label, _), runs in found.items()]


# --- luck or not ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Differences:
    """A paired permutation test over articles for each pair of entries."""

    split: Split
    pairs: list[Row]
    """`a`, `b`, `delta` (the bpc of a minus that of b), `p` and `p_holm`."""
    n_articles: int
    n_permutations: int
    exact: bool
    too_few: bool
    """Whether no difference could be significant, however large."""

    def p_holm(self, a: str, b: str) -> float | None:
        """The corrected p-value of a pair of labels, in any order."""
        found = [row["p_holm"] for row in self.pairs if {row["a"], row["b"]} == {a, b}]
        return found[0] if found else None


def differences(found: Sequence[Entry], split: Split) -> Differences | None:
    """Tests all pairs of what is finished, Holm over all of them; none where there is no pair."""
    chars = {
        tuple(article["chars"] for article in result["articles"])
        for entry in found
        for outcome in entry.outcomes
        if (result := outcome.valid if split == "valid" else outcome.test).get("articles")
    }
    if len(chars) > 1:
        raise DataError(f"the runs were not evaluated on the same {split} text: keep them apart")
    bits = {e.label: b for e in found if (b := e.articles(split)) is not None}
    means = {e.label: e.mean(split, "bpc") for e in found}
    pairs = list(itertools.combinations(bits, 2))
    if not pairs:
        return None
    test = permutation_test(np.array([bits[a] - bits[b] for a, b in pairs]))
    rows: list[Row] = [
        {
            "split": split, "a": a, "b": b, "delta": (means[a] or 0.0) - (means[b] or 0.0),
            "p": float(p), "p_holm": float(corrected),
        }
        for (a, b), p, corrected in zip(pairs, test.p, holm(test.p), strict=True)
    ]  # fmt: skip
    n_articles = len(next(iter(chars)))
    too_few = test.smallest_p * len(pairs) >= LEVEL
    return Differences(split, rows, n_articles, test.n_permutations, test.exact, too_few)


# --- the paper's order ------------------------------------------------------------------------

AGREES, REVERSED, EQUAL, MISSING = "agrees", "reversed", "equal", "not yet"


@dataclass(frozen=True)
class Place:
    """A system with what it has here and in the paper."""

    label: str
    ours: float | None
    published: float | None


def agreement(
    places: Sequence[Place], where: str, p_of: Callable[[str, str], float | None]
) -> list[Row]:
    """For each pair that has an order in the paper: is it the same here, and is that luck?

    >>> found = agreement([Place("a", 1.5, 1.2), Place("b", 1.4, 1.3)], "dev", lambda a, b: 0.01)
    >>> found[0]["better"], found[0]["verdict"], found[0]["significant"]
    ('a', 'reversed', True)
    """
    rows: list[Row] = []
    for one, other in itertools.combinations(places, 2):
        if one.published is None or other.published is None or one.published == other.published:
            continue
        better, worse = sorted((one, other), key=lambda place: place.published or 0.0)
        delta = p = None
        verdict = MISSING
        if better.ours is not None and worse.ours is not None:
            delta = worse.ours - better.ours
            verdict = AGREES if delta > 0 else REVERSED if delta < 0 else EQUAL
            p = p_of(better.label, worse.label)
        rows.append({
            "where": where, "better": better.label, "worse": worse.label,
            "published_delta": round((worse.published or 0.0) - (better.published or 0.0), 3),
            "delta": delta, "p_holm": p, "verdict": verdict,
            "significant": None if p is None else p < LEVEL,
        })  # fmt: skip
    return rows
