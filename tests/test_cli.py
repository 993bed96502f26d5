"""The command line as scripts see it: help, JSON, tables, pipes."""

from __future__ import annotations

import json
import math
import select
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer.main

import spellonce
from spellonce import recipes
from spellonce.cli import app
from spellonce.runs import FORMAT

from .conftest import Start, call, make_text, tiny

COMMAND: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = COMMAND.commands


# --- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_option(name: str, flag: str) -> None:
    out = call(name, flag).ok()
    assert f"Usage: spellonce {name}" in out
    for parameter in COMMANDS[name].params:
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert option in out


def test_help_names_every_command() -> None:
    out = call("--help").ok()
    for name in COMMANDS:
        assert f"  {name} " in out
    assert "--version" in out


def test_the_commands_of_the_interface_are_there() -> None:
    wanted = {"demo", "tokenize", "detokenize", "train", "recipes", "eval", "score", "sample"}
    assert wanted | {"spell"} <= COMMANDS.keys()


def test_without_a_command_there_is_help() -> None:
    result = call()
    assert (result.code, result.out) == (2, "")
    assert "Usage: spellonce" in result.err and result.err.count("\n") > 10


def test_version() -> None:
    assert call("--version").ok() == f"spellonce {spellonce.__version__}\n"


def test_recipes_one_line_each() -> None:
    lines = call("recipes").ok().splitlines()
    assert [line.split()[0] for line in lines] == recipes.names()
    for name, line in zip(recipes.names(), lines, strict=True):
        assert line.endswith(recipes.get(name).about)


def test_the_fields_of_a_recipe() -> None:
    out = call("recipes", "small").ok()
    assert out.startswith("full-small: ")
    fields = dict(line.split(None, 1) for line in out.splitlines()[1:])
    assert fields["data.vocab_size"] == "25000"
    assert {"lm.n_hidden", "speller.n_hidden", "training.checkpoint_every"} <= fields.keys()


def test_a_recipe_that_follows_its_means(tiny_text: Path, tmp_path: Path) -> None:
    def width(budget: str) -> int:
        out = call("recipes", "cpu", "--budget", budget).ok()
        return int(dict(line.split(None, 1) for line in out.splitlines()[1:])["lm.n_hidden"])

    assert width("5m") < width("30m") < width("3h")
    small, large = (recipes.get("cpu", recipes.Means(1800, n)) for n in (10**6, 10**9))
    assert small.lm.drop_hidden > large.lm.drop_hidden
    call("recipes", "--budget", "5m").refused("goes with the name of a recipe", 2)
    run = tmp_path / "run"
    command = ["train", tiny_text, "--recipe", "cpu", "--steps", 2, "--out", run, *tiny()]
    call(*command).ok()
    for name in ("result.json", "model.safetensors"):
        (run / name).unlink()
    call(*command, "--resume").ok()
    assert (run / "model.safetensors").is_file()
    call(*command[:-2], "--resume").refused("another recipe", 1)


# --- JSON -------------------------------------------------------------------------------------

EVAL_KEYS = {
    "recipe", "split", "n_tokens", "n_chars", "n_bytes", "bits", "bits_strict", "bpc",
    "bpc_strict", "bpb", "bpc_lm", "bpc_spell", "bins", "adaptive", "static", "seconds",
    "tokens_per_second", "peak_rss_mb", "signature",
}  # fmt: skip
TRAIN_KEYS = {
    "recipe", "steps", "tokens", "seconds", "tokens_per_second", "valid_bpc", "peak_rss_mb", "run",
}  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--split", "test"], ["--text"]], ids=str)
def test_json_of_eval(tiny_run: Path, tmp_path: Path, options: list[str]) -> None:
    if options == ["--text"]:
        (tmp_path / "t.txt").write_text("Größe — sel the ran.\n" + make_text(9, seed=3), "utf-8")
        options = ["--text", str(tmp_path / "t.txt")]
    out = call("eval", tiny_run, *options, "--json").ok()
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result.keys() >= EVAL_KEYS
    assert result["recipe"] == "full-small" and result["adaptive"] is None
    splits = {"": "valid", "--split": "test", "--text": "text"}
    assert result["split"] == splits[options[0] if options else ""]
    assert result["bpc_lm"] + result["bpc_spell"] == pytest.approx(result["bpc"], rel=1e-12)
    assert result["bpc"] == pytest.approx(result["bits"] / result["n_chars"])
    assert result["bpb"] == pytest.approx(result["bits"] / result["n_bytes"])
    assert result["bpc_strict"] == pytest.approx(result["bits_strict"] / result["n_chars"])
    assert result["static"] == {"bits": result["bits"], "bpc": result["bpc"]}
    bins = result["bins"]
    assert [(row["lo"], row["hi"]) for row in bins] == [(0, 1), (1, 100), (100, None)]
    assert sum(row["tokens"] for row in bins) == result["n_tokens"]
    assert sum(row["chars"] for row in bins) == result["n_chars"]
    bits = sum(row["chars"] * row["bpc"] for row in bins if row["chars"])
    assert bits == pytest.approx(result["bits"], rel=1e-9)


