"""Text ⇄ tokens, exactly reversible: the tokenizer of Mielke & Eisner (2019), appendix E.

A character is *weird* if it is neither a letter, a mark or a number nor white space. Every weird
character becomes a token of its own, and the merge symbol ⇹ says on which sides of it the text
has no space. Everything else stays as it is:

>>> tokenize("Some of 100,000 households (usually, a minority) ate breakfast.")
'Some of 100 ⇹,⇹ 000 households (⇹ usually ⇹, a minority ⇹) ate breakfast ⇹.'

Departs from the paper where its procedure cannot be undone: when the text itself contains ⇹, and
when white space is not one plain space between two words of a line. Such characters are written
as *escapes*, ⇹ and the code point in hexadecimal, and then treated as weird characters are:

>>> tokenize("\\tif x:\\r\\n")
'⇹9⇹ if x ⇹: ⇹⇹D\\n'

So `detokenize(tokenize(text)) == text` for every `str`, lone surrogates included. Lines end at
`\\n` only. The tokens of a line are separated by one plain space each, none is empty and none
contains white space, with the paper's one exception: a weird character that opens the whole text
gets a space and ⇹ before it.

What is weird depends on `unicodedata.unidata_version`: tokenize and detokenize with the same one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

__all__ = [
    "MERGE",
    "detokenize",
    "detokenize_stream",
    "is_weird",
    "pieces",
    "tokenize",
    "tokenize_line",
    "tokenize_lines",
    "tokenize_stream",
]

MERGE = "⇹"
"""U+21F9: there is no space in the text on this side of the token."""

MAX_RUN = 1000
"""How many equal characters one escape stands for at most; longer runs become several escapes."""


@lru_cache(4096)
def is_weird(char: str) -> bool:
    """Whether `char` is neither a letter, a mark or a number (Unicode L, M, N) nor white space.

    >>> [is_weird(char) for char in "(,_⇹aé7 "]
    [True, True, True, True, False, False, False, False]
    """
    return unicodedata.category(char)[0] not in "LMN" and not char.isspace()


def tokenize(text: str) -> str:
    """The text as tokens: lines stay lines, and in a line one space separates two tokens.

    >>> tokenize("No space.Two  spaces")
    'No space ⇹.⇹ Two ⇹20⇹ spaces'
    >>> tokenize("(first\\n(second")
    ' ⇹(⇹ first\\n(⇹ second'
    """
    return _opening(text) + _encode_gaps(text)


def tokenize_line(line: str, *, first: bool = False) -> str:
    """One line, without its line break; its tokens are `tokenize_line(line).split(" ")`.

    `first` is for the first line of a whole text, where the paper lets an opening weird character
    have a (missing) neighbour to merge with.

    >>> tokenize_line("(so)")
    '(⇹ so ⇹)'
    >>> tokenize_line("(so)", first=True)
    ' ⇹(⇹ so ⇹)'
    """
    if "\n" in line:
        raise ValueError("a line does not contain a line break; use tokenize() for whole texts")
    return (_opening(line) if first else "") + _encode_gaps(line)


def tokenize_lines(lines: str) -> str:
    """Lines that do not open a text: what `tokenize_line` makes of each of them.

    >>> tokenize_lines("(so)\\n(so)")
    '(⇹ so ⇹)\\n(⇹ so ⇹)'
    """
    return _encode_gaps(lines)


def tokenize_stream(lines: Iterable[str]) -> Iterator[str]:
    """`tokenize` for a text that comes in lines, each but the last with its line break.

    >>> list(tokenize_stream(["(a)\\n", "(b)\\n"]))
    [' ⇹(⇹ a ⇹)\\n', '(⇹ b ⇹)\\n']
    """
    first = True
    for line in lines:
        yield (_opening(line) if first else "") + _encode_gaps(line)
        first = first and not line


def detokenize(text: str) -> str:
    """The text that `tokenize` made these tokens of. Never fails: what is no token stays literal.

    >>> detokenize("100 ⇹,⇹ 000 households (⇹ usually ⇹, a minority ⇹)")
    '100,000 households (usually, a minority)'
    >>> detokenize("⇹20x4⇹ indented ⇹⇹ ⇹⇹21F9 ⇹word")
    '    indented ⇹⇹⇹ ⇹word'
    """
    return _GLUED_TOKENS.sub(_decode_match, "\n" + text)[1:] if MERGE in text else text


def detokenize_stream(lines: Iterable[str]) -> Iterator[str]:
    """`detokenize` for a text that comes in lines, each but the last with its line break.

    >>> list(detokenize_stream([" ⇹(⇹ a ⇹)\\n", "(⇹ b ⇹)\\n"]))
    ['(a)\\n', '(b)\\n']
    """
    return map(detokenize, lines)


def pieces(tokens: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What each token of one line stands for: (separator before it, surface).

    Joined, they are the detokenized line, so they give every token's place in it.

    >>> list(pieces("100 ⇹,⇹ 000 ⇹⇹9⇹ b".split(" ")))
    [('', '100'), ('', ','), ('', '000'), ('', '\\t'), ('', 'b')]
    >>> list(pieces(["a", "b", "⇹."]))
    [('', 'a'), (' ', 'b'), ('', '.')]
    """
    merge_next = True
    for token in tokens:
        if MERGE in token and len(token) <= _LONGEST_GLUED:
            merge_before, surface, merge_after = _decode(token)
            yield ("" if merge_next or merge_before else " "), surface
            merge_next = merge_after
        else:
            yield ("" if merge_next else " "), token
            merge_next = False


