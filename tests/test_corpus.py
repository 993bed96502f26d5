"""Data sets, the lexicon and the encoding, against plain-Python recounts."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spellonce import census, corpus, encoding, lexicon, numbering
from spellonce.errors import DataError, RunError
from spellonce.lexicon import Alphabet, Spellings
from spellonce.text import EOS, TextFormat, training_tokens

TEXT = "the cat saw the dog .\n\na ĳ dog saw <unk> ĳsland ◇ the\nend"
SPACES = TextFormat("spaces", unk="<unk>")


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def encode(tmp_path: Path, text: str = TEXT, **settings: int | None) -> encoding.Encoded:
    source = corpus.open_text(write(tmp_path / "t.txt", text))
    return encoding.encode(source, SPACES, tmp_path / "ids", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("vocab_size", [None, 0, 1, 2, 5, 1000])
def test_ids_spell_the_text_again(tmp_path: Path, vocab_size: int | None) -> None:
    encoded = encode(tmp_path, vocab_size=vocab_size, min_char_count=2)
    types = encoded.lexicon.types
    words = [types[i] for i in encoding.open_ids(tmp_path / "ids")]
    alphabet = encoded.lexicon.alphabet
    raw = TEXT.replace("<unk>", "").replace("\n", " \n ").split(" ")
    expected = [EOS if w == EOS else alphabet.replace(w) for w in raw]
    # split(" ") leaves an empty string for <unk>, and two around the empty line
    assert words == [w for i, w in enumerate(expected) if w or raw[i - 1] == "saw"]
    n_words = len(types) - 2
    wanted = n_words if vocab_size is None else min(n_words, max(vocab_size - 1, 0))
    assert encoded.lexicon.n_lexemes == 2 + wanted
    counts = Counter(words)
    assert encoded.lexicon.counts.tolist() == [counts[t] for t in types]
    assert sorted(encoded.lexicon.counts[2:], reverse=True) == list(encoded.lexicon.counts[2:])


@pytest.mark.parametrize(("min_count", "lexemes"), [(1, 9), (2, 4), (3, 3), (9, 2)])
def test_rare_types_may_be_novel(tmp_path: Path, min_count: int, lexemes: int) -> None:
    encoded = encode(tmp_path, "a b a c a b\nd e f g\n", min_count=min_count, min_char_count=1)
    assert encoded.lexicon.n_lexemes == lexemes and len(encoded.lexicon.types) == 9


def test_counts_of_the_original_text(tmp_path: Path) -> None:
    encoded = encode(tmp_path)
    assert encoded.n_chars == len(TEXT) and encoded.n_bytes == len(TEXT.encode())
    assert encoded.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()


def test_rare_characters_become_other(tmp_path: Path) -> None:
    text = "x" * 25 + " " + "y" * 24 + " ◇" * 30 + "\n"
    encoded = encode(tmp_path, text)
    assert encoded.lexicon.alphabet.chars == ("x",), "a literal ◇ is never in the alphabet"
    assert encoded.n_other == 24 + 30
    assert "◇" * 24 in encoded.lexicon.types


def test_types_that_become_equal_are_one_type(tmp_path: Path) -> None:
    encoded = encode(tmp_path, "aé aè aé b a a\n", min_char_count=3)
    assert encoded.lexicon.types[2:] == ("a◇", "a", "◇")
    assert encoded.lexicon.counts[2:].tolist() == [3, 2, 1]


def test_encoding_flushes_in_blocks(tmp_path: Path) -> None:
    text = "a b c d\n" * 70_000
    encoded = encode(tmp_path, text)
    ids = encoding.open_ids(tmp_path / "ids")
    assert encoded.n_tokens == len(ids) == 350_000
    assert np.bincount(ids).tolist() == [0, *[70_000] * 5]


WHITE = st.lists(st.sampled_from([
    "ab", "à", "(", ",⇹", "\u0301", "<unk>", " ", "\n", "\t", "\xa0", "\u2003", "\x85", "\0",
    "eight888", "fifteen15151515", "sixteen161616161", "seventeen17171717",
]))  # fmt: skip


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("fmt", [SPACES, TextFormat(), TextFormat(unk="<unk>")], ids=str)
@given(blocks=st.lists(st.one_of(WHITE.map("".join), TEXTS), max_size=3))
def test_any_blocks_are_numbered_as_their_tokens(fmt: TextFormat, blocks: list[str]) -> None:
    for remembered, slots in ((1 << 20, 20), (1 << 20, 1), (5, 3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numbering, "_REMEMBERED", remembered)
            patch.setattr(numbering, "_SLOTS", slots)
            reader = numbering.Numbering(fmt)
            types: list[str] = []
            for block in blocks:
                new, ids = reader.read(block.encode())
                types += new
                assert [types[i] for i in ids] == training_tokens(block, fmt)
            assert len(types) == len(set(types))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("fmt", [SPACES, TextFormat(), TextFormat(unk="<unk>")], ids=str)
def test_encoding_in_blocks_on_several_cores_is_encoding_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, fmt: TextFormat
) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes("".join(f"wug {i} (né, <unk>-ed)\n \n" for i in range(40)).encode())
    other.write_bytes("\n\nthe end; tschüß ".encode() * 9)
    source = corpus.Source(tuple(corpus.Segment(p, 0, p.stat().st_size) for p in (path, other)))
    at_once = encoding.encode(source, fmt, tmp_path / "at_once", min_char_count=3)
    monkeypatch.setattr(corpus, "BLOCK", 50)
    monkeypatch.setattr(encoding, "BLOCK", 48)
    monkeypatch.setattr(census, "BLOCK", 48)
    assert len(list(source.blocks())) > 20
    seen: list[int] = []
    blocks = encoding.encode(
        source, fmt, tmp_path / "blocks", min_char_count=3, processes=processes,
        progress=seen.append,
    )  # fmt: skip
    assert (tmp_path / "blocks").read_bytes() == (tmp_path / "at_once").read_bytes()
    assert blocks.lexicon.types == at_once.lexicon.types
    assert blocks.lexicon.counts.tolist() == at_once.lexicon.counts.tolist()
    assert blocks.lexicon.counts.sum() == blocks.n_tokens == at_once.n_tokens
    for name in ("n_chars", "n_bytes", "n_other", "n_spelled", "sha256"):
        assert getattr(blocks, name) == getattr(at_once, name), name
    assert "".join(source.lines()) == path.read_text() + other.read_text()
    assert seen == sorted(seen) and seen[-1] == source.n_bytes()


@given(
    lines=st.lists(st.lists(st.sampled_from("abcdefghijklmn"), max_size=12), min_size=1),
    most=st.integers(4, 12),
    block=st.integers(1, 40),
)
def test_of_too_many_types_the_rare_are_dropped_within_the_bound(
    lines: list[list[str]], most: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("census")
    text = "a\n" + "".join(" ".join(line) + "\n" for line in lines)
    (folder / "text").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK", block)
        patch.setattr(census, "BLOCK", 8)
        encoded = encoding.encode(
            corpus.open_text(folder / "text"), SPACES, folder / "ids", min_char_count=1,
            most_types=most,
        )  # fmt: skip
    truth = Counter(training_tokens(text, SPACES))
    found = dict(zip(encoded.lexicon.types, encoded.lexicon.counts.tolist(), strict=True))
    n_lost = found.pop("")
    assert all(found[word] <= truth[word] <= found[word] + encoded.missed for word in found)
    assert all(word in found for word, n in truth.items() if n > encoded.missed)
    assert sum(found.values()) + n_lost == encoded.n_tokens == truth.total()
    assert found[EOS] == truth[EOS]
    assert set(encoded.lexicon.alphabet.chars) == set(text) - set(" \n")
    ids = np.fromfile(folder / "ids", "<i4")
    tokens = training_tokens(text, SPACES)
    for token, type_id in zip(tokens, ids.tolist(), strict=True):
        assert encoded.lexicon.types[type_id] in (token, "")
    assert Counter(ids.tolist()) == Counter(
        {i: n for i, n in enumerate(encoded.lexicon.counts.tolist()) if n}
    )
    assert {path.name for path in folder.iterdir()} == {"text", "ids"}
    if len(truth) < most - 1:
        assert encoded.missed == n_lost == 0


def test_types_are_dropped_on_several_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"often word{i} and word{i // 2}\n" for i in range(3000))
    (tmp_path / "text").write_text(text)
    monkeypatch.setattr(corpus, "BLOCK", 1000)
    monkeypatch.setattr(encoding, "BLOCK", 1000)
    encoded = encoding.encode(
        corpus.open_text(tmp_path / "text"), SPACES, tmp_path / "ids", most_types=500, processes=2
    )
    found = dict(zip(encoded.lexicon.types, encoded.lexicon.counts.tolist(), strict=True))
    assert (found["often"], found["and"], found[EOS]) == (3000, 3000, 3000)
    assert encoded.missed >= 1 and 3 < len(found) < 3000 and found[""] > 0
    tokens = training_tokens(text, SPACES)
    ids = np.fromfile(tmp_path / "ids", "<i4").tolist()
    assert all(
        encoded.lexicon.types[i] in (token, "") for token, i in zip(tokens, ids, strict=True)
    )


@given(words=st.lists(st.text(min_size=1, max_size=5).filter(lambda w: "\n" not in w), max_size=20))
def test_any_lexicon_survives_its_file(words: list[str]) -> None:
    built = lexicon.build(Counter([*words, EOS, ""]), vocab_size=5, min_char_count=1).lexicon
    again = lexicon.from_tsv(lexicon.to_tsv(built))
    assert again.types == built.types and again.n_lexemes == built.n_lexemes
    assert again.counts.tolist() == built.counts.tolist()
    assert again.alphabet.chars == built.alphabet.chars
    assert "\n" not in lexicon.escape("".join(words)) and "\t" not in lexicon.escape("a\tb")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id\tcount\trole\tspelling\n0\t1\tlexeme\tx\n",
        "x\ty\n",
        "id\tcount\trole\tspelling\n1\n",
    ],
)
def test_what_is_no_lexicon_is_refused(text: str) -> None:
    with pytest.raises(RunError):
        lexicon.from_tsv(text)


def test_strict_bits_of_a_replaced_character() -> None:
    alphabet = Alphabet("abc")
    assert alphabet.other_nats == pytest.approx(np.log(1_112_064 - 3))


def test_a_lexeme_is_known_and_a_novel_type_has_its_count(tmp_path: Path) -> None:
    built = encode(tmp_path, vocab_size=3, min_char_count=1).lexicon
    ids, counts = built.encode(["the", "cat", "zzz", EOS, "<unk>"])
    assert (ids > 0).tolist() == [True, False, False, True, False]
    assert counts.tolist() == [3, 1, 0, 3, 0]


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=6), st.data())
def test_taking_spellings(words: list[str], data: st.DataObject) -> None:
    alphabet = Alphabet("ab")
    rows = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=8))
    limit = data.draw(st.none() | st.integers(0, 4))
    taken = Spellings.of(alphabet, words).take(np.array(rows, dtype=np.int64), limit)
    assert [alphabet.decode(taken[i]) for i in range(len(taken))] == [
        words[r][:limit] for r in rows
    ]


# --- data sets ---------------------------------------------------------------------------------


def test_a_folder_is_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in corpus.SPLITS:
        write(folder / f"{name}.txt", f"{name} text\n")
    write(folder / "dataset.toml", 'tokenization = "spaces"\nunk = "<unk>"\n')
    monkeypatch.setenv("SPELLONCE_DATA", str(tmp_path))
    dataset = corpus.find_dataset("mine")
    assert dataset.format == TextFormat("spaces", unk="<unk>")
    assert list(dataset.split("test").lines()) == ["test text\n"]
    assert corpus.open_files([folder]).splits.keys() == dataset.splits.keys()


def test_the_cache_folder_comes_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPELLONCE_DATA", str(tmp_path))
    assert corpus.data_folders()[0] == tmp_path and len(corpus.data_folders()) == 2
    with pytest.raises(DataError, match="SPELLONCE_DATA"):
        corpus.find_dataset("nowhere")


@given(text=st.text(st.sampled_from(list("ab é\n𝔘")), min_size=80, max_size=400))
def test_a_split_file_is_all_of_the_file(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("split") / "t.txt", text)
    dataset = corpus.open_files([path])
    parts = ["".join(dataset.splits[name].lines()) for name in corpus.SPLITS]
    assert "".join(parts) == text
    assert len(parts[0].encode()) >= 0.85 * len(text.encode())
    assert parts[1]


def test_files_are_split_at_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "some words in a line\n" * 1000)
    dataset = corpus.open_files([path])
    sizes = [len(list(dataset.splits[name].lines())) for name in corpus.SPLITS]
    assert sum(sizes) == 1000 and sizes[1] in (50, 51) and sizes[2] in (49, 50)


def test_several_files_are_joined_by_a_line_break(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.txt", f"text number {i} " * 40) for i in range(3)]
    lines = list(corpus.open_files(paths).split("train").lines())
    assert [line.endswith("\n") for line in lines] == [True, True, False]
    assert [f"number {i}" in line for i, line in enumerate(lines)] == [True] * 3


def test_a_folder_of_texts_is_all_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "more").mkdir(parents=True)
    for name in ("b", "a", "more/c"):
        write(folder / f"{name}.txt", f"the text of {name} " * 40)
    write(folder / "empty.txt", "")
    write(folder / "notes.md", "none of it")
    write(folder / "dataset.toml", 'articles = "line"\n')
    dataset = corpus.open_files([folder])
    assert dataset.name == "mine" and dataset.format == TextFormat(articles="line")
    lines = list(dataset.split("train").lines())
    names = ("a", "b", "more/c")
    assert all(f"of {name}" in line for name, line in zip(names, lines, strict=True))
    for path in (tmp_path, folder / "more"):
        (path / "nothing").mkdir()
        with pytest.raises(DataError, match="neither"):
            corpus.open_files([path / "nothing"])
    with pytest.raises(DataError, match="is a folder"):
        corpus.open_files([folder, folder / "a.txt"])


@pytest.mark.parametrize("settings", ['tokenisation = "x"', "articles = [", 'articles = "page"'])
def test_a_bad_dataset_toml_is_refused(tmp_path: Path, settings: str) -> None:
    for name in ("train", "valid"):
        write(tmp_path / f"{name}.txt", "x\n")
    write(tmp_path / "dataset.toml", settings)
    with pytest.raises(Exception, match=r"dataset\.toml|articles"):
        corpus.open_folder(tmp_path)
