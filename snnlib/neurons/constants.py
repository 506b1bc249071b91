"""Constants of a neuron: buffers or learned parameters that keep their dtype, one number or one per channel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_device, in_transform, is_eager, is_recorded
from snnlib.neurons.checks import (
    check_longer_tau,
    check_numbers,
    check_positive,
    check_threshold,
    is_learned,
)
from snnlib.neurons.module import modules_within

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron

# The attribute of what follows from a neuron's constants, and devices whose values are read without waiting.
TABLES = "_tables"
_READ = ("cpu",)


class _Kept(NamedTuple):
    """Cached tables, with the constants and options that they were computed from."""

    of: list[Any]
    # Held, so that no others take their place in memory.
    tensors: list[Tensor]
    tables: dict[Any, Any]


def add_constants(
    neuron: Neuron, constants: Mapping[str, float | Tensor], learnable: Sequence[str], channels: int | None
) -> None:
    """Registers constants `[]` or `[C]`: float64 buffers that dtype casts skip, or learned parameters.

    Parameters are float64 in a net of float64, and else float32: half precision would lose what a small step of an
    optimiser adds.

    Args:
        neuron: the module that gets them, with the names in `constant_names` and `learnable`.
        constants: numbers, or tensors with one value per channel, by name.
        learnable: names of the constants that become parameters.
        channels: number of channels if each channel learns its own constants; None shares one value.
    """
    if channels is not None:
        check_count("channels", channels, least=0)
    if not isinstance(learnable, Collection):
        known = ", ".join(constants) or "none"
        raise TypeError(f"learnable: expected names of constants ({known}), got {learnable!r}")
    neuron.learnable = (learnable,) if isinstance(learnable, str) else tuple(learnable)
    neuron.constant_names = tuple(constants)
    for name in neuron.learnable:
        if name not in constants:
            known = ", ".join(constants) or "none"
            raise ValueError(f"learnable: expected names of constants ({known}), got {name!r}")
    for name, value in constants.items():
        tensor = _tensor(type(neuron), name, value, channels)
        if name not in neuron.learnable:
            neuron.register_buffer(name, tensor)
            continue
        if channels is not None:
            tensor = tensor.expand(channels).clone()
        dtype = learned_dtype(torch.get_default_dtype())
        neuron.register_parameter(name, nn.Parameter(tensor.to(dtype)))


def _tensor(model: type[Neuron], name: str, value: float | Tensor, channels: int | None) -> Tensor:
    """Returns a constant in float64 if it is one number or one per channel."""
    if is_learned(value):
        kind = "a Parameter" if isinstance(value, nn.Parameter) else "a tensor that requires a gradient"
        learns = "learnable" in inspect.signature(model.__init__).parameters
        remedy = f'use learnable=("{name}",)' if learns else "this model learns no constants; pass float(...)"
        raise TypeError(f"{name}: expected a number or a tensor, got {kind}; {remedy}")
    check_numbers(name, value)
    tensor = torch.as_tensor(value, dtype=torch.float64).detach().clone()
    if tensor.dim() > 1:
        raise ValueError(
            f"{name}: expected a number or one value per channel, got shape {tuple(tensor.shape)}"
        )
    if tensor.dim() == 1 and channels is not None and len(tensor) != channels:
        raise ValueError(f"{name}: expected {channels} values, one per channel, got {len(tensor)}")
    return tensor


def kept_tables(neuron: Neuron) -> dict[Any, Any] | None:
    """Returns the cache of tables that follow from constants and options, empty once these changed; None: no cache.

    Changes are seen by value on a CPU. On a GPU, where reading a value would wait for the device, they are seen by the
    version of the tensor, so that a write through `.data` goes unnoticed. There is no cache if a constant learns; while
    a CUDA graph is captured, since replays follow constants that are written to in between; and in compilers and
    transforms.
    """
    # Within programs that run later, and within transforms.
    if not is_eager():
        return None
    tensors: list[Tensor] = []
    now: list[Any] = []
    # torch's own iterators take several times as long.
    for one in modules_within(neuron):
        for tensor in (*one._parameters.values(), *one._buffers.values()):
            if tensor is None:
                continue
            content = _content(tensor)
            if content is None:
                return None
            tensors.append(tensor)
            now.append(content)
    if not tensors:
        return None
    queue = _queue(tensors[0])
    if queue is None:
        return None
    # A table is ready for what is queued on the stream that it was made on, and for no other.
    now.append(queue)
    kept: _Kept | None = vars(neuron).get(TABLES)
    if kept is None or kept.of != now:
        kept = vars(neuron)[TABLES] = _Kept(now, tensors, {})
    return kept.tables


def keeping_dtypes(neuron: Neuron, move: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Returns a move of a module's tensors that casts no constants but learned ones to float64 and back."""
    # The original of a constant with bounds.
    names = {*neuron.constant_names, *(f"parametrizations.{n}.original" for n in neuron.constant_names)}
    stored = (*neuron.named_parameters(), *neuron.named_buffers())
    constants = {id(tensor) for name, tensor in stored if name in names}

    def moved(tensor: Tensor) -> Tensor:
        after = move(tensor)
        dtype = learned_dtype(after.dtype) if isinstance(tensor, nn.Parameter) else tensor.dtype
        if id(tensor) not in constants or after.dtype == dtype:
            return after
        return torch.empty_like(after, dtype=dtype) if after.is_meta else tensor.to(after.device, dtype)

    return moved


