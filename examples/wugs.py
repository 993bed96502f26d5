"""Pseudowords for an experiment: like some words, for a place in a sentence, under constraints.

python examples/wugs.py [RUN]
"""

import sys

import spellonce

model = spellonce.load(sys.argv[1] if len(sys.argv) > 1 else None)
wanted = {"novel_only": True, "min_length": 4, "max_length": 10, "min_distance": 2}
known = [word for word in model.vectors().words if word.isalpha() and len(word) > 3][:3]
for word in known:
    print(word, "→", ", ".join(model.spell(word, n=5, temperature=0.8, **wanted)))
found = model.wugs(context="The cat ___ the mouse.", n=5, **wanted)
for wug in found.wugs:
    print(f"The cat {wug.word} the mouse. ({wug.bits:.1f} bits)")
