"""The last steps of a layer's input, for chunks of a sequence whose events arrive later."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.ops.sequence_layout import cat

_BITS = 8


def joined(x: Tensor, history: Tensor | None, steps: int) -> Tensor:
    """The sequence with its last `steps` steps before it, or with none where there is no history.

    Raises:
        ValueError: a history of another number of steps, batch size or input shape.
    """
    if history is None:
        return x
    shape = x.shape[1:]
    octets = -(-math.prod(shape[1:]) // _BITS)
    expected = (steps, shape[0], octets) if history.dtype == torch.uint8 else (steps, *shape)
    if tuple(history.shape) != expected:
        raise ValueError(f"state: expected input steps of shape {expected}, got {tuple(history.shape)}")
    if history.dtype == torch.uint8:
        history = unpacked(history, shape)
    return cat((history.to(x.dtype), x), x)


def unpacked(history: Tensor, step_shape: Sequence[int]) -> Tensor:
    """Steps of 0 and 1 `[steps, *step_shape]`, integers, from their bits `[steps, N, octets]`."""
    places = torch.arange(_BITS, device=history.device, dtype=torch.uint8)
    bits = (history[..., None] >> places) & 1
    return bits.flatten(2)[..., : math.prod(step_shape[1:])].reshape(len(history), *step_shape)


def last_steps(x: Tensor, steps: int) -> Tensor:
    """The last `steps` steps `[steps, N, ...]`, zeros before the first: packed to bits where they are 0 and 1.

    Those that a gradient flows through stay as they are, and on a GPU all do, where the host would wait for a look at
    their values.
    """
    kept = x[max(0, len(x) - steps) :]
    if len(kept) < steps:
        kept = torch.cat((kept.new_zeros(steps - len(kept), *kept.shape[1:]), kept))
    if torch.is_grad_enabled() and kept.requires_grad:
        return kept
    kept = kept.detach()
    if torch.compiler.is_compiling() or x.device.type != "cpu" or not bool(((kept == 0) | (kept == 1)).all()):
        return kept.clone()
    flat = kept.flatten(2).to(torch.uint8)
    flat = torch.nn.functional.pad(flat, (0, -flat.shape[2] % _BITS))
    places = torch.arange(_BITS, device=x.device, dtype=torch.uint8)
    octets = flat.reshape(*flat.shape[:2], flat.shape[2] // _BITS, _BITS)
    packed: Tensor = (octets << places).sum(3, dtype=torch.uint8)
    return packed
