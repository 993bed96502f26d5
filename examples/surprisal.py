"""Surprisal for a list of items: one sentence a line, the critical word between asterisks.

python examples/surprisal.py [RUN]
"""

import sys

import spellonce
from spellonce.surprisal import View

ITEMS = """\
The old man the *boats* every morning.
The old man saw the *boats* every morning.
The wug *zibbled* the cat.
"""

model = spellonce.load(sys.argv[1] if len(sys.argv) > 1 else None)
critical = [line.split("*")[1] for line in ITEMS.splitlines()]
text = ITEMS.replace("*", "")
scores = model.score_texts([text], apart=True)[0]  # each line is a text of its own
for row in View("word", line_ends="skip").rows(scores):
    if row["token"] == critical[row["line"]]:
        novel = ", a word that the model does not know" if row["novel"] else ""
        print(f"{row['token']}: {row['bits']:.2f} bits{novel}")
