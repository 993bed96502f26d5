"""Any closed-vocabulary model can be opened: a GPT-2 over words (Hugging Face's, random weights).

    python examples/open_a_closed_model.py my-text.txt        (needs: pip install transformers)

A lexeme model is: ids and state → hidden vectors, and a table of embeddings. That is all below.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2Model

from spellonce import corpus, encoding, lexeme_lm, plan, recipes, softmax, speller, trainer
from spellonce.two_level import TwoLevel


class WordGPT2(torch.nn.Module):
    def __init__(self, n_lexemes, n_embed=64, context=32):
        super().__init__()
        self.context, self.table = context, softmax.LexemeTable(n_lexemes, n_embed)
        sizes = {"n_embd": n_embed, "n_layer": 2, "n_head": 4, "n_positions": 1000 + context}
        self.gpt2 = GPT2Model(GPT2Config(vocab_size=1, **sizes))

    def initialise(self, generator, counts=None):
        self.table.initialise(generator, counts)

    def zero_state(self, n_rails):  # the ids that were read last: at first, EOS
        return [(torch.ones(self.context, n_rails, dtype=torch.int64),)]

    def forward(self, ids, state, noise=None):
        seen = torch.cat([state[0][0], ids])
        embedded = self.table(seen).transpose(0, 1)
        read = self.gpt2.train(noise is not None)(inputs_embeds=embedded).last_hidden_state
        hidden = read.transpose(0, 1)[self.context :]
        return lexeme_lm.Hidden(hidden, hidden), [(seen[-self.context :],)]


def main(path, steps=100):
    recipe, text = recipes.get("small"), corpus.open_files([Path(path)])
    file = Path(tempfile.mkdtemp()) / "train.ids"
    words = encoding.encode(text.split("train"), text.format, file, vocab_size=2000).lexicon
    spell = speller.Speller(recipe.speller, len(words.alphabet), 64)
    lm = WordGPT2(words.n_lexemes)
    network = TwoLevel(lm, lexicon_speller=spell, novel_speller=spell)
    network.initialise(0, words)
    ids = encoding.open_ids(file)
    training = trainer.Trainer(recipe, network, words, ids, 0, plan.Plan.of(steps))
    for _ in range(steps):
        training.step()
    for word in ("the", "wug"):
        lexeme, spelling = network.score_tokens(words, ["This", "is", word])
        print(f"{word}: {lexeme[-1]:.2f} nats to choose it, {spelling[-1]:.2f} to spell it")


if __name__ == "__main__":
    main(sys.argv[1])
