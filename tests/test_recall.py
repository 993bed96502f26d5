"""Looking back, against a plain definition of it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spellonce import recall
from spellonce.errors import ConfigError
from spellonce.lexeme_lm import LexemeLM, LexemeLMConfig
from spellonce.noise import Noise
from spellonce.recall import Recall

N_EMBED, N_KEYS = 4, 3


def make(reach: int, seed: int = 0) -> Recall:
    module = Recall(reach, N_KEYS, N_EMBED).double()
    generator = torch.Generator().manual_seed(seed)
    module.initialise(generator)
    with torch.no_grad():  # away from symmetric beginnings
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        module.sharpness /= 8
    return module


def some(t: int, b: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(t, b, N_EMBED, generator=generator, dtype=torch.float64)


def plainly(module: Recall, read: Tensor, hidden: Tensor) -> Tensor:
    """What the module's docstring says, number by number, for one rail that begins here."""
    found = []
    none, sharpness = float(module.none.detach()), 24 * float(module.sharpness.detach())
    for t, h in enumerate(hidden):
        odds, words = [math.exp(none)], [torch.zeros(N_EMBED, dtype=torch.float64)]
        for j in range(max(0, t - module.reach + 1), t + 1):
            query = module.query.weight @ h
            before = hidden[j - 1] if j else None
            alike = 0.0
            if before is not None:  # nothing predicted the first word
                key = module.key.weight @ before
                alike = (query @ key / query.norm() / key.norm()).item()
            odds.append(math.exp(sharpness * alike))
            words.append(read[j])
        for _ in range(module.reach - len(odds) + 1):  # that many words are missing
            odds.append(math.exp(sharpness * float(module.usual_alike)))
            words.append(module.usual)
        mean = sum(o * w for o, w in zip(odds, words, strict=True)) / sum(odds)
        found.append(h + module.out.weight @ mean)
    return torch.stack(found)


@pytest.mark.parametrize("reach", [1, 2, 5, 40])
def test_it_is_what_it_says(reach: int) -> None:
    module, read, hidden = make(reach), some(17, 2, 1), some(17, 2, 2)
    found, _ = module(read, hidden, module.zero_state(2))
    for rail in range(2):
        expected = plainly(module, read[:, rail], hidden[:, rail])
        torch.testing.assert_close(found[:, rail], expected)


@given(st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_pieces_do_not_matter(reach: int, pieces: list[int], seed: int) -> None:
    module, n = make(reach, seed), sum(pieces)
    read, hidden = some(n, 2, seed + 1), some(n, 2, seed + 2)
    whole, end = module(read, hidden, module.zero_state(2))
    state, parts, start = module.zero_state(2), [], 0
    for size in pieces:
        stop = start + size
        part, state = module(read[start:stop], hidden[start:stop], state)
        parts.append(part)
        start = stop
    torch.testing.assert_close(torch.cat(parts), whole)
    for mine, theirs in zip(state, end, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_long_texts_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    module, read, hidden = make(5), some(40, 1, 1), some(40, 1, 2)
    whole, _ = module(read, hidden, module.zero_state(1))
    monkeypatch.setattr(recall, "_STEPS", 7)
    parts, _ = module(read, hidden, module.zero_state(1))
    torch.testing.assert_close(parts, whole)


def test_it_sees_neither_ahead_nor_beyond_its_reach() -> None:
    module, read, hidden = make(4), some(20, 1, 1), some(20, 1, 2)
    before, _ = module(read, hidden, module.zero_state(1))
    read[10] += 1
    after, _ = module(read, hidden, module.zero_state(1))
    changed = (before != after).any(2)[:, 0].nonzero()[:, 0].tolist()
    assert changed == [10, 11, 12, 13]


def test_to_look_at_a_word_makes_it_likelier() -> None:
    """A text that repeats itself, and a network that has learned nothing yet."""
    fields = {f"drop_{name}": 0.0 for name in ("embed", "input", "hidden", "output", "recurrent")}
    words = torch.randint(2, 50, (12, 1), generator=torch.Generator().manual_seed(3)).repeat(3, 1)
    nats = {}
    for reach in (0, 30):
        config = LexemeLMConfig(n_embed=16, n_hidden=16, n_layers=1, reach=reach, **fields)  # type: ignore[arg-type]
        lm = LexemeLM(config, 50)
        lm.initialise(torch.Generator().manual_seed(0))
        with torch.no_grad():
            lm.table.weights[0] *= 10
            hidden, _ = lm(words[:-1], lm.zero_state(1))
            nats[reach] = float(lm.table.nats(hidden.states[20:, 0], words[21:, 0])[0])
    assert nats[30] < nats[0] - 1


def test_all_of_it_learns() -> None:
    lm = LexemeLM(LexemeLMConfig(n_embed=6, n_hidden=9, reach=5), 11)
    lm.initialise(torch.Generator().manual_seed(0))
    ids = torch.randint(11, (9, 3), generator=torch.Generator().manual_seed(1))
    hidden, state = lm(ids, lm.zero_state(3), Noise(0))
    lm.table.nats(hidden.dropped.flatten(0, 1), ids.flatten())[0].backward()  # type: ignore[no-untyped-call]
    assert lm.recall is not None and len(state) == lm.n_parts == 4
    for name, parameter in lm.recall.named_parameters():
        if name in ("usual", "usual_alike"):  # which are taken from a text
            assert parameter.grad is None
            continue
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("fields", [{"reach": -1}, {"n_keys": 0}, {"reach": 2, "tied": False}])
def test_nonsense_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LexemeLMConfig(**fields)  # type: ignore[arg-type]
