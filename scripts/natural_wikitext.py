"""WikiText as people write: spaces around punctuation, `@-@` and the like are undone.

    python scripts/natural_wikitext.py FOLDER OUT

FOLDER is a data set as WikiText comes, with train.txt, valid.txt and test.txt; OUT gets the same
texts and a `dataset.toml` that says how to read them. What the tokenisation has lost (which of the
quotation marks open, whether an apostrophe ends a plural) is guessed, so this is not Wikipedia to
the letter.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LEFT = re.compile(r"[,.;:!?%)\]}’”°′″…]|\.{2,}|'(?:s|t|re|ve|ll|d|m|S)")
"""What has no space before it,"""
_RIGHT = re.compile(r"[(\[{“‘$£€]")
"""what has none behind it,"""
_SHORT = re.compile(r"s|\d\ds")
"""What an apostrophe stands before: it ' s, the ' 70s."""
_BOTH = re.compile(r"[—/‑⁄]")
"""and what has neither."""


def natural(line: str) -> str:
    """One line, without its line break.

    >>> natural(' He said " hello " , ( twice ) , and it cost $ 1 @,@ 000 @.@ 50 . ')
    'He said "hello", (twice), and it cost $1,000.50.'
    >>> natural(" the city 's well @-@ known don 't , 5 – 6 kg ; the players ' union ")
    "the city's well-known don't, 5–6 kg; the players' union"
    >>> natural(" = = Life cycle = = "), natural(" The ' real ' <unk> . ")
    ('== Life cycle ==', "The 'real' <unk>.")
    >>> natural(" At 18 : 05 : here in the ' 70s , it ' s ' so ' . ")
    "At 18:05: here in the '70s, it's 'so'."
    """
    tokens = line.split()
    is_open = {'"': False, "'": False}
    text, attached = "", True
    for i, token in enumerate(tokens):
        before, after = tokens[i - 1 : i] or [""], tokens[i + 1 : i + 2] or [""]
        left = _LEFT.fullmatch(token) is not None
        right = _RIGHT.fullmatch(token) is not None
        if token == "'" and _SHORT.fullmatch(after[0]):
            left, right = after[0] == "s", True
        elif token in is_open:
            possessive = token == "'" and before[0].endswith("s") and tokens[i:].count(token) % 2
            left = is_open[token] or bool(possessive)
            right = not left
            is_open[token] = right
        elif token in ("@-@", "@,@", "@.@"):
            token, left, right = token[1], True, True
        elif _BOTH.fullmatch(token) or (
            token in "–:" and before[0].isdigit() and after[0].isdigit()
        ):
            left = right = True
        elif token == "=" and before[0] == "=":
            left = True
        text += ("" if attached or left else " ") + token
        attached = right
    return text


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        with (source / f"{name}.txt").open(encoding="utf-8", newline="\n") as lines:
            text = "".join(natural(line.removesuffix("\n")) + "\n" for line in lines)
        (out / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
    (out / "dataset.toml").write_text(
        'tokenization = "reversible"\narticles = "blank-line"\nunk = "<unk>"\n', encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
