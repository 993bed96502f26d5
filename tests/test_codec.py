"""Compression: any bytes come back, text takes the bits that were announced, and what is damaged,
cut short or somebody else's is refused."""

from __future__ import annotations

import io
import json
import lzma
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spellonce import codec, coding
from spellonce.adaptive import Learning
from spellonce.cache import Memory
from spellonce.coding import BitReader, BitWriter, CodecError, GapCoder, Others, TextCoder, varint
from spellonce.lexicon import Alphabet
from spellonce.loading import load
from spellonce.model import Model
from spellonce.text import LayoutCode, TextFormat, split_lines

from .conftest import call, make_text, tiny, tune

MODES = {
    "static": Learning(),
    "cache": Learning(cache=True),
    "both": Learning(cache=True, dynamic=True),
}


@pytest.fixture(scope="module")
def tuned(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("codec") / "run"
    call("train", tiny_text, "--recipe", "mixed-small", "--out", run, "--steps", 30, *tiny()).ok()
    tune(run)
    return run


@pytest.fixture(scope="module")
def model(tuned: Path) -> Model:
    return load(tuned)


def packed(model: Model, data: bytes, learning: Learning | None = None) -> bytes:
    out = io.BytesIO()
    codec.compress(model, io.BytesIO(data), out, learning)
    return out.getvalue()


def unpacked(model: Model, data: bytes) -> bytes:
    out = io.BytesIO()
    codec.decompress(model, io.BytesIO(data), out)
    return out.getvalue()


lines = st.text("ab bakelo .,\n\t(é☃\U0001f600", max_size=60).map(str.encode)
anything = st.one_of(lines, st.binary(max_size=80), st.text(max_size=60).map(
    lambda s: s.encode("utf-8", "surrogatepass"))
)  # fmt: skip


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.lists(anything, max_size=3).map(b"".join), mode=st.sampled_from(sorted(MODES)))
def test_any_bytes_come_back(model: Model, data: bytes, mode: str) -> None:
    assert unpacked(model, packed(model, data, MODES[mode])) == data


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.lists(lines, max_size=3).map(b"".join))
def test_spaces_come_back(model: Model, data: bytes) -> None:
    """Where tokens are split at spaces, all other white space is coded beside them."""
    text = data.decode()
    spaced = TextCoder(model.stepper(), TextFormat("spaces"))
    payload = spaced.encode(text)
    if payload is not None:
        again = TextCoder(model.stepper(), TextFormat("spaces"))
        assert again.decode(payload, len(text.encode())) == text


@pytest.mark.parametrize("mode", MODES)
def test_text_takes_the_bits_that_were_announced(model: Model, mode: str) -> None:
    text = make_text(60, seed=5) + "The zibbled wug, naïve: 7☃!\n"
    announced = model.evaluate(split_lines(text), learning=MODES[mode])["bits_strict"]
    payload = TextCoder(model.stepper(MODES[mode]), model.format).encode(text)
    assert payload is not None
    assert 8 * len(payload) == pytest.approx(announced, abs=0.002 * announced + 64)
    again = TextCoder(model.stepper(MODES[mode]), model.format)
    assert again.decode(payload, len(text.encode())) == text
    data = packed(model, text.encode(), MODES[mode])
    assert len(data) <= len(payload) + 160, "all that is around it"
    assert unpacked(model, data) == text.encode()


