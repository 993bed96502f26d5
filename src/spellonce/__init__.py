"""spellonce: the two-level open-vocabulary language model of Mielke & Eisner (AAAI 2019).

>>> import spellonce
>>> spellonce.tokenize("Spell once, summon anywhere.")
'Spell once ⇹, summon anywhere ⇹.'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from spellonce.adaptive import Learning
    from spellonce.api import (
        compare,
        compress,
        decompress,
        evaluate,
        get_data,
        report,
        reproduce,
        train,
        tune,
    )
    from spellonce.errors import ConfigError, DataError, RunError, SpellOnceError
    from spellonce.evaluation import TokenScores
    from spellonce.loading import load
    from spellonce.model import Model
    from spellonce.surprisal import View
    from spellonce.tokenizer import detokenize, tokenize

__all__ = [
    "ConfigError",
    "DataError",
    "Learning",
    "Model",
    "RunError",
    "SpellOnceError",
    "TokenScores",
    "View",
    "compare",
    "compress",
    "decompress",
    "detokenize",
    "evaluate",
    "get_data",
    "load",
    "report",
    "reproduce",
    "tokenize",
    "train",
    "tune",
]

# Imported when first used: `import spellonce` itself needs no torch.
_HOME = {
    "ConfigError": "errors",
    "DataError": "errors",
    "Learning": "adaptive",
    "Model": "model",
    "RunError": "errors",
    "SpellOnceError": "errors",
    "TokenScores": "evaluation",
    "View": "surprisal",
    "detokenize": "tokenizer",
    "load": "loading",
    "train": "api",
    "compare": "api",
    "compress": "api",
    "decompress": "api",
    "evaluate": "api",
    "tune": "api",
    "report": "api",
    "reproduce": "api",
    "get_data": "api",
    "tokenize": "tokenizer",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"spellonce.{_HOME[name]}"), name)
    raise AttributeError(f"module 'spellonce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
