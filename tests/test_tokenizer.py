"""The tokenizer against slow transcriptions of the paper's rule and ours, and against itself."""

import re
import sys
import unicodedata

import pytest
from hypothesis import example, find, given, settings
from hypothesis import strategies as st

from spellonce import tokenizer
from spellonce.tokenizer import (
    MERGE,
    detokenize,
    detokenize_stream,
    is_weird,
    pieces,
    tokenize,
    tokenize_line,
    tokenize_stream,
)

MEGA = 1_000_000

any_text = st.text(alphabet=st.characters(exclude_categories=()))  # lone surrogates too
NASTY = "⇹⇹⇹  \n\n\t\r\v\x1c\x85\xa0\u2028\u3000\0019DFx(),._-“€😀aé\u0301\u0903字𐨁𝒳\ud800\udc80"
nasty_text = st.text(alphabet=st.sampled_from(NASTY), max_size=40)
# What tokens are made of, and what looks like a token but is literal.
TOKENS = ", ⇹, ,⇹ ⇹,⇹ ⇹9 ⇹⇹9 ⇹9⇹ ⇹⇹20x3⇹ ⇹20x1000 ⇹21F9 x2 a ⇹😀 _⇹ ⇹_"
LITERALS = (
    "⇹ ⇹⇹ ⇹⇹⇹ ⇹a a⇹ ⇹é⇹ ⇹\u0301 ⇹𐨁 ⇹,, ⇹,⇹⇹ ⇹⇹, ⇹9⇹⇹ ⇹⇹⇹9 ⇹9x ⇹9x0 ⇹9x1 ⇹9x02 ⇹x2 ⇹09 ⇹21f9 "
    "⇹20X2 ⇹A ⇹Ax2 ⇹41 ⇹D800 ⇹110000 ⇹9x1001 ⇹9x9999999999 ⇹9, ⇹٩ ⇹9x٢ ⇹\t ⇹,\t"
)
token_like = st.lists(
    st.sampled_from(
        [*TOKENS.split(" "), *LITERALS.split(" "), "", " ", "  ", "\n", "\t", " \n", "\n "]
    ),
    max_size=12,
)
token_like_text = token_like.map("".join) | token_like.map(" ".join)
all_text = any_text | nasty_text | token_like_text
# Where the paper's procedure can be undone: no ⇹, and single spaces between two non-spaces.
plain_text = st.lists(
    st.text(
        alphabet=st.sampled_from("ab7é字\u0301(),.-_“€😀𝒳")
        | st.characters(exclude_categories=()).filter(lambda c: c != MERGE and not c.isspace()),
        min_size=1,
        max_size=6,
    )
    | st.just("\n"),
    max_size=12,
).map(lambda words: " ".join(words).replace(" \n", "\n").replace("\n ", "\n"))


def many(test):
    return settings(max_examples=400, deadline=None)(test)


# The references. A symbol is a kind and what is written for it.


def kind(char):
    if char.isspace():
        return "space"
    return "word" if unicodedata.category(char)[0] in "LMN" else "weird"


def merge(symbols):
    """The paper's procedure, symbol by symbol."""
    out = ""
    for i, (this, written) in enumerate(symbols):
        left = symbols[i - 1][0] if i > 0 else this
        right = symbols[i + 1][0] if i + 1 < len(symbols) else this
        if this == "weird" and left != "space":
            out += " ⇹"
        out += written
        if this == "weird" and right != "space" and right != "weird":
            out += "⇹ "
    return out


def paper_tokenize(text):
    return merge([(kind(char), char) for char in text])


def slow_tokenize(text):
    """Our rule, line by line and white space by white space."""
    symbols = []
    for number, line in enumerate(text.split("\n")):
        if number:
            symbols.append(("space", "\n"))
        i = 0
        while i < len(line):
            end = i + 1
            if line[i].isspace():
                while end < len(line) and line[end].isspace():
                    end += 1
                has_left, has_right = i > 0, end < len(line)
                if has_left and line[i] == " " and (end - i > 1 or has_right):
                    symbols.append(("space", " "))
                    i += 1
                symbols += [("weird", escape) for escape in slow_escapes(line[i:end])]
            elif line[i] == MERGE:
                while end < len(line) and line[end] == MERGE:
                    end += 1
                symbols += [("weird", escape) for escape in slow_escapes(line[i:end])]
            else:
                symbols.append((kind(line[i]), line[i]))
            i = end
    opens_with_escape = symbols and symbols[0][0] == "weird" and len(symbols[0][1]) > 1
    return merge(symbols)[2 if opens_with_escape else 0 :]


def slow_escapes(characters):
    escapes = []
    while characters:
        count = 1
        while count < 1000 and characters[count : count + 1] == characters[0]:
            count += 1
        escapes.append(f"⇹{ord(characters[0]):X}" + (f"x{count}" if count > 1 else ""))
        characters = characters[count:]
    return escapes