def test_long_and_mixed_files(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BLOCK", 700)
    text = make_text(30, seed=6).encode()
    data = text + bytes(range(256)) * 4 + text + b"x" * 3000 + "é".encode() * 900 + text
    assert unpacked(model, packed(model, data)) == data
    many = text * 4
    assert len(packed(model, many)) < 0.5 * len(many)


def test_blocks_of_a_model_with_a_cache_and_an_odd_width(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sums depend on where in memory their terms are, these must be in the same place."""
    run = tmp_path / "run"
    settings = tiny("n_embed=10")
    call("train", tiny_text, "--recipe", "small", "--out", run, "--steps", 20, *settings).ok()
    tune(run)
    kept = json.loads((run / "adaptive.json").read_text())
    kept["cache"]["window"] = 201
    (run / "adaptive.json").write_text(json.dumps(kept))
    monkeypatch.setattr(codec, "BLOCK", 1500)
    data = make_text(400, seed=9).encode() + b"\xff" * 2000 + make_text(100, seed=10).encode()
    places: list[tuple[int, int]] = []
    looked = Memory.distribution

    def noted(self: Memory, state: torch.Tensor) -> Any:
        places.append((self._begin, self._end))
        return looked(self, state)

    monkeypatch.setattr(Memory, "distribution", noted)
    model = load(run)
    container = packed(model, data, MODES["cache"])
    coded = places.copy()
    places.clear()
    assert unpacked(model, container) == data
    assert len(set(coded)) > 300 and places == coded[: len(places)] != []


def test_the_number_of_threads_does_not_matter(model: Model) -> None:
    data = make_text(20, seed=7).encode()
    before = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(packed(model, data, Learning(cache=True, dynamic=True)))
            assert torch.get_num_threads() == n
        torch.set_num_threads(2)
        assert unpacked(model, found[0]) == data
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


# --- what is refused ----------------------------------------------------------------------------


def test_what_is_cut_short_or_changed_is_refused(model: Model) -> None:
    data = packed(model, make_text(10, seed=8).encode())
    for end in range(0, len(data), 7):
        with pytest.raises(CodecError):
            unpacked(model, data[:end])
    for place in range(0, len(data), 5):
        changed = bytearray(data)
        changed[place] ^= 0x41
        with pytest.raises(CodecError):
            unpacked(model, bytes(changed))
    with pytest.raises(CodecError, match="follows its end"):
        unpacked(model, data + b"!")


def test_another_model_is_refused(
    model: Model, tiny_run: Path, tuned: Path, tmp_path: Path
) -> None:
    data = packed(model, b"the ba lo\n", Learning(cache=True))
    with pytest.raises(CodecError, match="another model"):
        unpacked(load(tiny_run), packed(model, b"the ba lo\n"))
    other = tmp_path / "other"
    shutil.copytree(tuned, other)
    kept = json.loads((other / "adaptive.json").read_text())
    kept["cache"]["window"] += 1
    (other / "adaptive.json").write_text(json.dumps(kept))
    with pytest.raises(CodecError, match="tuned otherwise"):
        unpacked(load(other), data)


def test_other_arithmetic_is_noticed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that computes otherwise gives no wrong file, and says who made it."""
    data = packed(model, make_text(5, seed=9).encode())
    plain = coding._categorical

    def a_little_different(p: Any) -> Any:
        return plain(p + 1e-3 * p.max())

    monkeypatch.setattr(coding, "_categorical", a_little_different)
    monkeypatch.setattr(codec, "_made_by", lambda: "another machine")
    with pytest.raises(CodecError, match=r"it was made with .* and this is another machine"):
        unpacked(model, data)


def test_hostile_containers_are_refused(model: Model) -> None:
    """Checksums hold, and what is inside is absurd."""
    whole = packed(model, b"")
    head = whole[: whole.index(bytes([codec._END]), -13)]
    assert head + whole[len(head) :] == whole

    def with_block(kind: int, n: int, payload: bytes) -> bytes:
        block = bytes([kind]) + varint(n) + varint(len(payload)) + payload
        return head + block + codec._crc(block)

    bomb = lzma.compress(bytes(1 << 22), **codec._LZMA_FORMAT)
    noise = bytes(range(256)) * 8
    for made in (
        with_block(codec._LZMA, 10, bomb),
        with_block(7, 4, b"abcd"),
        with_block(codec._MODELLED, 1 << 40, b""),
        with_block(codec._MODELLED, 1000, varint(500) + varint(0)),
        with_block(codec._MODELLED, 1000, varint(1 << 50) + varint(0) + noise),
        with_block(codec._MODELLED, 1000, varint(500) + varint(0) + noise),
        with_block(codec._MODELLED, 1000, b""),
        with_block(codec._STORED, 3, b"abcd"),
    ):
        with pytest.raises(CodecError):
            unpacked(model, made)


def test_a_long_word_is_cut_out_of_its_text(model: Model) -> None:
    text = make_text(40, seed=11).encode()
    data = text + b"a" * 5000 + b"\n" + text
    for tokenization in ("reversible", "spaces"):
        parts = list(codec._parts(data, partial(codec._is_text, tokenization)))
        assert b"".join(parts) == data and [part == text for part in parts] == [True, False, True]
    address = text + b"x-" * 900 + b"\n" + text
    is_text = partial(codec._is_text, "spaces")
    assert len(list(codec._parts(address, is_text))) == 3, "there it is one word"
    assert len(list(codec._parts(address, partial(codec._is_text, "reversible")))) == 1
    assert unpacked(model, packed(model, data)) == data


# --- parts --------------------------------------------------------------------------------------


@given(char=st.characters(exclude_categories=["Cs"]))
def test_other_characters_are_numbered(char: str) -> None:
    alphabet = Alphabet("abcé\U0001f600")
    others = Others(alphabet)
    if char not in alphabet.chars:
        assert 0 <= others.number(char) < others.n
        assert others.char(others.number(char)) == char


def test_the_last_other_character_is_the_last() -> None:
    others = Others(Alphabet("ab"))
    assert others.number("\U0010ffff") == others.n - 1 == 1_112_061


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["before", "between"]), st.integers(0, 40)), max_size=40))
def test_gaps_cost_what_the_layout_code_says(gaps: list[tuple[str, int]]) -> None:
    writer, code, coder = BitWriter(), LayoutCode(), GapCoder()
    nats = 0.0
    for place, extra in gaps:
        coder.gap(writer, place, extra)
        nats += code.nats(place, extra)
    reader, again = BitReader(writer.bytes()), GapCoder()
    assert [again.gap(reader, place, None) for place, _ in gaps] == [extra for _, extra in gaps]
    assert 8 * len(writer.bytes()) <= nats / math.log(2) * 1.1 + 2 * len(gaps) + 64


