"""Training throughput and memory of `full` and `cpu` against a plain reference. One line of JSON.

    python benchmarks/bench_training.py [--steps 5]

The reference is what one would write first: stacked `nn.LSTM`, `F.cross_entropy` over all logits,
novel words spelled one after another in a Python loop, SGD. It has the sizes of `full` (3 layers,
400 → 1150 → 1150 → 400, 50,000 lexemes, 40 × 70 tokens), and the same work, without dropout, is
asked of it and of `full`; `full-small` and `cpu` have their own sizes, batches and dropout. Steps
take turns; medians. Memory is the peak of a process of its own. The text is made up, with Zipf's
law.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable

import torch
from common import (
    bar,
    in_own_process,
    made_up_lexicon,
    made_up_text,
    make_network,
    take_turns,
)
from torch import nn
from torch.nn import functional

from spellonce import configuration, recipes, runtime
from spellonce.batching import Rails, Window, training_spellings
from spellonce.lexicon import Lexicon, Spellings
from spellonce.plan import Plan
from spellonce.recipes import Means
from spellonce.trainer import Trainer

N_LEXEMES, N_NOVEL = 50_000, 30_000
NO_DROPOUT = (
    "drop_embed=0", "drop_input=0", "drop_hidden=0", "drop_output=0", "drop_recurrent=0",
    "speller.drop=0", "speller.drop_vector=0", "window_spread=0", "short_windows=0",
)  # fmt: skip


class Plain(nn.Module):
    """The same model, written plainly."""

    def __init__(self, n_lexemes: int, n_symbols: int) -> None:
        super().__init__()
        c = recipes.full()
        self.embedding = nn.Embedding(n_lexemes, c.lm.n_embed)
        widths = [c.lm.n_embed, c.lm.n_hidden, c.lm.n_hidden, c.lm.n_embed]
        self.layers = nn.ModuleList(nn.LSTM(a, b) for a, b in itertools.pairwise(widths))
        self.bias = nn.Parameter(torch.zeros(n_lexemes))
        self.characters = nn.Embedding(n_symbols, c.speller.n_char_embed)
        self.speller = nn.LSTM(
            c.speller.n_char_embed + c.lm.n_embed, c.speller.n_hidden, c.speller.n_layers
        )
        self.output = nn.Linear(c.speller.n_hidden, n_symbols)

    def spell(self, vector: torch.Tensor, symbols: torch.Tensor) -> torch.Tensor:
        """Nats of one word."""
        boundary = symbols.new_zeros(1)
        inputs = self.characters(torch.cat([boundary, symbols]))
        x = torch.cat([inputs, vector.expand(len(inputs), -1)], 1)
        logits = self.output(self.speller(x)[0])
        return functional.cross_entropy(logits, torch.cat([symbols, boundary]), reduction="sum")

    def loss(self, window: Window, spellings: Spellings) -> torch.Tensor:
        """Nats per token of a window."""
        x = self.embedding(torch.from_numpy(window.inputs))
        for layer in self.layers:
            x, _ = layer(x)
        hidden = x.flatten(0, 1)
        logits = hidden @ self.embedding.weight.T + self.bias
        targets = torch.from_numpy(window.targets).flatten()
        total = functional.cross_entropy(logits, targets, reduction="sum")
        for place, word in zip(window.novel.tolist(), window.novel_types.tolist(), strict=True):
            symbols = torch.from_numpy(spellings[word].astype("int64"))
            total = total + self.spell(hidden[place], symbols)
        return total / window.n_tokens


def plain_step(lexicon: Lexicon) -> tuple[Callable[[], None], int]:
    recipe = configuration.override(recipes.full(), NO_DROPOUT)
    rails = Rails(made_up_text(len(lexicon.types), 200_000), lexicon.n_lexemes, recipe.windows, 0)
    model = Plain(lexicon.n_lexemes, len(lexicon.alphabet))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.2e-6)
    spellings = training_spellings(lexicon, 500)
    turn = iter(range(10_000))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model.loss(rails.window(0, next(turn)), spellings).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()

    return step, rails.window(0, 0).n_tokens


def our_step(lexicon: Lexicon, name: str, *settings: str) -> tuple[Callable[[], None], int]:
    means = Means(bfloat16=runtime.has_bfloat16("cpu"))
    recipe = configuration.override(recipes.get(name, means), settings)
    ids = made_up_text(len(lexicon.types), 200_000)
    network = make_network(recipe, lexicon, ids)
    trainer = Trainer(recipe, network, lexicon, ids, seed=0, plan=Plan.of(1000))
    return lambda: trainer.step(lexicon=False), trainer.rails.window(0, 0).n_tokens


def make(name: str, lexicon: Lexicon) -> tuple[Callable[[], None], int]:
    """(a step, its tokens)."""
    if name == "plain":
        return plain_step(lexicon)
    if name == "full":
        return our_step(lexicon, "full", *NO_DROPOUT)
    if name == "full, split softmax":
        return our_step(lexicon, "full", *NO_DROPOUT, "cuts=2500,10000")
    return our_step(lexicon, name)


def matrix_rate() -> float:
    """GFLOP/s of a large matrix product."""
    a, b = torch.randn(2800, 1150), torch.randn(1150, 4600)
    seconds = take_turns({"product": lambda: a @ b}, 9)["product"]
    return 2 * 2800 * 1150 * 4600 / seconds / 1e9


def flops_per_token(n_lexemes: int) -> float:
    """Of the lexeme LM at the paper's size, forward and backward, exact softmax."""
    widths = [400, 1150, 1150, 400]
    lstm = sum(4 * b * (a + b) for a, b in itertools.pairwise(widths))
    return 6.0 * (lstm + n_lexemes * 400)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--memory", metavar="NAME")
    arguments = parser.parse_args()
    runtime.prepare("cpu")
    runtime.keep_memory()  # as `train` does
    lexicon = made_up_lexicon(N_LEXEMES, N_NOVEL)
    if arguments.memory:
        step, _ = make(arguments.memory, lexicon)
        for _ in range(2):
            step()
        print(json.dumps({"peak_rss_mb": runtime.peak_rss_mb()}))
        return
    names = ["plain", "full", "full, split softmax", "full-small", "cpu"]
    made = {name: make(name, lexicon) for name in names}
    seconds = take_turns({name: step for name, (step, _) in made.items()}, arguments.steps)
    speed = {name: made[name][1] / seconds[name] for name in names}
    rate = matrix_rate()
    share = {
        name: round(speed[name] * flops_per_token(N_LEXEMES) / 1e9 / rate, 2)
        for name in ("plain", "full")
    }
    memory = {name: in_own_process(__file__, "--memory", name)["peak_rss_mb"] for name in names}
    print(json.dumps({
        "benchmark": "training",
        "tokens_per_second": {name: round(value, 1) for name, value in speed.items()},
        "peak_rss_mb": memory,
        "bars": [
            bar("tokens/s of `full`, of the plain reference's", speed["full"] / speed["plain"],
                "at least", 1.15, "×"),
            bar("tokens/s of `full` with a split softmax, of the plain reference's",
                speed["full, split softmax"] / speed["plain"], "at least", 1.6, "×"),
            bar("memory of `full`, of the plain reference's", memory["full"] / memory["plain"],
                "at most", 0.5, "×"),
        ],
        "gflops_of_a_large_product": round(rate),
        "share_of_it": share,
        "note": f"A large matrix product reaches {rate:.0f} GFLOP/s here. The products of the "
        f"lexeme LM alone run at {share['full']:.0%} of that in `full`, and at "
        f"{share['plain']:.0%} in the plain reference.",
    }))  # fmt: skip


if __name__ == "__main__":
    main()
