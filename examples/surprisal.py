"""Surprisal for a list of items: one sentence a line, the critical word between asterisks.

python examples/surprisal.py [RUN]
"""

import sys

import spellonce

ITEMS = """\
The old man the *boats* every morning.
The old man saw the *boats* every morning.
The wug *zibbled* the cat.
"""

model = spellonce.load(sys.argv[1] if len(sys.argv) > 1 else None)
# Where the critical words begin, once the asterisks are gone.
pieces = ITEMS.split("*")
critical = {sum(map(len, pieces[:i])) for i in range(1, len(pieces), 2)}
scores = model.score_texts(["".join(pieces)], apart=True)[0]  # each line is a text of its own
for row in spellonce.View("word", line_ends="skip").rows(scores):
    if row["start"] in critical:
        novel = ", a word that the model does not know" if row["novel"] else ""
        print(f"{row['token']}: {row['bits']:.2f} bits{novel}")
