"""Models as the Hugging Face Hub has them, in a local folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spellonce
from spellonce import hub, small_weights
from spellonce.errors import RunError
from spellonce.runs import RunFolder

from .conftest import call


def test_a_model_is_saved_and_comes_back(tiny_run: Path, tmp_path: Path) -> None:
    model = spellonce.load(tiny_run)
    target = tmp_path / "saved"
    assert model.save_pretrained(target) is None
    names = {path.name for path in target.iterdir()}
    assert {"config.json", "model.safetensors", "lexicon.tsv", "README.md"} <= names
    assert not names & {"checkpoint", "data", "lock", "plan.json"}
    again = spellonce.Model.from_pretrained(target)
    text = "The ba ke lo.\n"
    np.testing.assert_array_equal(again.score(text).nats, model.score(text).nats)
    card = (target / "README.md").read_text()
    assert (
        "full-small" in card and "library_name: spellonce" in card and "bits per character" in card
    )
    call("score", "-m", target, stdin=text.encode()).ok()
    with pytest.raises(RunError, match="the run itself"):
        model.save_pretrained(tiny_run)
    assert (tiny_run / "config.json").is_file()


def test_nothing_is_lost_where_a_model_is_saved(tiny_run: Path, tmp_path: Path) -> None:
    model = spellonce.load(tiny_run)
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("my own")
    with pytest.raises(RunError, match="that `save` did not write"):
        model.save_pretrained(project)
    assert (project / "README.md").read_text() == "my own"
    other = Path(shutil.copytree(tiny_run, tmp_path / "other"))
    with pytest.raises(RunError, match="that `save` did not write"):
        model.save_pretrained(other)
    assert (other / "model.safetensors").is_file()
    model.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")  # of its own kind: again
    before = {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir() if p.is_file()}
    (other / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="damaged"):
        hub.save(RunFolder(other), tmp_path / "saved")
    after = {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir() if p.is_file()}
    assert after == before


def test_a_small_copy_is_nearly_the_same(tiny_run: Path, tmp_path: Path) -> None:
    hub.pack(RunFolder(tiny_run), tmp_path / "small", small=True, dynamic=False)
    sizes = [(run / "model.safetensors").stat().st_size for run in (tiny_run, tmp_path / "small")]
    assert sizes[1] < 0.4 * sizes[0]
    text = "The ba ke lo.\n"
    a, b = (spellonce.load(run).score(text).nats for run in (tiny_run, tmp_path / "small"))
    assert (a != b).any()
    np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02)


@given(
    st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32, allow_subnormal=False), min_size=3, max_size=3),
        min_size=1,
    )
)
def test_small_weights_are_within_half_a_scale(rows: list[list[float]]) -> None:
    weights = {"m": torch.tensor(rows), "v": torch.ones(3), "odd.scale.int8": torch.ones(2)}
    again = small_weights.whole(small_weights.shrunk(weights))
    assert again.keys() == weights.keys()
    largest = weights["m"].abs().amax(1, keepdim=True)
    assert bool(((again["m"] - weights["m"]).abs() <= largest / 253 + 1e-12).all())


def test_a_name_that_is_no_folder_is_asked_of_the_hub(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, **options: object) -> str:
        asked.append((name, options["allow_patterns"]))
        return str(tiny_run)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr(hub.Pretrained, "from_pretrained", classmethod(_without_config))
    assert spellonce.load("me/model").lexicon.types == spellonce.load(tiny_run).lexicon.types
    assert asked == [("me/model", list(hub.FILES))]


def _without_config(cls: type[hub.Pretrained], name: str) -> hub.Pretrained:
    """What the mixin does once it has looked for a config, which needs a network."""
    return cls._from_pretrained(
        model_id=name, revision=None, cache_dir=None, force_download=False, local_files_only=False,
        token=None,
    )  # fmt: skip


def test_without_a_network_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route to the Hub\nand more")

    monkeypatch.setattr(hub.Pretrained, "from_pretrained", refuse)
    call("score", "-m", "me/model", stdin=b"a\n").refused("no route to the hub", 1)
    call("score", "-m", "runs/none/x", stdin=b"a\n").refused("there is no run runs/none/x", 1)
