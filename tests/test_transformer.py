"""The Transformer lexeme LM against PyTorch's own layers, and a foreign model that is opened."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

from spellonce.noise import Noise
from spellonce.transformer_lm import TransformerConfig, TransformerLM, alibi_slopes

from .test_golden import text

EXAMPLES = Path(__file__).parent.parent / "examples"
CONFIG = TransformerConfig(
    n_embed=12, n_feed=20, n_layers=2, n_heads=3, reach=5, drop=0.0, drop_output=0.0
)


def make(config: TransformerConfig = CONFIG) -> TransformerLM:
    lm = TransformerLM(config, 30)
    lm.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(1))
    return lm


@torch.no_grad()
def test_hidden_states_are_those_of_pytorchs_own_layers() -> None:
    """`nn.TransformerEncoderLayer` with our weights and the same mask added to its attention."""
    lm, n_steps, n_rails = make(), 9, 2
    ids = torch.randint(0, 30, (n_steps, n_rails), generator=torch.manual_seed(2))
    distance = torch.arange(n_steps)[:, None] - torch.arange(n_steps)
    bias = -alibi_slopes(3)[:, None, None] * distance
    bias = bias.masked_fill((distance < 0) | (distance >= CONFIG.reach), float("-inf"))
    x = lm.table(ids) * CONFIG.n_embed**0.5
    for layer in lm.layers:
        theirs = nn.TransformerEncoderLayer(
            12, 3, 20, dropout=0.0, activation="gelu", norm_first=True
        )
        pairs = {
            "self_attn.in_proj_weight": layer.project.weight,
            "self_attn.in_proj_bias": layer.project.bias,
            "self_attn.out_proj.weight": layer.merge.weight,
            "self_attn.out_proj.bias": layer.merge.bias,
            "linear1.weight": layer.widen.weight, "linear1.bias": layer.widen.bias,
            "linear2.weight": layer.narrow.weight, "linear2.bias": layer.narrow.bias,
            "norm1.weight": layer.norm_attention.weight, "norm1.bias": layer.norm_attention.bias,
            "norm2.weight": layer.norm_feed.weight, "norm2.bias": layer.norm_feed.bias,
        }  # fmt: skip
        theirs.load_state_dict(pairs)
        x = theirs(x, src_mask=bias.repeat(n_rails, 1, 1))
    expected = lm.norm(x)
    found, _ = lm(ids, lm.zero_state(n_rails))
    torch.testing.assert_close(found.states, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 3, 7])
def test_one_long_window_equals_many_short_ones(window: int) -> None:
    lm = make()
    ids = torch.randint(0, 30, (23, 2), generator=torch.manual_seed(3))
    whole, _ = lm(ids, lm.zero_state(2))
    state, parts = lm.zero_state(2), []
    for start in range(0, 23, window):
        hidden, state = lm(ids[start : start + window], state)
        parts.append(hidden.states)
    torch.testing.assert_close(torch.cat(parts), whole.states, rtol=1e-4, atol=1e-5)


def test_dropout_is_on_with_noise_only() -> None:
    lm = make(TransformerConfig(n_embed=12, n_feed=20, n_layers=1, n_heads=3, reach=5))
    ids = torch.zeros(4, 2, dtype=torch.int64)
    noisy = [lm(ids, lm.zero_state(2), Noise(seed))[0].dropped for seed in (0, 1, 0)]
    assert not torch.equal(noisy[0], noisy[1]) and torch.equal(noisy[0], noisy[2])
    quiet = [lm(ids, lm.zero_state(2))[0].dropped for _ in range(2)]
    assert torch.equal(*quiet)


def test_all_that_a_layer_adds_is_dropped_out() -> None:
    """With one of the two parts silent, the other still varies."""
    config = TransformerConfig(n_embed=12, n_feed=20, n_layers=1, n_heads=3, reach=5, drop=0.5)
    for silent in ("merge", "narrow"):
        lm = make(config)
        with torch.no_grad():
            lm.table.weights[0].zero_()  # so that dropout on the embeddings shows nothing
            part = getattr(lm.layers[0], silent)
            part.weight.zero_()
            part.bias.zero_()
        ids = torch.zeros(4, 2, dtype=torch.int64)
        states = [lm(ids, lm.zero_state(2), Noise(seed))[0].states for seed in (0, 1)]
        assert not torch.equal(*states), silent


def test_the_example_opens_a_foreign_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPT-2 from the `transformers` library: trained, and any word has a probability."""
    path = EXAMPLES / "open_a_closed_model.py"
    assert len(path.read_text().splitlines()) < 60
    spec = importlib.util.spec_from_file_location("open_a_closed_model", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    (tmp_path / "text.txt").write_text(text()[:60_000])
    example.main(tmp_path / "text.txt", steps=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["the", "wug"]
    assert all(float(line.split()[1]) > 0 and float(line.split()[6]) > 0 for line in lines)
