"""An adapter for the lm-evaluation-harness of EleutherAI (`pip install 'spellonce[lm-eval]'`).

    python -m spellonce.harness --model spellonce --model_args pretrained=my-run --tasks wikitext

The rolling log-likelihood of a text is what `spellonce eval --text` reports, in nats; with
`strict=true` among the model's arguments it is what a lossless coder pays, so that figures per byte
compare with those of models that know every character.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance  # type: ignore[import-untyped]
from lm_eval.api.model import LM  # type: ignore[import-untyped]
from lm_eval.api.registry import register_model  # type: ignore[import-untyped]

from spellonce.evaluation import TokenScores
from spellonce.loading import load


@register_model("spellonce")
class SpellonceLM(LM):  # type: ignore[misc]
    """A model of spellonce, as the harness knows models."""

    def __init__(
        self,
        pretrained: str | None = None,
        device: str = "cpu",
        strict: bool | str = False,
        **_: Any,
    ) -> None:
        super().__init__()
        self._is_strict = str(strict).lower() in ("true", "1", "yes")
        self.model = load(pretrained, device=device or "cpu")

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """log p of whole texts."""
        scored = self.model.score_texts([request.args[0] for request in requests])
        return [
            -float((scores.nats + self._is_strict * scores.nats_strict).sum()) for scores in scored
        ]

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """(log p of a continuation, whether it is the likeliest) after a context."""
        pairs = [(str(context), str(rest)) for context, rest in (r.args for r in requests)]
        scored = self.model.score_texts([context + rest for context, rest in pairs])
        return [
            self._continuation(context, rest, scores)
            for (context, rest), scores in zip(pairs, scored, strict=True)
        ]

    def _continuation(
        self, context: str, continuation: str, scores: TokenScores
    ) -> tuple[float, bool]:
        own = scores.end > len(context)
        nats = float(scores.nats[own].sum())
        n_tokens = max(int(own.sum()), 1)
        likeliest = self.model.sample(n_tokens, temperature=0, prompt=context).text
        return -nats, likeliest.strip(" ") == continuation.strip(" ")

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Text that follows a context, up to one of some strings."""
        return [self._generated(*request.args) for request in requests]

    def _generated(self, context: str, options: dict[str, Any]) -> str:
        warmth = float(options.get("temperature", 1.0)) if options.get("do_sample") else 0.0
        until = options.get("until") or []
        ends = [end for end in ([until] if isinstance(until, str) else until) if end]
        text = ""
        n = int(options.get("max_gen_toks", 100))
        for piece in self.model.pieces(n, temperature=warmth, prompt=context):
            text += piece.text
            if any(end in text for end in ends):
                break
        return min((text.partition(end)[0] for end in ends), key=len, default=text)


def main() -> None:
    """The harness's own command line, which now knows this model."""
    from lm_eval.__main__ import cli_evaluate  # type: ignore[import-untyped]

    cli_evaluate()


if __name__ == "__main__":
    main()
