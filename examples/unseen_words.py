"""Vectors for words that nobody has seen, from their spelling and from where they stand.

python examples/unseen_words.py [RUN]
"""

import sys

import spellonce

model = spellonce.load(sys.argv[1] if len(sys.argv) > 1 else None)
vectors = model.vectors()
spelled = vectors.infer("zibblingly")
placed = vectors.infer(None, ["They walked ___ to the house.", "She spoke ___ and left."])
both = vectors.infer("zibblingly", ["They walked zibblingly to the house."])
for name, vector in (("spelling", spelled), ("contexts", placed), ("both", both)):
    near = ", ".join(one.word for one in vectors.neighbours(vector, 6))
    print(f"by its {name}: {near}" if name == "spelling" else f"by {name}: {near}")