def test_eval_is_the_same_every_time(tiny_run: Path) -> None:
    results = [json.loads(call(*command, "--json").ok()) for command in
               (["eval", tiny_run], ["eval", "-m", tiny_run, "--split", "valid"])]  # fmt: skip
    for result in results:
        for key in ("seconds", "tokens_per_second", "peak_rss_mb"):
            assert result.pop(key) >= 0
    assert results[0] == results[1]


def test_eval_without_json_says_the_same(tiny_run: Path) -> None:
    result = json.loads(call("eval", tiny_run, "--json").ok())
    out = call("eval", tiny_run).ok()
    assert f"{result['bpc']:.4f}" in out
    assert f"{result['n_tokens']} tokens" in out
    assert result["signature"] in out


def test_json_of_train(tiny_text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    out = call("train", tiny_text, "--out", run, "--steps", 6, "--json", *tiny()).ok()
    assert out.count("\n") == 1
    result = json.loads(out)
    assert result.keys() >= TRAIN_KEYS
    assert (result["recipe"], result["steps"], result["run"]) == ("full-small", 6, str(run))
    assert result["tokens"] == 6 * 4 * 12, "steps × rails × window"
    assert result == json.loads((run / "result.json").read_text())
    evaluated = json.loads(call("eval", run, "--json").ok())
    assert evaluated["bpc"] == pytest.approx(result["valid_bpc"], rel=1e-6)


def test_a_run_folder_holds_what_it_should(tiny_run: Path) -> None:
    names = {path.name for path in tiny_run.iterdir()}
    assert {"config.json", "lexicon.tsv", "model.safetensors", "log.jsonl", "checkpoint"} <= names
    config = json.loads((tiny_run / "config.json").read_text())
    assert config["format"] == FORMAT and config["seed"] == 0
    assert set(config["data"]["splits"]) == {"train", "valid", "test"}
    lines = [json.loads(line) for line in (tiny_run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 10, 15, 20, 25, 30, 30]


@pytest.mark.parametrize(
    ("settings", "part", "field", "value"),
    [
        (["vocab_size=7"], "data", "vocab_size", 7),
        (["data.vocab_size=7"], "data", "vocab_size", 7),
        (["vocab_size=none"], "data", "vocab_size", None),
        (["vocab_size=7", "vocab_size=8"], "data", "vocab_size", 8),
        (["speller.n_layers=1"], "speller", "n_layers", 1),
        (["cuts=10,30"], "lm", "cuts", [10, 30]),
        (["lm.cuts="], "lm", "cuts", []),
        (["learning_rate=1e-3"], "training", "learning_rate", 1e-3),
        (["proximal=yes"], "objective", "proximal", True),
    ],
)
def test_settings(
    tiny_text: Path, tmp_path: Path, settings: list[str], part: str, field: str, value: object
) -> None:
    call("train", tiny_text, "--out", tmp_path / "r", "--steps", 1, *tiny(*settings)).ok()
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["recipe"][part][field] == value


def test_a_dataset_by_name(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sets" / "mine"
    folder.mkdir(parents=True)
    for split, seed in (("train", 1), ("valid", 2), ("test", 3)):
        (folder / f"{split}.txt").write_text(make_text(30, seed))
    monkeypatch.setenv("SPELLONCE_DATA", str(folder.parent))
    call("train", "--dataset", "mine", "--out", tmp_path / "r", "--steps", 2, *tiny()).ok()
    for split, seed in (("valid", 2), ("test", 3)):
        result = json.loads(call("eval", tmp_path / "r", "--split", split, "--json").ok())
        assert result["n_chars"] == len(make_text(30, seed))


def test_seeds_make_runs(tiny_text: Path, tiny_run: Path, tmp_path: Path) -> None:
    def model(name: str, seed: int) -> bytes:
        out = tmp_path / name
        call("train", tiny_text, "--out", out, "--steps", 30, "--seed", seed, *tiny()).ok()
        return (out / "model.safetensors").read_bytes()

    assert model("same", 0) == (tiny_run / "model.safetensors").read_bytes()
    assert model("other", 1) != (tiny_run / "model.safetensors").read_bytes()


# --- scores -----------------------------------------------------------------------------------

COLUMNS = [
    "line", "index", "token", "start", "end", "bits", "bits_lexeme", "bits_spelling", "novel",
]  # fmt: skip
SCORED = "Sel the zibbled ran.\n\n\ttab \\ and “quotes”"


def test_score_tsv(tiny_run: Path) -> None:
    header, *rows = call("score", "-m", tiny_run, stdin=SCORED.encode()).ok().split("\n")[:-1]
    assert header.split("\t") == COLUMNS
    tokens = [row.split("\t")[2] for row in rows]
    assert tokens[:6] == ["Sel", "the", "zibbled", "ran", ".", "\\n"]
    assert tokens[6:9] == ["\\n", "\\t", "tab"] and "\\\\" in tokens
    lines = [(int(row.split("\t")[0]), int(row.split("\t")[1])) for row in rows]
    assert lines[:8] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (2, 0)]
    assert {row.split("\t")[8] for row in rows} == {"0", "1"}


def test_score_formats_agree_with_the_library(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(SCORED, "utf-8")
    tsv = call("score", "-m", tiny_run, tmp_path / "t.txt").ok().split("\n")[1:-1]
    jsonl = call("score", "-m", tiny_run, tmp_path / "t.txt", "--format", "jsonl").ok()
    scores = spellonce.load(tiny_run).score(SCORED)
    rows = [json.loads(line) for line in jsonl.split("\n")[:-1]]
    assert len(rows) == len(tsv) == len(scores)
    for row, line, bits, expected in zip(rows, tsv, scores.bits, scores.rows(), strict=True):
        assert list(row) == COLUMNS
        assert row == expected
        fields = dict(zip(COLUMNS, line.split("\t"), strict=True))
        assert fields["token"] == row["token"]
        assert float(fields["bits"]) == pytest.approx(bits, abs=1e-8)
        assert row["bits_lexeme"] + row["bits_spelling"] == pytest.approx(row["bits"])
        assert row["novel"] or row["bits_spelling"] == 0
        assert bool(int(fields["novel"])) is row["novel"]


def test_rows_of_a_table_add_up_to_eval(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(make_text(200, seed=5), "utf-8")
    rows = call("score", "-m", tiny_run, tmp_path / "t.txt").ok().split("\n")[1:-1]
    total = sum(float(row.split("\t")[5]) for row in rows)
    bits = json.loads(call("eval", tiny_run, "--text", tmp_path / "t.txt", "--json").ok())["bits"]
    assert total == pytest.approx(bits, abs=1e-6)


def test_several_files_are_scored_one_by_one(tiny_run: Path, tmp_path: Path) -> None:
    for name, text in (("a", "sel the\n"), ("b", "ran")):
        (tmp_path / name).write_text(text)
    header, *rows = call("score", "-m", tiny_run, tmp_path / "a", tmp_path / "b").ok().split("\n")
    assert header.split("\t") == [*COLUMNS, "file"]
    assert [row.split("\t")[-1][-1] for row in rows[:-1]] == ["a", "a", "a", "b"]
    alone = call("score", "-m", tiny_run, tmp_path / "b").ok().split("\n")[1].split("\t")
    together = rows[3].split("\t")
    assert together[2:5] == alone[2:5] == ["ran", "0", "3"]
    assert float(together[5]) == pytest.approx(float(alone[5]), abs=1e-4)


def test_files_are_read_some_at_a_time(tmp_path: Path) -> None:
    from spellonce.commands.shared import in_groups, open_all

    paths = [tmp_path / name for name in "abcd"]
    for path, size in zip(paths, (3, 4, 20, 5), strict=True):
        path.write_bytes(b"x" * size)
    texts = open_all(paths)
    assert list(in_groups(texts, 8)) == [texts[:2], texts[2:3], texts[3:]]
    assert list(in_groups([], 8)) == []


# --- words out --------------------------------------------------------------------------------


def test_samples(tiny_run: Path) -> None:
    def sample(*options: object) -> str:
        return call("sample", "-m", tiny_run, "-n", 30, *options).ok()

    assert sample("--seed", 3) == sample("--seed", 3) != sample("--seed", 4)
    assert sample("--prompt", "Sel the", "--plain").startswith("Sel the")
    assert sample("-T", 0) == sample("-T", 0, "--seed", 9), "the likeliest is always the same"
    hot = sample("-n", 300, "-T", 3)
    assert "‹" in hot, "invented words are marked when piped"
    assert hot.replace("‹", "").replace("›", "") == sample("-n", 300, "-T", 3, "--plain")


def test_a_prompt_that_is_no_text(tiny_run: Path) -> None:
    """Bytes of an argument that are no UTF-8 come out as they went in."""
    out = call("sample", "-m", tiny_run, "-n", 3, "--plain", "--prompt", "caf\udce9").ok()
    assert out.startswith("caf\udce9")


@pytest.mark.parametrize("how", ["--like sel", "--context the", "--like sel the", "--like=ran"])
def test_spell_is_one_word_a_line(tiny_run: Path, how: str) -> None:
    def spell(*options: object) -> list[str]:
        out = call("spell", "-m", tiny_run, *how.split(), *options).ok()
        assert out.endswith("\n")
        return out[:-1].split("\n")

    words = spell("-n", 12)
    assert len(words) == len(set(words)) == 12
    assert not any(char.isspace() for word in words for char in word)
    assert spell("-n", 12) == words != spell("-n", 12, "--seed", 1)
    assert all(3 <= len(word) <= 5 for word in spell("--min-length", 3, "--max-length", 5))
    lexicon = spellonce.load(tiny_run).lexicon
    assert not any(lexicon.lexeme_id(word) for word in spell("--novel-only", "-T", "0.5"))


def test_fewer_words_than_asked_for_is_said(tiny_run: Path) -> None:
    result = call("spell", "-m", tiny_run, "--context", "the", "-T", 0, "-n", 5)
    assert result.code == 0 and result.out.count("\n") == 1
    assert (
        result.err
        == "spellonce: no more than 1 were found (of those drawn, all others had come before)\n"
    )


# --- real pipes -------------------------------------------------------------------------------


def pipe(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spellonce", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, **options)


def test_tokenize_and_detokenize_are_inverse_in_a_pipe() -> None:
    text = (make_text(300) + "(odd)  spaces\t\r\n⇹ ⇹20 \0 “日本語”… no end").encode()
    first = pipe("tokenize", stdin=subprocess.PIPE)
    second = pipe("detokenize", stdin=first.stdout)
    assert first.stdin and first.stdout
    first.stdout.close()
    first.stdin.write(text)
    first.stdin.close()
    out, _ = second.communicate()
    assert (first.wait(), second.returncode) == (0, 0)
    assert out == text


@pytest.mark.parametrize(
    ("command", "line", "expected"),
    [("tokenize", "So (it is).\n", "So (⇹ it is ⇹) ⇹.\n"),
     ("detokenize", "So (⇹ it is ⇹) ⇹.\n", "So (it is).\n")],
)  # fmt: skip
def test_streaming(command: str, line: str, expected: str) -> None:
    """Every line comes out before the next one goes in."""
    with pipe(command, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        for _ in range(3):
            process.stdin.write(line.encode())
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 30)[0], "nothing comes"
            assert process.stdout.readline().decode() == expected
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_a_real_training_is_quiet_where_stderr_is_no_terminal(
    tiny_text: Path, tmp_path: Path
) -> None:
    """A whole process, torch's own warnings included; the only one that pays for the import."""
    arguments = ["train", str(tiny_text), "--out", str(tmp_path / "r"), "--steps", "3", *tiny()]
    with pipe(*arguments, "--json", stderr=subprocess.PIPE) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["steps"] == 3


@pytest.mark.slow
def test_a_budget_is_the_time_of_the_whole_command(
    tiny_text: Path, tmp_path: Path, start: Start
) -> None:
    command = ["train", tiny_text, *tiny("checkpoint_every=1000"), "--json"]
    result = json.loads(start(*command, "--out", tmp_path / "a", "--budget", "12s").wait().ok())
    assert 3 < result["seconds_in_all"] < 16, "on a machine that others use too"
    assert result["steps"] == result["plan"][-1][1] and math.isfinite(result["valid_bpc"])
    assert len(result["plan"]) > 3, "the first plan is corrected on the way"


def test_a_sample_can_be_drawn(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "text.svg"
    options = ["sample", "-m", tiny_run, "-n", 60, "--prompt", "The <wug>", "--plain", "--picture"]
    text = call(*options, out).ok()
    drawn = ElementTree.parse(out).getroot()
    space = "{http://www.w3.org/2000/svg}"
    lines = ["".join(row.itertext()) for row in drawn.iter(f"{space}text")]
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert {t.get("class") for t in drawn.iter(f"{space}tspan")} <= {"given", "novel", ""}
    call(*options, out).refused("there already", 1)
    call(*options, tmp_path / "text.png").refused(".svg", 2)


def test_an_empty_file_among_others_has_no_rows(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "text.txt").write_text("The wug ran.\n", encoding="utf-8")
    paths = [tmp_path / name for name in ("empty.txt", "text.txt", "empty.txt")]
    rows = call("score", "-m", tiny_run, *paths).ok().splitlines()
    alone = call("score", "-m", tiny_run, paths[1]).ok().splitlines()
    assert [row.rpartition("\t")[0] for row in rows[1:]] == alone[1:]
    assert call("score", "-m", tiny_run, paths[0]).ok().splitlines() == alone[:1]
