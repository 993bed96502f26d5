"""What fuzzing has found, tried again, and a little fuzzing of its own (see `fuzz_targets`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import fuzz_targets
from .conftest import call, tiny, tune
from .fuzz_targets import FILES, Target

CASES = sorted((Path(__file__).parent / "fuzz_cases").glob("*/*"))
NAMES = ("tokenizer", "lexicon", "run", "container")


@pytest.fixture(scope="module")
def targets(
    tiny_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Target]]:
    run = tmp_path_factory.mktemp("fuzz") / "run"
    settings = tiny("vocab_size=40")
    call("train", tiny_text, "--recipe", "mixed-small", "--steps", 3, *settings, "--out", run).ok()
    tune(run)
    with fuzz_targets.targets(run) as found:
        yield found


def test_there_is_a_target_for_each(targets: dict[str, Target]) -> None:
    assert tuple(targets) == NAMES
    assert {case.parent.name for case in CASES} <= set(NAMES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name[:16]}")
def test_what_was_found_is_withstood(case: Path, targets: dict[str, Target]) -> None:
    targets[case.parent.name](case.read_bytes())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes(name: str, data: st.DataObject, targets: dict[str, Target]) -> None:
    targets[name](data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("index", range(len(FILES)))
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"0", b"\xff" * 9, b"[" * 5000])
def test_a_file_of_a_run_that_is_something_else(
    index: int, content: bytes, targets: dict[str, Target]
) -> None:
    targets["run"](bytes([index, 0, 0, 0]) + content)
