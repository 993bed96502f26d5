"""What there is to tell about a finished run: its figures, its words, and how to make it again.

Figures of whole splits are those that `eval` stores. Words come from the beginning of the split,
so that a large one costs no more than a small one. Nothing is drawn but with a seed, and no time of
day is told: the same run gives the same page.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from spellonce import recipes
from spellonce.adaptive import Learning
from spellonce.configuration import Recipe
from spellonce.errors import ConfigError, DataError, RunError
from spellonce.evaluation import TokenScores, bins
from spellonce.evaluations import evaluate_and_store, stored
from spellonce.files import write_atomically
from spellonce.loading import find_run, load
from spellonce.model import Model
from spellonce.preparation import means_of_run
from spellonce.run_page import Excerpt, Near, NovelWord, RunReport, Surprise, Words, page
from spellonce.runs import RunFolder
from spellonce.scoring import score_reading
from spellonce.speller import Speller
from spellonce.surprisal import Rows, View
from spellonce.text import GAP, TextFormat, read, text_tokens
from spellonce.two_level import TwoLevel

Status = Callable[[str], None]
SPLITS = ("valid", "test")
N_TOKENS = 20_000
"""Tokens of a split that words are taken from."""
_OPENING, _AROUND = 300, 14
"""Tokens of the text that is shown, and on each side of a surprising word."""
_SURPRISES, _NOVEL, _LEXEMES, _MADE_UP, _NEAR, _UNSEEN, _CONTEXTS = 8, 12, 12, 6, 6, 4, 2
"""How many of each are listed."""
_SEARCH = 40
"""Steps in the search for the embedding of a word that is no lexeme."""
_NUMBERS = ("steps", "tokens", "epochs", "seconds", "tokens_per_second", "valid_bpc")
_RESULT = {"recipe": str} | dict.fromkeys(_NUMBERS, (int, float))


def write(
    run: str,
    out: Path | None = None,
    split: str = "valid",
    *,
    force: bool = False,
    device: str = "cpu",
    status: Status = lambda message: None,
) -> Path:
    """Writes the page of a run to a file, `NAME.html` if none is named; where it is then."""
    if split not in SPLITS:
        raise ConfigError(f"--split must be valid or test, not {split!r}")
    folder = _finished(find_run(run))
    path = Path(f"{_name(folder)}.html") if out is None else out
    if path.is_dir() or not path.parent.is_dir():
        raise DataError(f"cannot write {path}: name a file in a folder that exists")
    if path.exists() and not force:
        raise DataError(f"{path} is there already: name another file, or add --force")
    made = page(gather(folder, split, device=device, status=status))
    write_atomically(path, made.encode("utf-8"))
    return path


def _finished(path: Path) -> RunFolder:
    """The folder of a run, if that is what it is and training has ended."""
    folder = RunFolder(path)
    folder.read_config()
    folder.check_has_model()
    if not folder.finished:
        raise RunError(f"{path} is not finished: continue it with train --resume")
    return folder


def _name(folder: RunFolder) -> str:
    return folder.path.resolve().name


def gather(
    folder: RunFolder,
    split: str = "valid",
    *,
    device: str = "cpu",
    status: Status = lambda message: None,
) -> RunReport:
    """All that the page tells. A split that was not evaluated yet is, and its figures are kept."""
    result = folder.read_json("result.json")
    if not all(isinstance(result.get(name), kind) for name, kind in _RESULT.items()):
        raise RunError(f"{folder / 'result.json'} is damaged: restore it from a copy")
    status("loading the model")
    model = load(folder.path, device=device)
    figures = stored(folder, split)
    if figures is None:
        status(f"scoring {split}")
        figures = evaluate_and_store(model, folder.path, split)
    status("looking at its words")
    scores, text, is_all = _beginning(model, split)
    words = _words(scores, text, is_all)
    network, examples = model.network, []
    if isinstance(network, TwoLevel):
        examples = _examples(model.vectors().words)
    conditioned = [speller for speller in network.spellers if isinstance(speller, Speller)]
    status("making words up")
    spelled = _made_up(model, examples)
    status("looking for neighbours")
    near = _neighbours(model, examples, _places(model, scores, text) if conditioned else {})
    recipe = model.recipe
    changes = _changes(folder, recipe)
    tested = figures if split == "test" else stored(folder, "test")
    return RunReport(
        name=_name(folder), recipe=recipe.name, about=recipe.about, split=split,
        bpc={"valid": result["valid_bpc"], **({"test": tested["bpc"]} if tested else {})},
        facts=_facts(model, result), figures=figures, adaptive=_adaptive(folder, split),
        tried=_tried(folder), log=folder.read_log(), words=words, spelled=spelled,
        is_conditioned=bool(conditioned), near=near, ranks=result.get("speller_ranks") or [],
        full_rank=min((min(s.gate_blocks().shape[1:]) for s in conditioned), default=0),
        settings=[(f"{part}.{field}", _setting(getattr(getattr(recipe, part), field)))
                  for part, field in recipe.fields()],
        changed=[change.partition("=")[0] for change in changes or ()],
        versions=model.config.get("versions", {}), checksums=_checksums(folder, model.config),
        command=None if changes is None else _command(_name(folder), model.config, changes),
    )  # fmt: skip


# --- words --------------------------------------------------------------------------------------


def _beginning(model: Model, split: str) -> tuple[TokenScores, str, bool]:
    """(scores of the tokens that a split begins with, their text, whether these are all)."""
    lines, is_whole = _first_lines(model.split_lines(split), model.format)
    reading = read(lines, model.format)
    is_all = is_whole and len(reading) <= N_TOKENS
    scores = score_reading(model.network, model.lexicon, reading.head(N_TOKENS))
    return scores, "".join(lines), is_all


def _first_lines(lines: Iterable[str], fmt: TextFormat) -> tuple[list[str], bool]:
    """(lines that have `N_TOKENS` between them, whether there are no others)."""
    kept: list[str] = []
    left = N_TOKENS
    for line in lines:
        if left <= 0:
            return kept, False
        kept.append(line)
        left -= len(text_tokens(line, fmt))
    return kept, True


def _words(scores: TokenScores, text: str, is_all: bool) -> Words:
    rows = View().rows(scores)
    parts = None
    if scores.has_parts:
        nothing = np.zeros(len(scores))
        of_lm = bins(replace(scores, nats_spelling=nothing))
        of_spelling = bins(replace(scores, nats_lexeme=nothing))
        parts = [(lm["bpc"], spell["bpc"]) for lm, spell in zip(of_lm, of_spelling, strict=True)]
    novel = _novel_costs(scores)
    ordered = sorted(novel, key=lambda word: (word.cost_each, word.word))
    n = min(_NOVEL, (len(ordered) + 1) // 2)
    return Words(
        n_tokens=len(scores), is_all=is_all, parts=parts, opening=Excerpt(text, rows[:_OPENING]),
        known=_surprises(scores, text, rows, novel=False),
        novel=_surprises(scores, text, rows, novel=True),
        cheapest=ordered[:n], dearest=ordered[n:][::-1][:n], came=_came(novel),
    )  # fmt: skip


def _surprises(scores: TokenScores, text: str, rows: Rows, *, novel: bool) -> list[Surprise]:
    """The words that cost most, each once, where that was."""
    found: dict[str, Surprise] = {}
    for i in np.argsort(-scores.bits, kind="stable").tolist():
        word = scores.tokens[i]
        if scores.is_novel[i] != novel or word.isspace() or word in found:
            continue
        if len(found) == _SURPRISES:
            break
        place = Excerpt(text, rows[_around(scores, i)])
        found[word] = Surprise(word, rows[i]["bits"], place)
    return list(found.values())


def _around(scores: TokenScores, i: int) -> slice:
    """A token and some before and behind it in its line."""
    first, last = np.searchsorted(scores.line, [scores.line[i], scores.line[i] + 1]).tolist()
    return slice(max(first, i - _AROUND), min(last, i + _AROUND + 1))


def _novel_places(scores: TokenScores) -> dict[str, list[int]]:
    """The novel words, and where they are."""
    places: dict[str, list[int]] = {}
    for i in np.flatnonzero(scores.is_novel).tolist():
        places.setdefault(scores.tokens[i], []).append(i)
    return places


def _novel_costs(scores: TokenScores) -> list[NovelWord]:
    bits, spelling = scores.bits, scores.nats_spelling / np.log(2)
    return [
        NovelWord(word, len(at), float(bits[at].mean()),
                  float(spelling[at].mean()) if scores.has_parts else None)
        for word, at in _novel_places(scores).items()
    ]  # fmt: skip


def _came(novel: Sequence[NovelWord]) -> list[tuple[str, int]]:
    """How many words came how often.

    >>> _came([NovelWord("a", 1, 9.0, None), NovelWord("b", 4, 9.0, None)])
    [('once', 1), ('3 to 5 times', 1)]
    """
    kinds = (("once", 1, 1), ("twice", 2, 2), ("3 to 5 times", 3, 5), ("more often", 6, 10**9))
    counts = [(name, sum(lo <= word.times <= hi for word in novel)) for name, lo, hi in kinds]
    return [(name, n) for name, n in counts if n]


def _plain(words: Iterable[str]) -> list[str]:
    """Those that look like words: letters, and more than three of them."""
    return [word for word in words if word.isalpha() and len(word) > 3]


def _examples(lexemes: Sequence[str]) -> list[str]:
    """Some lexemes, from frequent ones to rather rare ones.

    >>> _examples(["the", "ab", "walked"]), len(_examples([f"word{'s' * n}" for n in range(9999)]))
    (['walked'], 12)
    """
    plain = _plain(lexemes) or list(lexemes)
    if len(plain) < 4 * _LEXEMES:
        return plain[:_LEXEMES]
    places = np.geomspace(max(len(plain) // 400, 1), len(plain) // 4, _LEXEMES)
    return [plain[i] for i in dict.fromkeys(places.astype(int).tolist())]


def _places(model: Model, scores: TokenScores, text: str) -> dict[str, list[str]]:
    """The most frequent novel words that look like words, and where they stand first."""
    at = _novel_places(scores)
    chosen = sorted(_plain(at), key=lambda word: -len(at[word]))[:_UNSEEN]
    found = {}
    for word in chosen:
        around = [_around(scores, i) for i in at[word][:_CONTEXTS]]
        parts = [text[scores.start[a.start] : scores.end[a.stop - 1]].rstrip("\n") for a in around]
        found[word] = [part for part in parts if GAP not in part and word in model.tokens(part)]
    return found


def _neighbours(model: Model, lexemes: Sequence[str], unseen: dict[str, list[str]]) -> list[Near]:
    """The neighbours of lexemes, and of words that are none, by their spelling and contexts."""
    if len(lexemes) < 2:
        return []
    vectors = model.vectors()
    found = [(word, True, vectors.of(word)) for word in lexemes]
    found += [
        (word, False, vectors.infer(word, places, most=_SEARCH)) for word, places in unseen.items()
    ]
    return [
        Near(word, is_known, [
            (one.word, one.cosine) for one in vectors.neighbours(vector, _NEAR, but=[word])
        ])
        for word, is_known, vector in found
    ]  # fmt: skip


def _made_up(model: Model, lexemes: Sequence[str]) -> list[tuple[str, list[str]]]:
    drawn = [
        (word, model.spell(word, n=_MADE_UP, seed=seed, novel_only=True, max_length=20))
        for seed, word in enumerate(lexemes)
    ]
    return [(word, words) for word, words in drawn if words]


# --- facts --------------------------------------------------------------------------------------


def _facts(model: Model, result: dict[str, Any]) -> list[tuple[str, str]]:
    config, data = model.config, model.config["data"]
    versions = config.get("versions", {})
    n_parameters = sum(parameter.numel() for parameter in model.network.parameters())
    size = f"{n_parameters:,} parameters"
    if isinstance(model.network, TwoLevel):
        size += f", {model.lexicon.n_lexemes:,} lexemes"
    if data.get("units"):
        size += f", {data['units']:,} units"
    machine = [versions.get("machine"), versions.get("cpu"), f"device {config['device']}",
               f"{config['threads']} threads"]  # fmt: skip
    if result.get("peak_rss_mb"):
        machine.append(f"{result['peak_rss_mb'] / 1000:.1f} GB of memory at most")
    in_all = result.get("seconds_in_all", result["seconds"])
    return [
        ("data set", f"{data['name']}: {data['train_tokens']:,} tokens, "
                     f"{data['train_chars']:,} characters to train on"),
        ("model", f"{model.recipe.system}; {size}, an alphabet of {data['alphabet']:,}"),
        ("trained on", f"{result['tokens']:,} tokens ({result['epochs']:g} epochs), "
                       f"{result['steps']:,} steps"),
        ("time", f"{result['seconds'] / 60:.1f} minutes of training, {in_all / 60:.1f} in all; "
                 f"{result['tokens_per_second']:,.0f} tokens a second"),
        ("machine", ", ".join(part for part in machine if part)),
        ("seed", str(config["seed"])),
    ]  # fmt: skip


def _adaptive(folder: RunFolder, split: str) -> list[dict[str, Any]]:
    """Stored figures of the model as it learns while it reads."""
    found = []
    for cache, dynamic, renormalise, reset in product((False, True), repeat=4):
        if reset and not cache:
            continue
        learning = Learning(cache, dynamic, renormalise, reset)
        figures = stored(folder, split, learning) if learning else None
        if figures is not None:
            found.append(figures)
    return found


def _tried(folder: RunFolder) -> list[dict[str, Any]]:
    """What `tune` tried, if the run was tuned."""
    if not (folder / "adaptive.json").is_file():
        return []
    tried = folder.read_json("adaptive.json").get("tried", [])
    return [
        row
        for row in (tried if isinstance(tried, list) else [])
        if isinstance(row, dict)
        and isinstance(row.get("what"), str)
        and isinstance(row.get("bpc"), float)
    ]


def _checksums(folder: RunFolder, config: dict[str, Any]) -> dict[str, str]:
    texts = {
        f"{name}, the text": split["sha256"] for name, split in config["data"]["splits"].items()
    }
    return {**folder.read_json("checksums.json"), **texts}


# --- to make it again ---------------------------------------------------------------------------


def _setting(value: Any) -> str:
    """A value as one writes it behind `--set field=`.

    >>> [_setting(value) for value in (None, True, (10, 20), 0.5)]
    ['none', 'true', '10,20', '0.5']
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _changes(folder: RunFolder, recipe: Recipe) -> list[str] | None:
    """What makes the recipe of that name this one, as `part.field=value`; None: there is none."""
    try:
        own = recipes.get(recipe.name, means_of_run(folder))
    except ConfigError:
        return None
    if own.system != recipe.system:
        return None
    return [
        f"{part}.{field}={_setting(value)}"
        for part, field in recipe.fields()
        if (value := getattr(getattr(recipe, part), field)) != getattr(getattr(own, part), field)
    ]


def _command(name: str, config: dict[str, Any], changes: Sequence[str]) -> str:
    """What one types to train the run; of files, their names alone."""
    splits = config["data"]["splits"]
    files = {split: [Path(path).name for path, *_ in splits[split]["segments"]] for split in splits}
    if all(names == [f"{split}.txt"] for split, names in files.items()):
        text = ["--dataset", config["data"]["name"]]
    else:
        text = list(dict.fromkeys(name for names in files.values() for name in names))
    length = []
    if config["length"]["budget"] is not None:
        length = ["--budget", f"{config['length']['budget']:g}s"]
    elif config["length"]["steps"] is not None:
        length = ["--steps", str(config["length"]["steps"])]
    machine = ["--threads", str(config["threads"])]
    if config["device"] != "cpu":
        machine += ["--device", config["device"]]
    options = [part for change in changes for part in ("--set", change)]
    return shlex.join([
        "spellonce", "train", *text, "--recipe", config["recipe"]["name"], *length,
        "--seed", str(config["seed"]), *machine, *options, "--out", name,
    ])  # fmt: skip
