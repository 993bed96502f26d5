"""Weights in small integers, for models that are given away: a byte for each, a scale for each row.

    w ≈ scale · n,   n from −127 to 127,   scale = largest of the row / 127

Vectors, of which there are few, are in half precision. Whoever reads such weights gets numbers as
of any others, those of matrices each within half a scale of what they were.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_BYTES, _SCALE = ".int8", ".scale"


def shrunk(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they are stored: matrices in bytes.

    >>> sorted(shrunk({"a": torch.ones(2, 3), "b": torch.ones(2)}))
    ['a.int8', 'a.scale', 'b']
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2:
            found[name] = tensor.half()
            continue
        scale = tensor.detach().float().abs().amax(-1).clamp_min(1e-12) / 127
        found[name + _BYTES] = (tensor.float() / scale[..., None]).round().to(torch.int8)
        found[name + _SCALE] = scale
    return found


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `shrunk` stored, in numbers; other weights as they are.

    >>> stored = shrunk({"a": torch.tensor([[1.0, -0.5]]), "b": torch.tensor([2.0])})
    >>> {name: tensor.tolist() for name, tensor in whole(stored).items()}
    {'a': [[1.0, -0.5039370059967041]], 'b': [2.0]}
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        scale = tensors.get(name.removesuffix(_BYTES) + _SCALE)
        if name.endswith(_BYTES) and scale is not None and scale.shape == tensor.shape[:-1]:
            found[name.removesuffix(_BYTES)] = tensor.float() * scale[..., None]
        elif name.removesuffix(_SCALE) + _BYTES not in tensors:
            found[name] = tensor
    return found
