"""Runs side by side: figures against a plain recount, what is stored, what is refused, pictures."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import filelock
import pytest
import scipy.stats

from spellonce import evaluations, loading, plots, show
from spellonce.model import Model
from spellonce.runs import RunFolder
from spellonce.text import EOS, TextFormat, line_tokens

from .conftest import call, make_text, snapshot, tiny


def make_data(folder: Path, n_test_lines: int, toml: str = "") -> Path:
    folder.mkdir()
    for split, n, seed in (("train", 150, 1), ("valid", 10, 2), ("test", n_test_lines, 3)):
        (folder / f"{split}.txt").write_text(make_text(n, seed), "utf-8")
    (folder / "dataset.toml").write_text(toml)
    return folder


def train(data: Path, run: Path, *options: object, steps: int = 30) -> Path:
    """A run without the evaluation that training stores, so that all storing here is `eval`'s."""
    call("train", data, "--out", run, "--steps", steps, *tiny(), *options).ok()
    assert [path.name for path in (run / "evaluations").iterdir()] == ["valid.json"]
    shutil.rmtree(run / "evaluations")
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs on a text of many articles, two on one of nine. Tests only read it."""
    folder = tmp_path_factory.mktemp("compare")
    many = make_data(folder / "many", 400)
    few = make_data(folder / "few", 9, 'articles = "line"\n')
    train(many, folder / "a")
    train(many, folder / "b", "--seed", 1)
    train(many, folder / "c", "--set", "vocab_size=20", steps=5)
    train(few, folder / "x")
    train(few, folder / "y", steps=3)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them to work in."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_training_stores_what_eval_would(tmp_path: Path) -> None:
    call(
        "train", make_data(tmp_path / "data", 9), "--out", tmp_path / "a", "--steps", 3, *tiny()
    ).ok()
    stored = json.loads((tmp_path / "a" / "evaluations" / "valid.json").read_text())["result"]
    found = json.loads(call("eval", tmp_path / "a", "--json").ok())
    timed = ("seconds", "tokens_per_second", "peak_rss_mb")
    assert {k: v for k, v in stored.items() if k not in timed} == {
        k: v for k, v in found.items() if k not in timed
    }


def compare(*arguments: object) -> dict[str, Any]:
    out = call("compare", *arguments, "--json").ok()
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


# --- figures ----------------------------------------------------------------------------------


def recount(run: Path, data: Path, *, by_line: bool) -> tuple[list[float], list[list[float]]]:
    """Bits of each article, and [tokens, characters, bits] of each bin, from `score`'s rows."""
    text = (data / "test.txt").read_text("utf-8")
    lines = text.splitlines()
    seen = Counter(
        token
        for line in (data / "train.txt").read_text("utf-8").splitlines()
        for token in [*line_tokens(line, TextFormat()), EOS]
    )
    tokens = [token for line in lines for token in [*line_tokens(line, TextFormat()), EOS]]
    article_of, article = [], -1
    for i, line in enumerate(lines):
        article += by_line or bool(line and (i == 0 or not lines[i - 1]))
        article_of.append(article)
    articles, bins = [0.0] * (article + 1), [[0.0, 0.0, 0.0] for _ in range(3)]
    out = call("score", "-m", run, data / "test.txt", "--format", "jsonl").ok()
    rows = [json.loads(row) for row in out.split("\n")[:-1]]
    assert len(rows) == len(tokens)
    ends = [row["start"] for row in rows[1:]] + [len(text)]
    for token, row, end in zip(tokens, rows, ends, strict=True):
        articles[article_of[row["line"]]] += row["bits"]
        times = seen[token]
        for i, value in enumerate((1, end - row["start"], row["bits"])):
            bins[0 if times == 0 else 1 if times < 100 else 2][i] += value
    return articles, bins