def fit_constants(neuron: Neuron, state_dict: dict[str, Tensor], prefix: str) -> None:
    """Fits constants that a file has shared and the neuron per channel, or the other way round.

    Constants take the shape of the file, which keeps every bit. Learned constants, which an optimiser may hold, keep
    their shape: the file's value is repeated, or taken once if all channels agree.
    """
    for name in neuron.constant_names:
        own, stored = getattr(neuron, name), state_dict.get(prefix + name)
        if stored is None or stored.dim() + own.dim() != 1:
            continue
        if name not in neuron.learnable:
            setattr(neuron, name, own.new_empty(stored.shape))
        elif not stored.dim():
            state_dict[prefix + name] = stored.expand(own.shape)
        elif len(stored) and not stored.is_meta and bool((stored == stored[0]).all()):
            state_dict[prefix + name] = stored[0]


def check_channels(neuron: Neuron, channels: int, like: Tensor) -> None:
    """Raises ValueError unless constants fit currents with this number of channels on the device of `like`.

    Learned constants have to be in the range that the constructor asks for: training may have moved them out of it.
    """
    for name in neuron.constant_names:
        fixed = neuron._buffers.get(name)
        value = getattr(neuron, name) if fixed is None else fixed
        if value.device != like.device:
            check_device(name, value, like)
        if value.ndim == 1 and value.shape[0] != channels:
            raise ValueError(f"{name}: expected {channels} values, one per channel, got {len(value)}")
        if value.requires_grad or (fixed is None and isinstance(value, nn.Parameter)):
            _check_learned(neuron, name, value.detach())


def _check_learned(neuron: Neuron, name: str, value: Tensor) -> None:
    """Raises ValueError for a learned constant that training has moved out of its range."""
    check = neuron.fields[name].check if name in neuron.fields else None
    # A time constant below one step counts as one, and `check_numbers` bounds nothing.
    if check not in (check_threshold, check_positive, check_longer_tau) or is_recorded() or in_transform():
        return
    low = 1.0 if check is check_longer_tau else 0.0
    message = (
        f"{name}: expected numbers > {low:g} after training, too; clamp the learned {name} after each step of the "
        "optimiser, or make the neuron with snnlib.neurons.bound_"
    )
    if value.is_cuda:
        # Without waiting for the device, which reports the error itself.
        torch._assert_async((value > low).all(), message)
    elif value.device.type in _READ and not bool((value > low).all()):
        raise ValueError(f"{message}, got {value.min():g}")


def mean_threshold(neuron: Neuron) -> float:
    """Magnitude of the channels' mean firing threshold; 1 for a model without the constant.

    In millivolts a threshold is negative.
    """
    return abs(float(neuron.constants().get("threshold", torch.ones(())).detach().mean()))


def _content(tensor: Tensor) -> tuple[Any, Any] | None:
    """Returns what changes with a tensor: its dtype and values on a CPU, else its identity and version.

    None for a tensor that learns, or whose changes are not seen.
    """
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.requires_grad or tensor.is_inference():
        return None
    if tensor.device.type in _READ:
        return tensor.dtype, tensor.tolist()
    return id(tensor), tensor._version


def _queue(tensor: Tensor) -> int | None:
    """Returns the stream on which work with a tensor is queued, 0 on a CPU; None while a CUDA graph captures it."""
    if not tensor.is_cuda:
        return 0
    if torch.cuda.is_current_stream_capturing():
        return None
    return int(torch.cuda.current_stream(tensor.device).cuda_stream)


def learned_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of learned constants in a net of this dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widest(value: Tensor) -> Tensor:
    """Converts to float64 if the device has it, so that coefficients of learnable constants are rounded once."""
    return value if value.device.type == "mps" else value.double()


def broadcast(constants: Mapping[str, Tensor], axes: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns constants in shapes that broadcast with one step `[N, C, ...]` of this number of axes."""
    shape = [-1, *[1] * max(axes - 2, 0)]
    return {
        name: value.to(dtype).reshape(shape) if value.dim() else value.to(dtype)
        for name, value in constants.items()
    }
