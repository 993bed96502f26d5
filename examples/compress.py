"""Bits per character are real: a text as bytes, and back.

python examples/compress.py [RUN]
"""

import io
import sys

import spellonce
from spellonce import codec

TEXT = "The cat sat on the mat. The wug zibbled the cat, and the cat zibbled the wug.\n"

model = spellonce.load(sys.argv[1] if len(sys.argv) > 1 else None)
announced = model.evaluate([TEXT])["bits_strict"]
packed, back = io.BytesIO(), io.BytesIO()
codec.compress(model, io.BytesIO(TEXT.encode()), packed)
codec.decompress(model, io.BytesIO(packed.getvalue()), back)
assert back.getvalue() == TEXT.encode()
print(
    f"{len(TEXT)} characters, {announced:.0f} bits announced, {8 * len(packed.getvalue())} written"
)
print("(of these, about 1,100 say what the file is and check that nothing is damaged)")