@pytest.mark.parametrize(("names", "data"), [("a b c", "many"), ("x y", "few")])
def test_figures_and_p_values_equal_a_plain_recount(runs: Path, names: str, data: str) -> None:
    result = compare(*names.split())
    by_line = data == "few"
    truth = {name: recount(runs / name, runs / data, by_line=by_line) for name in names.split()}
    n_chars = len((runs / data / "test.txt").read_text("utf-8"))
    n_articles = len(truth[names[0]][0])
    assert (result["split"], result["n_articles"]) == ("test", n_articles)
    assert [system["run"] for system in result["systems"]] == names.split()
    for system in result["systems"]:
        articles, bins = truth[system["run"]]
        assert system["n_chars"] == n_chars
        assert system["bits"] == pytest.approx(sum(articles))
        assert system["bpc"] == pytest.approx(sum(articles) / n_chars)
        assert system["bpc_lm"] + system["bpc_spell"] == pytest.approx(system["bpc"])
        assert system["bpc_strict"] >= system["bpc"]
        for row, (tokens, chars, bits) in zip(system["bins"], bins, strict=True):
            assert (row["tokens"], row["chars"]) == (tokens, chars)
            assert row["bpc"] == (pytest.approx(bits / chars) if chars else None)
    assert result["exact"] == by_line
    assert result["n_permutations"] == (2**9 if by_line else 10_000)
    bpc = {system["run"]: system["bpc"] for system in result["systems"]}
    expected_pairs = [("a", "b"), ("a", "c"), ("b", "c")] if data == "many" else [("x", "y")]
    assert [(pair["a"], pair["b"]) for pair in result["pairs"]] == expected_pairs
    for pair in result["pairs"]:
        assert pair["delta"] == bpc[pair["a"]] - bpc[pair["b"]]
        theirs = scipy.stats.permutation_test(
            (truth[pair["a"]][0], truth[pair["b"]][0]),
            lambda a, b, axis: (a - b).sum(axis=axis),
            permutation_type="samples", vectorized=True, n_resamples=10_000, rng=0,
        ).pvalue  # fmt: skip
        assert pair["p"] == (theirs if by_line else pytest.approx(theirs, abs=0.03))
        assert pair["p"] <= pair["p_holm"] <= 1


def test_seeds_and_recipes_are_named(runs: Path) -> None:
    result = compare("a", runs / "b")
    assert [s["seed"] for s in result["systems"]] == [0, 1]
    assert {s["recipe"] for s in result["systems"]} == {"full-small"}
    assert result["systems"][1]["run"] == str(runs / "b")
    assert result["article_rule"] == "blank-line" and result["notes"] == []


def test_a_copy_is_no_better(runs: Path) -> None:
    shutil.copytree("a", "copy")
    (pair,) = compare("a", "copy")["pairs"]
    assert (pair["delta"], pair["p"], pair["p_holm"]) == (0, 1, 1)


def test_too_few_articles_are_said(runs: Path) -> None:
    result = compare("a", "b", "--split", "valid")
    assert (result["article_rule"], result["n_articles"]) == ("runs of 50 lines", 1)
    assert (result["exact"], result["pairs"][0]["p"]) == (True, 1)
    taken, impossible = result["notes"]
    assert "runs of 50 lines were taken for articles" in taken
    assert "With 1 article and 1 pair of systems no difference can be significant" in impossible
    assert "runs of 50 lines were taken" in " ".join(
        call("compare", "a", "b", "--split", "valid").ok().split()
    )


