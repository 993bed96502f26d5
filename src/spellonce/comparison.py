"""Runs side by side on one text: figures, and which differences are more than luck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spellonce.errors import ConfigError, DataError
from spellonce.evaluations import evaluation_of
from spellonce.runs import RunFolder
from spellonce.significance import LEVEL, PermutationTest, holm, permutation_test
from spellonce.text import MIN_ARTICLES

if TYPE_CHECKING:
    from spellonce.adaptive import Learning

_FIGURES = (
    "recipe", "bits", "bpc", "bpc_lm", "bpc_spell", "bpc_strict", "n_chars", "bins", "static",
)  # fmt: skip
_VISIBLE = 0.0005
"""Bits per character that show in a figure of three digits."""


def compare(
    runs: Sequence[str | Path],
    split: str = "test",
    *,
    device: str = "cpu",
    learning: Learning | None = None,
    status: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """What `spellonce compare --json` prints: the figures of each run, and a paired permutation
    test over articles for each pair, corrected after Holm.

    `delta` is the bpc of `a` minus that of `b`. `learning`: what they learn while they read.
    `status` is told what is being scored.
    """
    paths = [Path(run) for run in runs]
    configs = _check_runs(paths, split)
    evaluations: list[dict[str, Any]] = []
    for path in paths:
        status(f"scoring {split} with {path} ({len(evaluations) + 1} of {len(paths)})")
        evaluations.append(evaluation_of(path, split, device=device, learning=learning))
        _check_same_articles(paths, evaluations, split)
    systems = [
        {"run": str(path), "seed": config["seed"], **{key: result[key] for key in _FIGURES}}
        for path, config, result in zip(paths, configs, evaluations, strict=True)
    ]
    bits = np.array([[article["bits"] for article in e["articles"]] for e in evaluations])
    pairs = list(itertools.combinations(range(len(paths)), 2))
    test = permutation_test(np.array([bits[a] - bits[b] for a, b in pairs]))
    corrected = holm(test.p)
    return {
        "split": split,
        "systems": systems,
        "pairs": [
            {
                "a": systems[a]["run"],
                "b": systems[b]["run"],
                "delta": systems[a]["bpc"] - systems[b]["bpc"],
                "p": float(test.p[i]),
                "p_holm": float(corrected[i]),
            }
            for i, (a, b) in enumerate(pairs)
        ],
        "n_articles": bits.shape[1],
        "article_rule": evaluations[0]["article_rule"],
        "n_permutations": test.n_permutations,
        "exact": test.exact,
        "notes": _notes(systems, configs, test, bits.shape[1], evaluations[0]["article_rule"]),
    }


def _check_runs(paths: list[Path], split: str) -> list[dict[str, Any]]:
    """The configs of runs that can be compared; all that can be refused before scoring, is."""
    if len(paths) < 2:
        raise ConfigError("there is nothing to compare: name two runs or more")
    for a, b in itertools.combinations(paths, 2):
        if a.resolve() == b.resolve():
            raise ConfigError(f"{a} is named twice: name each run once")
    configs = []
    for path in paths:
        folder = RunFolder(path)
        configs.append(folder.read_config())
        folder.check_has_model()
    for path, config in zip(paths, configs, strict=True):
        splits = config["data"].get("splits", {})
        if split not in splits:
            has = ", ".join(splits)
            raise DataError(f"the data of {path} have no {split} split: compare on one of {has}")
        if splits[split]["sha256"] != configs[0]["data"]["splits"][split]["sha256"]:
            raise DataError(
                f"{paths[0]} and {path} have different {split} texts (the checksums differ): "
                "compare runs that were trained on the same data set"
            )
    return configs


def _check_same_articles(paths: list[Path], evaluations: list[dict[str, Any]], split: str) -> None:
    """Refuses the newest of the evaluations if it has other articles than the first one."""
    first, last = evaluations[0], evaluations[-1]
    names = f"{paths[0]} and {paths[len(evaluations) - 1]}"
    if first["n_chars"] != last["n_chars"]:
        raise DataError(
            f"{names} have different {split} texts ({first['n_chars']:,} and "
            f"{last['n_chars']:,} characters): compare runs that were trained on the same data set"
        )
    if not first["n_chars"]:
        raise DataError(f"the {split} split of {paths[0]} is empty: compare on another --split")
    lengths = [[article["chars"] for article in e["articles"]] for e in (first, last)]
    if lengths[0] != lengths[1]:
        raise DataError(
            f"{names} cut the {split} text into different articles ({first['article_rule']}: "
            f"{len(lengths[0])}; {last['article_rule']}: {len(lengths[1])}): "
            "compare runs with the same setting of articles"
        )


def _notes(
    systems: list[dict[str, Any]],
    configs: list[dict[str, Any]],
    test: PermutationTest,
    n_articles: int,
    article_rule: str,
) -> list[str]:
    """What a reader of the figures should know, in sentences."""
    notes = []
    if article_rule.startswith("runs of "):
        notes.append(
            f"The text has fewer than {MIN_ARTICLES} articles between blank lines, "
            f"so {article_rule} were taken for articles."
        )
    n_pairs = len(systems) * (len(systems) - 1) // 2
    if test.smallest_p * n_pairs >= LEVEL:
        notes.append(
            f"With {n_articles} article{'s' * (n_articles != 1)} and {n_pairs} "
            f"pair{'s' * (n_pairs != 1)} of systems no difference can be significant at {LEVEL}, "
            "however large it is."
        )
    if len({config["data"]["splits"]["train"]["sha256"] for config in configs}) > 1:
        notes.append("The systems were trained on different texts.")
    if len({tuple(row["chars"] for row in system["bins"]) for system in systems}) > 1:
        notes.append(
            "The bins do not hold the same words for all systems, "
            "since these have not seen the same words as often."
        )
    left_out = [system["bpc_strict"] - system["bpc"] for system in systems]
    if max(left_out) - min(left_out) >= _VISIBLE:
        figures = ", ".join(f"{system['run']} {system['bpc_strict']:.3f}" for system in systems)
        notes.append(
            "Alphabet or tokenization differ, so that bpc leaves different things unpaid; "
            f"bpc_strict, which charges for all, is: {figures}."
        )
    return notes