# Tokenizing. The text is words (letters and numbers) and the gaps between them. What a gap becomes
# depends on nothing but itself, and most gaps are one plain space or a line break, which stay.
# So: one regex finds the other gaps, and `_encode` transcribes each one, remembering the short.
# Marks fall into the gaps (`re` has no class for them) and `_encode` gives them back to the words.

_GAP = re.compile(r"[\W_]++(?<![^\W_][ \n])")

_GAP_PARTS = re.compile(
    # Stays: a line break, or a space with something on either side of it in its line. As a gap
    # follows a word or begins with a line break, only white space is to be looked for before it.
    r"(?P<space>\n++|(?<!\s) (?!\n))"
    r"|(?P<escaped>[^\S\n]++|⇹++)"
    r"|(?P<other>[^\s⇹]{1,4096}+)"  # in parts, as one by one its characters take up more memory
)

_SHORT = 64
"""Gaps and token groups up to this length are remembered; longer ones hardly ever come back."""


def _opening(text: str) -> str:
    """The paper merges a weird character that opens a text with its missing neighbour."""
    return " " + MERGE if text and text[0] != MERGE and is_weird(text[0]) else ""


def _encode_gaps(text: str) -> str:
    # Between line breaks, no gap is at an end of the text.
    return _GAP.sub(_encode_match, f"\n{text}\n")[1:-1]


def _encode_match(match: re.Match[str]) -> str:
    gap = match[0]
    return _encode_short(gap) if len(gap) <= _SHORT else _encode(gap)


def _encode(gap: str) -> str:
    """The paper's rule, for a gap whose neighbours, where it does not end in `\\n`, are words.

    >>> _encode(",")
    ' ⇹,⇹ '
    >>> _encode(" (")
    ' (⇹ '
    >>> _encode(" . \\n")
    ' . ⇹⇹20\\n'
    """
    out: list[str] = []
    after = "word"
    for part in _GAP_PARTS.finditer(gap):
        if part.lastgroup == "space":
            out.append(part[0])
            after = "space"
            continue
        runs: Iterable[tuple[bool, Iterable[str]]]
        if part.lastgroup == "escaped":
            runs = [(True, _escapes(part[0]))]
        else:
            runs = groupby(part[0], is_weird)
        for weird, symbols in runs:
            if weird:
                out.append("" if after == "space" else f" {MERGE}")
                out.append(f" {MERGE}".join(symbols))
            else:
                out.append(f"{MERGE} " if after == "weird" else "")
                out.append("".join(symbols))
            after = "weird" if weird else "word"
    if after == "weird":
        out.append(f"{MERGE} ")
    return "".join(out)


_encode_short = lru_cache(4096)(_encode)


def _escapes(characters: str) -> Iterator[str]:
    """One escape for each run of equal characters.

    >>> list(_escapes("\\t\\t  \\r"))
    ['⇹9x2', '⇹20x2', '⇹D']
    """
    for char, run in groupby(characters):
        full, rest = divmod(len(list(run)), MAX_RUN)
        for _ in range(full):
            yield _escape(char, MAX_RUN)
        if rest:
            yield _escape(char, rest)


def _escape(char: str, count: int) -> str:
    return f"{MERGE}{ord(char):X}" + (f"x{count}" if count > 1 else "")


# Detokenizing. One regex finds groups of neighbouring tokens that may be glued or escaped (⇹ is
# their first or second character) together with the spaces around them; `pieces` reads each group.

_GLUED_TOKENS = re.compile(r"[ \n][^ \n⇹]?⇹[^ \n]*+(?: [^ \n⇹]?⇹[^ \n]*+)*+ ?")

_GLUED = re.compile(r"(⇹?)(?:(⇹[0-9A-F]{1,4}(?:x[0-9]{1,4})?)|([^\w\s⇹]|_))(⇹?)")
_LONGEST_GLUED = len("⇹⇹21F9x1000⇹")


def _decode_match(match: re.Match[str]) -> str:
    group = match[0]
    return _join_short(group) if len(group) <= _SHORT else _join(group)


def _join(group: str) -> str:
    """What a group of tokens with the space or line break before it stands for.

    A group's outer spaces make its first and last token empty, and empty tokens are literal.

    >>> _join(" ⇹,⇹ "), _join("\\n(⇹ "), _join(" ⇹. ")
    (',', '\\n(', '. ')
    """
    line_break = "\n" if group[0] == "\n" else ""
    tokens = group[len(line_break) :].split(" ")
    return line_break + "".join([separator + surface for separator, surface in pieces(tokens)])


_join_short = lru_cache(2048)(_join)


@lru_cache(4096)
def _decode(token: str) -> tuple[bool, str, bool]:
    """(merges with what is before it, surface, merges with what is after it).

    >>> _decode("⇹,"), _decode("⇹20x3⇹"), _decode("⇹41")
    ((True, ',', False), (False, '   ', True), (False, '⇹41', False))
    """
    match = _GLUED.fullmatch(token)
    if match:
        before, escape, char, after = match.groups()
        surface = _unescape(escape) if escape else char if is_weird(char) else ""
        if surface:
            return bool(before), surface, bool(after)
    return False, token, False


def _unescape(escape: str) -> str:
    """What an escape stands for; nothing if it is none that `_escapes` would write.

    >>> _unescape("⇹20x3"), _unescape("⇹020x3"), _unescape("⇹41"), _unescape("⇹20x1001")
    ('   ', '', '', '')
    """
    code, _, digits = escape[1:].partition("x")
    char, count = chr(int(code, 16)), int(digits or 1)
    escaped = char == MERGE or (char.isspace() and char != "\n")
    return char * count if escaped and list(_escapes(char * count)) == [escape] else ""