def test_what_does_not_compare_like_with_like_is_said(runs: Path) -> None:
    text, data = make_text(150, 1), runs / "many"
    (data / "test.txt").write_text(make_text(400, 3) + "ööö\n" * 20, "utf-8")
    for name, part, least in (("a", text[: len(text) // 2], 4), ("b", text, 1)):
        (data / "train.txt").write_text(f"{part}\nööö\n", "utf-8")
        train(data, runs / f"new-{name}", "--set", f"min_char_count={least}")
    notes = " ".join(compare("new-a", "new-b")["notes"])
    assert "trained on different texts" in notes
    assert "bins do not hold the same words" in notes
    assert "bpc_strict, which charges for all" in notes


# --- the table --------------------------------------------------------------------------------


def test_the_table(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = compare("c", "a", "b")
    out = call("compare", "c", "a", "b").ok()
    assert max(map(len, out.splitlines())) <= 80
    best_first = sorted(result["systems"], key=lambda system: system["bpc"])
    rows = [line.split() for line in out.splitlines() if line[:2] in ("1 ", "2 ", "3 ")]
    assert [row[1] for row in rows[:3]] == [system["run"] for system in best_first]
    assert best_first[-1]["run"] == "c", "it was hardly trained"
    for row, system in zip(rows, best_first, strict=False):
        assert row[2:5] == ["full-small", f"{system['bpc']:.3f}", f"{system['bpc_lm']:.3f}"]
        assert row[6:] == [f"{b['bpc']:.3f}" for b in system["bins"]]
    assert "10,000 permutations" in out
    unsure = sum(pair["p_holm"] >= 0.05 for pair in result["pairs"])
    assert 0 <= unsure < 3 and ("Not significant" in out) == (unsure > 0)


def made_up(n: int) -> dict[str, Any]:
    """What `compare` might find about n systems, of which neighbours are alike."""
    systems = [
        {
            "run": f"runs/system-{i}", "recipe": "full-small", "seed": i, "n_chars": 1000,
            "bits": 1000 * (2 - 0.1 * i), "bpc": 2 - 0.1 * i, "bpc_lm": None, "bpc_spell": None,
            "bpc_strict": 2.5,
            "bins": [{"lo": 0, "hi": 1, "tokens": 0, "chars": 0, "bpc": None},
                     {"lo": 1, "hi": 100, "tokens": 9, "chars": 50, "bpc": 2.2 - 0.1 * i},
                     {"lo": 100, "hi": None, "tokens": 9, "chars": 50, "bpc": 1.1 - 0.05 * i}],
        }
        for i in range(n)
    ]  # fmt: skip
    pairs = [
        {"a": f"runs/system-{i}", "b": f"runs/system-{j}", "delta": 0.1 * (j - i),
         "p": 0.04 if j == i + 1 else 0.0001, "p_holm": 0.4 if j == i + 1 else 0.004}
        for i in range(n) for j in range(i + 1, n)
    ]  # fmt: skip
    return {"split": "test", "systems": systems, "pairs": pairs, "n_articles": 60, "exact": False,
            "article_rule": "wikitext", "n_permutations": 10_000, "notes": []}  # fmt: skip


@pytest.mark.parametrize(
    ("n", "telling"),
    [
        (2, "The difference is not significant at 0.05."),
        (4, "correction: 1–2, 2–3, 3–4. All other differences are."),
        (10, "1–2, 2–3, 3–4, 4–5, 5–6, 6–7, 7–8, 8–9, 9–10. All other differences are."),
        (13, "too many pairs for this width: --json has them all"),
    ],
)
def test_tables_of_any_size(
    n: int, telling: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show.comparison_table(made_up(n))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert telling in " ".join(out.split())
    first = next(line for line in out.splitlines() if line.lstrip().startswith("1 "))
    assert f"system-{n - 1}" in first and "–" in first, "the best one; nothing where nothing is"
    if n == 10:
        matrix = out[out.index("p of each pair") :].splitlines()[2:12]
        assert matrix[0].split()[1:4] == ["·", "0.040", "<.001"]
        assert matrix[2].split()[1:4] == ["0.004", "0.400", "·"]


# --- stored evaluations -----------------------------------------------------------------------


def no_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("loads a model")

    monkeypatch.setattr(loading, "load", refuse)


def test_nothing_is_scored_twice(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: snapshot(runs / name) for name in "ab"}
    result = compare("a", "b")
    for name in "ab":
        after = snapshot(runs / name)
        assert after.pop("evaluations/test.json")
        assert after == before[name], "nothing else has changed"
    no_scoring(monkeypatch)
    (runs / "many" / "test.txt").unlink()
    assert compare("a", "b") == result


def test_eval_scores_and_stores(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = json.loads(call("eval", "a", "--split", "test", "--json").ok())
    call("eval", "-m", "b", "--split", "test").ok()
    call("eval", "a", "--text", "many/valid.txt").ok()
    assert [path.name for path in Path("a/evaluations").iterdir()] == ["test.json"]
    call("compare", "a", "b").ok()
    with monkeypatch.context() as patch:
        no_scoring(patch)
        assert evaluations.evaluation_of(Path("a"), "test") == result
    stored = Path("a/evaluations/test.json")
    again = json.loads(call("eval", "a", "--split", "test", "--json").ok())
    assert json.loads(stored.read_text())["result"] == again, "afresh, its seconds too"
    assert again["bits"] == result["bits"]


@pytest.mark.parametrize(
    "change", ["model", "lexicon", "split", "recipe", "text", "spellonce", "figure", "half", "list"]
)
def test_what_does_not_fit_is_not_used(
    change: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = evaluations.evaluation_of(Path("a"), "test")
    stored = Path("a/evaluations/test.json")
    value = json.loads(stored.read_text())
    value["result"]["bits"] = 1.0
    if change != "figure":
        value["sha256"] = evaluations._checksum(value["result"])
    files = {"model": "model.safetensors", "lexicon": "lexicon.tsv"}
    if change in files:
        value["origin"]["files"][files[change]] = "another"
    elif change in ("split", "recipe", "text", "spellonce"):
        value["origin"][change] = "another"
    text = json.dumps(value)
    stored.write_text({"half": text[: len(text) // 2], "list": "[1]"}.get(change, text))
    again = evaluations.evaluation_of(Path("a"), "test")
    assert again["bits"] == truth["bits"]
    assert json.loads(stored.read_text())["result"] == again
    no_scoring(monkeypatch)
    assert evaluations.evaluation_of(Path("a"), "test") == again


def test_another_model_in_the_same_folder(runs: Path) -> None:
    compare("a", "c")
    call("train", "many", "--out", "a", "--force", "--steps", 5, *tiny("vocab_size=20")).ok()
    assert not Path("a/evaluations/test.json").exists(), "it went with the run that it was about"
    (pair,) = compare("a", "c")["pairs"]
    assert pair["delta"] == 0


def test_a_damaged_model_is_not_hidden_by_what_is_stored(runs: Path) -> None:
    compare("a", "b")
    model = Path("a/model.safetensors")
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    call("compare", "a", "b").refused("model.safetensors is damaged", 1)


@pytest.mark.parametrize("obstacle", ["a file", "locked", "being replaced"])
def test_where_nothing_can_be_stored(runs: Path, obstacle: str) -> None:
    if obstacle == "a file":
        Path("a/evaluations").write_text("")
    elif obstacle == "being replaced":
        Path("a/.moving.partial").mkdir()
    lock = filelock.FileLock("a/lock")
    if obstacle == "locked":
        lock.acquire()
    before = snapshot(runs / "a")
    assert compare("a", "b")["n_articles"] > 20
    lock.release()
    after = snapshot(runs / "a")
    assert after.keys() | {"lock"} == before.keys() | {"lock"}
    assert not Path("a/evaluations").is_dir() and Path("b/evaluations/test.json").is_file()


def test_a_disk_that_is_full(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spellonce.files.write_synced", full)
    assert compare("a", "b")["systems"]
    assert not [*runs.rglob("evaluations/*")]


def test_training_goes_on_beside_what_is_stored(runs: Path) -> None:
    compare("a", "b")
    Path("a/evaluations/.test.json.partial").write_text("left by a kill")
    before = snapshot(runs / "a")
    call("train", "--out", "a", "--resume").ok()
    assert snapshot(runs / "a") == before
    # A new run that fails gives the old one back, evaluations and all.
    Path("blank.txt").write_text(" \n")
    call("train", "blank.txt", "--out", "a", "--force").refused("white space", 1)
    assert snapshot(runs / "a") == before
    call("train", "many", "--out", "a", "--force", "--steps", 2, *tiny()).ok()
    assert not Path("a/evaluations/test.json").exists()
    (runs / "b" / "evaluations" / "mine.txt").write_text("precious")
    command = ["train", "many", "--out", "b", "--force", "--steps", 2, *tiny()]
    call(*command).refused("holds other things (evaluations/mine.txt)", 1)


def test_training_waits_while_somebody_stores(runs: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def store() -> None:
        with filelock.FileLock("a/lock"):
            held.set()
            done.wait(0.2)

    thread = threading.Thread(target=store)
    thread.start()
    held.wait()
    call("train", "--out", "a", "--resume").ok()
    thread.join()


def test_a_run_that_changes_while_it_is_scored(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Model.evaluate_split

    def replaced(self: Model, split: str) -> dict[str, Any]:
        result = evaluate(self, split)
        for name in ("model.safetensors", "checksums.json", "config.json"):
            shutil.copy(f"b/{name}", f"a/{name}")
        return result

    monkeypatch.setattr(Model, "evaluate_split", replaced)
    assert evaluations.evaluation_of(Path("a"), "test")["bits"] > 0
    assert RunFolder(Path("a")).read_evaluation("test") is None


# --- what is refused --------------------------------------------------------------------------

REFUSED = [
    ("compare", "Missing argument", 2),
    ("compare a", "name two runs or more", 2),
    ("compare a b a", "a is named twice", 2),
    ("compare a ./b/../a/", "a is named twice", 2),
    ("compare a b --split holdout", "--split must be valid or test, not 'holdout'", 2),
    ("compare a b --device abacus", "device 'abacus' cannot be used", 2),
    ("compare a b --plot p.gif", "p.gif must end in .svg, .png or .pdf", 2),
    ("compare a b --plot nowhere/p.svg", "cannot write nowhere/p.svg", 1),
    ("compare a nowhere", "there is no run nowhere", 1),
    ("compare a many", "many is not a run", 1),
    ("compare a unfinished", "unfinished is not finished: continue it with train --resume", 1),
    ("compare a b x", "a and x have different test texts (the checksums differ)", 1),
    ("compare a other-articles", "a and other-articles cut the test text into different", 1),
    ("compare a no-test", "the data of no-test have no test split: compare on one of train", 1),
]


@pytest.mark.parametrize(("command", "telling", "code"), REFUSED)
def test_refusals(runs: Path, command: str, telling: str, code: int) -> None:
    if "unfinished" in command:
        shutil.copytree("a", "unfinished")
        for name in ("model.safetensors", "result.json"):
            Path("unfinished", name).unlink()
    if "other-articles" in command:
        train(Path("many"), Path("other-articles"), "--set", "articles=line", steps=1)
    if "no-test" in command:
        shutil.copytree("many", "testless", ignore=shutil.ignore_patterns("test.txt"))
        train(Path("testless"), Path("no-test"), steps=1)
    call(*command.split()).refused(telling, code)
    if "other-articles" not in command:
        assert not [*runs.rglob("evaluations")], "it is refused before anything is scored"


# --- pictures ---------------------------------------------------------------------------------

BEGINS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", BEGINS)
def test_pictures(runs: Path, kind: str) -> None:
    shutil.copytree("c", "$c_日本$")
    for name in ("one", "two"):
        call("compare", "a", "$c_日本$", "--plot", f"{name}.{kind}").ok()
    one, two = (Path(f"{name}.{kind}").read_bytes() for name in ("one", "two"))
    assert one.startswith(BEGINS[kind])
    assert one == two, "the same figures give the same bytes"
    assert not [*runs.glob(".*partial")]
    if kind == "svg":
        assert b"<dc:date>" not in one


@pytest.mark.parametrize("n", [2, 10, 30])
def test_pictures_of_any_size(n: int, tmp_path: Path) -> None:
    result = made_up(n)
    plots.draw_comparison(
        result, [f"{'long' * (i % 20)} {i}" for i in range(n)], tmp_path / "p.png"
    )
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / f".p.svg.{os.getpid()}.partial").mkdir()
    with pytest.raises(plots.DataError, match="cannot write"):
        plots.draw_comparison(made_up(2), ["a", "b"], tmp_path / "p.svg")


def test_without_matplotlib(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    call("compare", "a", "b", "--plot", "p.svg").refused("pip install 'spellonce[plot]'", 2)
    call("compare", "a", "b").ok()
