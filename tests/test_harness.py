"""The adapter for the lm-evaluation-harness: the same figures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import spellonce
from spellonce.text import split_lines

from .conftest import make_text

pytest.importorskip("lm_eval")


def test_the_harness_sees_the_same_figures(tiny_run: Path) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    from spellonce.harness import SpellonceLM

    assert get_model("spellonce") is SpellonceLM
    adapter = SpellonceLM(pretrained=str(tiny_run))
    model = spellonce.load(tiny_run)

    def asked(kind: str, *arguments: object) -> Instance:
        return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)

    texts = [make_text(10, seed=s) for s in (1, 2)]
    rolling = adapter.loglikelihood_rolling([asked("loglikelihood_rolling", t) for t in texts])
    for text, found in zip(texts, rolling, strict=True):
        expected = model.evaluate(split_lines(text))["bits"]
        assert -found / math.log(2) == pytest.approx(expected, rel=1e-6)
    odd = "The wug ☃ ran.\n"
    strict = SpellonceLM(pretrained=str(tiny_run), strict="true")
    (found,) = strict.loglikelihood_rolling([asked("loglikelihood_rolling", odd)])
    assert -found / math.log(2) == pytest.approx(model.evaluate(odd)["bits_strict"], rel=1e-6)
    context, rest = "The ba ke", " lo mi."
    ((nats, _),) = adapter.loglikelihood([asked("loglikelihood", context, rest)])
    scores = model.score(context + rest)
    assert -nats == pytest.approx(float(scores.nats[3:].sum()), rel=1e-5)
    likeliest = model.sample(2, temperature=0, prompt=context).text
    ((_, is_greedy),) = adapter.loglikelihood([asked("loglikelihood", context, likeliest)])
    assert is_greedy
    options = {"until": ["."], "max_gen_toks": 20}
    (made,) = adapter.generate_until([asked("generate_until", context, options)])
    assert "." not in made
