"""Dynamics of a neuron's own constants, made once on a GPU while nothing changes that they follow from.

A table of coefficients is some twenty to fifty operations on single numbers. On a CPU that is no time; on a GPU each is
a kernel, launched beside the one that runs the neurons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from snnlib.checks import in_transform
from snnlib.neurons.surrogate import Surrogate

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron
    from snnlib.neurons.dynamics import Dynamics

# What every neuron has beside what a model adds, but for the mode.
_OF_MODULES = (frozenset(vars(nn.Module())) - {"training"}) | {"training_watch"}
_NUMBERS_AND_NAMES = (int, float, str, type(None))
# Devices without launches.
_ALWAYS_ANEW = ("cpu",)


@dataclass(frozen=True, eq=False)
class _Sources:
    """All that a neuron's `dynamics` can read of it: options that cannot change by themselves, and tensors."""

    options: dict[str, Any]
    tensors: tuple[Tensor, ...]
    # Of each tensor: how often it was written to, and where it is, as frozen parameters stay the same object.
    marks: tuple[tuple[int, int, torch.device], ...]
    # Tables are ready for what is queued on the stream that they were made on, and for no other.
    stream: int

    def same(self, other: _Sources) -> bool:
        """Returns whether dynamics made of one are those of the other."""
        tensors = len(self.tensors) == len(other.tensors) and all(
            a is b for a, b in zip(self.tensors, other.tensors, strict=True)
        )
        return (
            tensors
            and self.marks == other.marks
            and self.stream == other.stream
            and self.options == other.options
        )


_kept: WeakKeyDictionary[Neuron, tuple[_Sources, Dynamics | None]] = WeakKeyDictionary()


def own_dynamics(neuron: Neuron) -> Dynamics | None:
    """`neuron.dynamics(neuron.constants())`, the same object while constants and options stay as they are.

    Made anew in every call: on a CPU; where a constant learns; in the capture of a CUDA graph, which follows constants
    that are written to between its replays; within compilers and transforms; and of models with submodules or with
    attributes of kinds that may change unseen. Writing to a constant through `.data` is not seen.
    """
    now = None if _is_traced() else _sources(neuron)
    if now is None:
        return neuron.dynamics(neuron.constants())
    before = _kept.get(neuron)
    if before is not None and before[0].same(now):
        return before[1]
    # What is made in inference mode could not be used in a training step.
    with torch.inference_mode(False):
        dynamics = neuron.dynamics(neuron.constants())
    if dynamics is not None:
        dynamics.tables = {}
    _kept[neuron] = now, dynamics
    return dynamics


_converted: WeakKeyDictionary[Neuron, tuple[_Sources, Tensor]] = WeakKeyDictionary()


def own_threshold(neuron: Neuron, threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """`threshold.to(dtype)` of a neuron's own, the same tensor as long as `own_dynamics` would give the same object."""
    if _is_traced() or threshold.dtype == dtype or not _stays(threshold) or _is_capturing(threshold):
        return threshold.to(dtype)
    now = _sources_of({"dtype": dtype}, (threshold,))
    before = _converted.get(neuron)
    if before is None or not before[0].same(now):
        with torch.inference_mode(False):
            before = _converted[neuron] = now, threshold.to(dtype)
    return before[1]


def _sources(neuron: Neuron) -> _Sources | None:
    """None where dynamics are not to be kept."""
    tensors = (*neuron._parameters.values(), *neuron._buffers.values())
    if neuron._modules or not tensors or not all(_stays(tensor) for tensor in tensors):
        return None
    given = [tensor for tensor in tensors if tensor is not None]
    if any(_is_capturing(tensor) for tensor in given):
        return None
    options = {name: value for name, value in vars(neuron).items() if name not in _OF_MODULES}
    if not all(_is_plain(value) for value in options.values()):
        return None
    return _sources_of(options, tuple(given))


def _sources_of(options: dict[str, Any], tensors: tuple[Tensor, ...]) -> _Sources:
    marks = tuple((tensor._version, tensor.data_ptr(), tensor.device) for tensor in tensors)
    return _Sources(options, tensors, marks, _stream(tensors[0]))


def _is_traced() -> bool:
    """Returns whether the call becomes part of a program that runs later, or of a transform."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or in_transform()


def _stays(tensor: Tensor | None) -> bool:
    """Returns whether a tensor is on a GPU, does not learn, and counts how often it is written to."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return False
    assert tensor is not None
    return tensor.device.type not in _ALWAYS_ANEW and not tensor.requires_grad and not tensor.is_inference()


def _is_capturing(tensor: Tensor) -> bool:
    """Returns whether what is done with a tensor goes into a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _stream(tensor: Tensor) -> int:
    """The stream on which work with a tensor is queued."""
    return int(torch.cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else 0


def _is_plain(value: object) -> bool:
    """Returns whether a value never changes: numbers, names, tuples of them, and surrogates that are frozen."""
    if isinstance(value, tuple):
        return all(isinstance(part, _NUMBERS_AND_NAMES) for part in value)
    frozen = isinstance(value, Surrogate) and getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, _NUMBERS_AND_NAMES) or bool(frozen and frozen.frozen)
