"""`reproduce` on a tiny text: it divides its time, goes on where it stopped, and writes it down."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import spellonce
from spellonce.configuration import Recipe
from spellonce.errors import ConfigError
from spellonce.paper import running
from spellonce.paper.experiments import EXPERIMENTS, Wish
from spellonce.paper.running import plan
from spellonce.preparation import Length

from .conftest import call
from .test_golden import text


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = text().splitlines(keepends=True)
    for name in ("toy-de", "toy-fr"):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        for split, part in (
            ("train", lines[:300]),
            ("valid", lines[300:340]),
            ("test", lines[340:380]),
        ):
            (folder / f"{split}.txt").write_text("".join(part))
        (folder / "dataset.toml").write_text('articles = "line"\n')
    monkeypatch.setenv("SPELLONCE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reproduce(*arguments: object) -> str:
    return call("reproduce", *arguments).ok()


def test_a_table_of_two_systems_is_written_and_gone_on_with(data: Path) -> None:
    command = ["table1", "--dataset", "toy-de", "--steps", 2, "--out", "out"]
    out = reproduce(*command, "--systems", "full,pure-bpe")
    assert "2 trainings of 2 steps each" in out and "2 of 2: pure-bpe" in out
    table = Path("out/table1.md").read_text()
    assert "1.416" in table and "spellonce reproduce table1" in table
    for name in ("full", "pure-bpe"):
        result = json.loads(Path(f"out/runs/{name}/evaluations/test.json").read_text())["result"]
        assert f"{result['bpc']:.3f}" in table
    weights = Path("out/runs/full/model.safetensors")
    before = weights.stat().st_mtime_ns
    out = reproduce(*command, "--systems", "full,pure-bpe,1gram")
    assert weights.stat().st_mtime_ns == before, "what is finished is not trained again"
    assert "3 of 3: 1gram" in out and "1gram" in Path("out/table1.md").read_text()
    assert {p.suffix for p in Path("out").iterdir() if p.is_file()} == {
        ".md",
        ".csv",
        ".svg",
        ".png",
    }


def test_what_came_of_a_run_outlives_it(data: Path) -> None:
    command = ["table1", "--dataset", "toy-de", "--systems", "1gram", "--out", "out"]
    reproduce(*command, "--steps", 2)
    table = Path("out/table1.md").read_text()
    shutil.rmtree("out/runs")
    assert str(data) not in Path("out/outcomes/1gram.json").read_text(), "no paths of this machine"
    changed = Path("out/outcomes/1gram.json").read_text().replace('"reversible"', '"spaces"')
    assert "nothing is trained" in reproduce(*command, "--steps", 2)
    assert Path("out/table1.md").read_text() == table and not Path("out/runs").exists()
    reproduce(*command, "--steps", 3)
    assert Path("out/runs/1gram/result.json").is_file(), "another length is another run"
    for damage in ("{", changed):
        shutil.rmtree("out/runs")
        Path("out/outcomes/1gram.json").write_text(damage)
        reproduce(*command, "--steps", 2)
        assert Path("out/runs/1gram").exists(), "trained again"


def test_seeds_are_trained_apart_and_splits_kept_apart(data: Path) -> None:
    reproduce("table1", "--dataset", "toy-de", "--steps", 2, "--out", "out", "--systems",
              "full,1gram", "--seeds", 2)  # fmt: skip
    runs = sorted(path.name for path in Path("out/runs").iterdir())
    assert runs == ["1gram", "full", "full-seed1"]
    models = [Path(f"out/runs/{run}/model.safetensors").read_bytes() for run in runs]
    assert models[1] != models[2]
    rows = csv.DictReader(Path("out/table1.csv").read_text().splitlines())
    (row,) = (row for row in rows if row["system"] == "full")
    for split, column in (("valid", "dev"), ("test", "test")):
        stored = [
            json.loads(Path(f"out/runs/{run}/evaluations/{split}.json").read_text())["result"]
            for run in ("full", "full-seed1")
        ]
        mean = sum(result["bpc"] for result in stored) / 2
        assert float(row[column]) == pytest.approx(mean, abs=1e-6)


def test_runs_of_something_else_are_not_passed_off(data: Path) -> None:
    command = ["table1", "--systems", "1gram", "--out", "out"]
    reproduce(*command, "--dataset", "toy-de", "--steps", 1)
    for other, telling in (
        (["--dataset", "toy-fr", "--steps", 1], "another text"),
        (["--dataset", "toy-de", "--steps", 2], "another length (it began with --steps 1)"),
        (["--dataset", "toy-de", "--steps", 1, "--size", "paper"], "another recipe"),
    ):
        call("reproduce", *command, *other).refused(telling, 1)


def test_languages_are_read_in_two_ways(data: Path) -> None:
    out = reproduce(
        "mwc", "--dataset", "toy-de", "--dataset", "toy-fr", "--steps", 1, "--out", "out",
        "--systems", "1gram",
    )  # fmt: skip
    assert "4 of 4" in out
    configs = [json.loads(p.read_text()) for p in sorted(Path("out/runs").glob("*/config.json"))]
    assert sorted(c["text"]["tokenization"] for c in configs) == ["reversible"] * 2 + ["spaces"] * 2
    assert len({c["data"]["train_chars"] for c in configs}) == 1, "the same characters count"
    assert "toy-de" in Path("out/mwc.md").read_text()


def test_a_sweep_over_vocabularies(data: Path) -> None:
    reproduce("vocabulary", "--dataset", "toy-de", "--steps", 1, "--out", "out",
              "--vocabulary", "30,60", "--systems", "no-reg,pure-bpe")  # fmt: skip
    recipes = [json.loads(p.read_text())["recipe"] for p in Path("out/runs").glob("*/config.json")]
    assert sorted(r["data"]["vocab_size"] for r in recipes if r["system"] == "no-reg") == [30, 60]
    assert sorted(r["bpe"]["merges"] for r in recipes if r["system"] == "pure-bpe") == [30, 60]
    assert Path("out/vocabulary.svg").is_file()


def test_samples_and_ngrams(data: Path) -> None:
    reproduce("samples", "--dataset", "toy-de", "--steps", 2, "--vocabulary", "60", "--out", "out")
    samples = Path("out/samples.md").read_text()
    assert "temperature 0.75" in samples
    shutil.rmtree("out/runs")
    reproduce("samples", "--dataset", "toy-de", "--steps", 2, "--vocabulary", "60", "--out", "out")
    assert Path("out/samples.md").read_text() == samples, "drawn once, and kept"
    reproduce("types-tokens", "--dataset", "toy-de", "--out", "out")
    assert "among types" in Path("out/types-tokens.md").read_text()


def test_asides_have_a_line_each(data: Path) -> None:
    out = reproduce("asides", "--dataset", "toy-de", "--steps", 1, "--out", "out")
    assert "9 of 9: pure-bpe" in out
    report = Path("out/asides.md").read_text().replace("\\_", "_")
    for name in ("speller_norm=l2", "full-feedback", "full-transformer", "lexicon_types=hapax",
                 "vocab_size=1", "importance sampling"):  # fmt: skip
        assert name in report, name


def test_what_cannot_be_trained_does_not_stop_the_others(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = running.train

    def too_short(dataset: object, recipe: Recipe, *rest: Any, **more: Any) -> Any:
        if recipe.system == "full":
            raise ConfigError("a budget of 1 s is too short")
        return train(dataset, recipe, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "train", too_short)
    result = call("reproduce", "table1", "--dataset", "toy-de", "--steps", 1, "--out", "out",
                  "--systems", "full,1gram,uncond")  # fmt: skip
    assert result.code == 1
    assert result.err.startswith("spellonce: full could not be trained")
    assert "1 of 3: full cannot be trained: a budget of 1 s is too short" in result.out
    assert "3 of 3: uncond" in result.out and Path("out/table1.md").is_file()


def test_a_curve_over_minutes(data: Path) -> None:
    written = spellonce.reproduce(
        "minutes", "out", datasets=["toy-de"], minutes=[0.15, 0.2], systems=["1gram"]
    )
    assert Path("out/minutes.svg") in written
    rows = list(csv.DictReader(Path("out/minutes.csv").read_text().splitlines()))
    assert [(row["system"], row["minutes"]) for row in rows] == [
        ("1gram", "0.15"),
        ("1gram", "0.2"),
    ]


def test_what_learning_while_reading_is_worth(data: Path) -> None:
    command = ["adaptive", "--dataset", "toy-de", "--steps", 3, "--systems", "full", "--out", "out"]
    reproduce(*command)
    report = Path("out/adaptive.md").read_text().replace("\\_", "_")
    rows = list(csv.DictReader(Path("out/adaptive.csv").read_text().splitlines()))
    modes = ["static", "cache", "cache+dynamic"]
    assert [row["mode"] for row in rows] in (modes, modes[:2])
    assert float(rows[1]["test"]) < float(rows[0]["test"])
    assert float(rows[1]["test_gain"]) > 0 and "What `tune` tried" in report
    figures = re.findall(r"\((adaptive.*?svg)\)", report)
    assert all(Path(f"out/{name}").is_file() for name in figures)
    before = {path: path.read_bytes() for path in Path("out").glob("adaptive*")}
    shutil.rmtree("out/runs")
    assert "nothing is trained" in reproduce(*command)
    assert {path: path.read_bytes() for path in Path("out").glob("adaptive*")} == before


def test_runs_of_the_curve_over_minutes_do_for_learning_while_reading() -> None:
    for minutes, datasets in (((1.0, 2.5), ("x",)), ((1.0,), ("x", "y"))):
        adaptive = EXPERIMENTS["adaptive"](Wish(datasets=datasets, minutes=minutes))
        assert len({job.name for job in adaptive.jobs}) == 2
        wish = Wish(datasets=datasets, minutes=minutes, systems=("cpu",))
        assert adaptive.jobs == EXPERIMENTS["minutes"](wish).jobs


def test_wishes_are_had_once_and_fit_their_systems() -> None:
    wish = Wish(datasets=("x", "x"), sizes=(5, 5), minutes=(2.0, 2.0), systems=("full", "full"))
    assert (wish.datasets, wish.sizes, wish.minutes, wish.systems) == (
        ("x",),
        (5,),
        (2.0,),
        ("full",),
    )
    jobs = EXPERIMENTS["mwc"](
        Wish(size="paper", systems=("full", "no-reg", "pure-bpe", "hclm"))
    ).jobs
    settings = {job.system: job.settings[1:] for job in jobs}
    assert settings == {
        "full": ("vocab_size=60000", "lexicon_interval=100"), "no-reg": ("vocab_size=60000",),
        "pure-bpe": ("merges=60000",), "hclm": (),
    }  # fmt: skip


def test_how_the_time_is_divided() -> None:
    wish = Wish(datasets=("x",), budget=3600.0, seeds=3)
    experiment = EXPERIMENTS["table1"](wish)
    assert len(experiment.jobs) == 16 and len({job.name for job in experiment.jobs}) == 16
    assert [job.seed for job in experiment.jobs].count(0) == 10
    length = plan(experiment, wish)
    assert length is not None and length.budget == pytest.approx(3600 / 16 * 0.85)
    assert plan(experiment, Wish(each=60.0)) == Length(budget=60.0)
    assert plan(experiment, Wish()) is None
    assert "16 trainings of 3 min 11 s each" in running._division([length] * 16)
    two = [Length(budget=300.0), Length(budget=900.0)]
    assert "of 5 min or 15 min each" in running._division(two)
    assert "about 23 min 32 s in all" in running._division(two)
    with pytest.raises(ConfigError, match="one of"):
        Wish(budget=1.0, each=1.0)


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["table9", "--out", "out"], "unknown experiment 'table9': there are table1", 2),
        (["table1"], "where to?", 2),
        (["table1", "--out", "out", "--systems", "ful"], "did you mean full", 2),
        (["table1", "--out", "out", "--size", "huge"], "--size must be small or paper", 2),
        (["vocabulary", "--out", "out", "--vocabulary", "many"], "'many' is not a whole number", 2),
        (["table1", "--out", "out", "--dataset", "nowhere"], "no data set 'nowhere'", 1),
        (["table1", "--out", "out", "--budget", "soon"], "not a length of time", 2),
        (["vocabulary", "--out", "out", "--systems", "hclm"], "hclm has no vocabulary", 2),
        (["samples", "--out", "out", "--systems", "full"], "samples has no use for --systems", 2),
        (["types-tokens", "--out", "out", "--each", "1m"], "has no use for --each", 2),
        (["table1", "--out", "out", "--dataset", "a", "--dataset", "b"], "about one data set", 2),
        (["mwc", "--out", "out", "--vocabulary", "5,6"], "one size of the vocabulary", 2),
        (["adaptive", "--out", "out", "--systems", "pure-bpe"], "cannot learn while it reads", 2),
        (["adaptive", "--out", "out", "--budget", "1h"], "has no use for --budget", 2),
        (["adaptive", "--out", "out", "--each", "1m", "--minutes", "1"], "give one of", 2),
        (["minutes", "--out", "out", "--each", "1m"], "has no use for --each", 2),
        (["minutes", "--out", "out", "--minutes", "0"], "--minutes are above 0", 2),
        (["asides", "--out", "out", "--systems", "1gram"], "no aside is about 1gram", 2),
    ],
)
def test_wrong_wishes(data: Path, arguments: list[str], message: str, code: int) -> None:
    call("reproduce", *arguments).refused(message, code)
    assert not Path("out").exists()