def joined(line):
    return "".join(separator + surface for separator, surface in pieces(line.split(" ")))


# Worked examples


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (
            "Some of 100,000 households (usually, a minority) ate breakfast.",
            "Some of 100 ⇹,⇹ 000 households (⇹ usually ⇹, a minority ⇹) ate breakfast ⇹.",
        ),
        ("", ""),
        ("\n", "\n"),
        ("(a\n(b", " ⇹(⇹ a\n(⇹ b"),
        ("a?!b\n?!", "a ⇹? ⇹!⇹ b\n? ⇹!"),
        ("a - b", "a - b"),
        ("e\u0301, \u0301", "e\u0301 ⇹, \u0301"),
        ("a_b", "a ⇹_⇹ b"),
        ("a\tb", "a ⇹⇹9⇹ b"),
        ("a  b", "a ⇹20⇹ b"),
        ("a   b", "a ⇹20x2⇹ b"),
        ("    x", "⇹20x4⇹ x"),
        ("a ", "a ⇹⇹20"),
        ("a  ", "a ⇹20"),
        ("a\t b", "a ⇹⇹9 ⇹⇹20⇹ b"),
        ("a \t b", "a ⇹9 ⇹⇹20⇹ b"),
        ("a\r\n", "a ⇹⇹D\n"),
        ("a\u2028b\xa0c", "a ⇹⇹2028⇹ b ⇹⇹A0⇹ c"),
        (" \n  \n", "⇹20\n⇹20x2\n"),
        ("\n x \n", "\n⇹20⇹ x ⇹⇹20\n"),
        ("⇹", "⇹21F9"),
        ("a⇹9 ⇹⇹,", "a ⇹⇹21F9⇹ 9 ⇹21F9x2 ⇹,"),
        (". .", " ⇹. ."),
        ("\ud800a", " ⇹\ud800⇹ a"),
    ],
)
def test_examples(text, tokens):
    assert tokenize(text) == tokens
    assert detokenize(tokens) == text


def test_a_lost_leading_space_does_no_harm():
    assert detokenize("⇹(⇹ a") == detokenize(" ⇹(⇹ a") == "(a"


@pytest.mark.parametrize("literal", LITERALS.split(" "))
def test_what_is_no_token_is_literal(literal):
    for text in (literal, f"a {literal} b", f"\n{literal}\n"):
        assert detokenize(text) == text
    assert list(pieces(["a", literal, "b"])) == [("", "a"), (" ", literal), (" ", "b")]


@pytest.mark.parametrize("char", [" ", "\t", MERGE])
def test_long_runs_become_several_escapes(char):
    code = f"⇹{ord(char):X}"
    assert tokenize(char * 1000) == f"{code}x1000"
    assert tokenize(char * 1001) == f"{code}x1000 ⇹{code}"
    assert tokenize(char * 2500 + "x") == f"{code}x1000 ⇹{code}x1000 ⇹{code}x500⇹ x"
    assert tokenize(f"a{char * 1000}b") in (f"a ⇹{code}x1000⇹ b", f"a {code}x999⇹ b")
    for text in (char * 2500 + "x", f"a{char * 1000}b"):
        assert detokenize(tokenize(text)) == text


def test_an_escape_is_bounded():
    text = "⇹20x1000 " * 100 + "⇹20x1001 " * 100 + "⇹20x99999999999"
    assert len(detokenize(text)) < 200 * len(text)


def test_a_line_has_no_line_break():
    with pytest.raises(ValueError, match="line break"):
        tokenize_line("a\nb")


# For any text


@many
@given(plain_text)
@example("a\u0301.b")
def test_equals_the_paper(text):
    assert not re.search(r"⇹|\A |[^\S \n]| (?:\s|\Z)|\n ", text)
    assert tokenize(text) == paper_tokenize(text)


@many
@given(all_text)
@example("x.— —.y")
@example("\u0301.\u0301 . \u0301")
def test_equals_our_rule(text):
    assert tokenize(text) == slow_tokenize(text)


@many
@given(st.integers(1, 200), nasty_text.filter(bool))
def test_long_gaps_equal_our_rule(times, text):
    assert tokenize(text * times) == slow_tokenize(text * times)


@settings(max_examples=1500, deadline=None)
@given(all_text)
def test_round_trip(text):
    assert detokenize(tokenize(text)) == text


def test_any_text_has_everything():
    for category in ("Cs", "Cn", "Co", "Lo"):  # rarer ones are not found for certain
        find(any_text, lambda text, c=category: any(unicodedata.category(x) == c for x in text))