# --- the command line ---------------------------------------------------------------------------


def test_files_are_compressed_and_come_back(tuned: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(make_text(25, seed=10))
    small, back = tmp_path / "text.sp", tmp_path / "back.txt"
    told = call("compress", "-m", tuned, "--cache", text, small).ok()
    assert f"{text.stat().st_size:,} bytes became {small.stat().st_size:,}" in told
    call("decompress", "-m", tuned, small, back).ok()
    assert back.read_bytes() == text.read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"text.txt", "text.sp", "back.txt"}
    call("compress", "-m", tuned, text, small).refused("there already", 1)
    call("decompress", "-m", tuned, small, back).refused("there already", 1)
    call("decompress", "-m", tuned, text, tmp_path / "x").refused("no file that", 1)
    call("compress", "-m", tuned, tmp_path / "none", tmp_path / "x").refused("cannot read", 1)
    call("compress", "-m", tuned, text, tmp_path / "no" / "x").refused("no such file", 1)
    small.write_bytes(small.read_bytes()[:-9])
    call("decompress", "-m", tuned, small, tmp_path / "x").refused("cut short", 1)
    assert not (tmp_path / "x").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"text.txt", "text.sp", "back.txt"}


def test_compression_is_verified(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the ba ke lo\n")
    plain = BitReader.choose

    def wrong(self: BitReader, p: Any, chosen: int | None) -> int:
        return min(plain(self, p, chosen) + 1, len(p) - 1)

    monkeypatch.setattr(BitReader, "choose", wrong)
    result = call("compress", "-m", tuned, text, tmp_path / "out")
    result.refused("", 1)
    assert not (tmp_path / "out").exists()
    call("compress", "-m", tuned, "--no-verify", text, tmp_path / "out").ok()


def test_systems_without_two_levels_are_refused(tiny_text: Path, tmp_path: Path) -> None:
    run = tmp_path / "char"
    call("train", tiny_text, "--recipe", "pure-char-small", "--out", run, "--steps", 1, "--set",
         "n_embed=8", "--set", "lm.n_hidden=8", "--set", "min_char_count=1").ok()  # fmt: skip
    call("compress", "-m", run, tiny_text, tmp_path / "x").refused("two-level", 2)