@many
@given(all_text)
def test_round_trip_through_split_lines(text):
    lines = [tokenize_line(line).split(" ") for line in text.split("\n")]
    assert "\n".join(joined(" ".join(tokens)) for tokens in lines) == text
    assert detokenize("\n".join(" ".join(tokens) for tokens in lines)) == text
    for line, tokens in zip(text.split("\n"), lines, strict=True):
        assert all(tokens) or (tokens == [""] and line == "")
        assert not any(char.isspace() for token in tokens for char in token)


@many
@given(all_text)
def test_only_an_opening_weird_character_makes_an_empty_token(text):
    first, *others = tokenize(text).split("\n")
    quirk = text != "" and kind(text[0]) == "weird" and text[0] != MERGE
    assert first.startswith(" ⇹") == quirk
    for line in (first[1:] if quirk else first, *others):
        assert line == "" or "" not in line.split(" ")
        assert not re.search(r"[^\S ]", line)


@many
@given(all_text)
def test_lines_make_the_text(text):
    lines = text.split("\n")
    tokens = [tokenize_line(line, first=number == 0) for number, line in enumerate(lines)]
    assert "\n".join(tokens) == tokenize(text)


@settings(max_examples=1500, deadline=None)
@given(all_text)
@example("a⇹ ⇹, b")
@example(",⇹ (")
@example(",⇹  ⇹,")
def test_pieces_and_detokenize_agree(text):
    assert detokenize(text) == "\n".join(joined(line) for line in text.split("\n"))


@many
@given(all_text)
def test_pieces_give_the_place_of_every_token(text):
    for line in text.split("\n"):
        place = 0
        tokens = tokenize_line(line).split(" ")
        for token, (separator, surface) in zip(tokens, pieces(tokens), strict=True):
            assert separator in ("", " ")
            assert line[place:].startswith(separator + surface)
            place += len(separator + surface)
            assert surface or not line
            assert MERGE in token or token == surface
        assert place == len(line)


@many
@given(all_text)
def test_stream_equals_whole(text):
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + [lines[-1]]
    for stream in (lines, ["", *lines]):
        tokens = list(tokenize_stream(stream))
        assert "".join(tokens) == tokenize(text)
        assert list(detokenize_stream(tokens)) == stream
    assert "".join(detokenize_stream(lines)) == detokenize(text)


@many
@given(all_text.map(lambda text: text.replace(MERGE, "")))
def test_detokenize_is_the_identity_without_merge_symbols(text):
    assert detokenize(text) == text


# Unicode


def test_classes_exhaustively():
    gap, space, decoded = re.compile(r"[\W_]"), re.compile(r"\s"), re.compile(r"[^\w\s]|_")
    for char in map(chr, range(sys.maxunicode + 1)):
        this = kind(char)
        assert is_weird.__wrapped__(char) == (this == "weird")
        assert bool(space.match(char)) == (this == "space")
        # Gaps contain all that is weird and all white space; besides them, only marks.
        if this != "word":
            assert gap.match(char)
        elif gap.match(char):
            assert unicodedata.category(char)[0] == "M"
        if this == "weird":
            assert decoded.match(char)
        if this == "space":  # four hexadecimal digits say it
            assert ord(char) <= 0xFFFF


def test_every_character():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert detokenize(tokenize(everything)) == everything
    spread = "a".join(everything[:0x3100])
    assert tokenize(spread) == slow_tokenize(spread)
    assert detokenize(tokenize(spread)) == spread
    for char in filter(str.isspace, everything[:0x3100].replace("\n", "")):
        for text in (char, f"a{char}b", f"a {char} b", f"{char}a", f"a{char}", f"({char}{char})"):
            assert tokenize(text) == slow_tokenize(text)
            assert detokenize(tokenize(text)) == text


# Size


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("a", 10 * MEGA),
        (" ", 10 * MEGA),
        ("\n", 10 * MEGA),
        ("a ", 5 * MEGA),
        (MERGE, 2 * MEGA),
        ("\u0301", 3 * MEGA),
        (".", MEGA // 2),
        ("a.", MEGA // 2),
        ("😀 ", MEGA // 4),
        ("\t ", MEGA // 4),
        ("a  ", MEGA // 2),
    ],
)
def test_one_long_line(unit, times):
    text = unit * times
    assert detokenize(tokenize(text)) == text


@pytest.mark.parametrize(
    "unit", ["⇹", " ⇹", "⇹ ", "a⇹", "⇹20x", ",⇹ ", " ⇹,", "⇹9⇹", "⇹FFFF", "  ⇹a", "a ⇹"]
)
def test_detokenizing_one_long_line(unit):
    text = unit * (MEGA // 2)
    assert len(detokenize(text)) <= len(text)


def test_what_is_remembered_is_bounded():
    for cached in (tokenizer._encode_short, tokenizer._join_short, tokenizer._decode, is_weird):
        assert cached.cache_info().maxsize
