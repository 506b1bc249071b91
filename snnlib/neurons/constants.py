"""Constants of a neuron: buffers or learned parameters that keep their dtype, one number or one per channel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_device, in_transform
from snnlib.neurons.checks import check_numbers, is_learned
from snnlib.neurons.state_dict import StoredConstants

# The attribute of what follows from a neuron's constants, and devices without launches.
_TABLES = "_tables"
_ALWAYS_ANEW = ("cpu",)


class _Kept(NamedTuple):
    """What follows from constants and options, and of which it was made."""

    of: list[Any]
    # Held, so that no others take their place in memory.
    tensors: list[Tensor]
    tables: dict[Any, Any]


class Constants(StoredConstants):
    """A module with constants `[]` or `[C]`: float64 buffers that dtype casts skip, or learned parameters.

    Parameters are float64 in a net of float64, and else float32: half precision would lose what a small step of an
    optimiser adds.
    """

    learnable: Sequence[str]
    constant_names: tuple[str, ...]

    def add_constants(
        self, constants: Mapping[str, float | Tensor], learnable: Sequence[str], channels: int | None
    ) -> None:
        """Register constants, those in `learnable` as parameters; see `Neuron`."""
        if channels is not None:
            check_count("channels", channels, least=0)
        self.learnable = (learnable,) if isinstance(learnable, str) else tuple(learnable)
        self.constant_names = tuple(constants)
        for name in self.learnable:
            if name not in constants:
                known = ", ".join(constants) or "none"
                raise ValueError(f"learnable: expected names of constants ({known}), got {name!r}")
        for name, value in constants.items():
            self._add_constant(name, value, channels)

    def _kept_tables(self) -> dict[Any, Any] | None:
        """A place for what follows from constants and options, empty where these have changed; None to keep nothing.

        Nothing is kept where that saves no launches of kernels, on a CPU; where a constant learns; in the capture of a
        CUDA graph, which follows constants that are written to between its replays; and within compilers and
        transforms. Writing to a constant through `.data` is not seen.
        """
        # torch's own iterators take several times as long.
        parts = (
            []
            if _is_traced()
            else [(*one._parameters.values(), *one._buffers.values()) for one in self.modules()]
        )
        tensors = [tensor for part in parts for tensor in part if tensor is not None]
        if not tensors or not all(_stays(tensor) for tensor in tensors):
            return None
        # A table is ready for what is queued on the stream that it was made on, and for no other.
        now = [_stream(tensors[0]), *((id(tensor), tensor._version) for tensor in tensors)]
        kept: _Kept | None = vars(self).get(_TABLES)
        if kept is None or kept.of != now:
            kept = vars(self)[_TABLES] = _Kept(now, tensors, {})
        return kept.tables

    def __getstate__(self) -> dict[str, Any]:
        """All but what is kept, for copies and pickles."""
        return {name: value for name, value in vars(self).items() if name != _TABLES}

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a number for a constant, which is a tensor that files and optimisers may hold."""
        vars(self).pop(_TABLES, None)
        if isinstance(value, int | float) and name in self.__dict__.get("constant_names", ()):
            remedy = f"torch.nn.init.constant_(neuron.{name}, {value!r}) changes it in place"
            raise TypeError(f"{name}: expected a tensor, got {value!r}; {remedy}")
        super().__setattr__(name, value)

    def _add_constant(self, name: str, value: float | Tensor, channels: int | None) -> None:
        if is_learned(value):
            kind = "a Parameter" if isinstance(value, nn.Parameter) else "a tensor that requires a gradient"
            learns = "learnable" in inspect.signature(type(self).__init__).parameters
            remedy = (
                f'use learnable=("{name}",)' if learns else "this model learns no constants; pass float(...)"
            )
            raise TypeError(f"{name}: expected a number or a tensor, got {kind}; {remedy}")
        check_numbers(name, value)
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().clone()
        if tensor.dim() > 1:
            raise ValueError(
                f"{name}: expected a number or one value per channel, got shape {tuple(tensor.shape)}"
            )
        if tensor.dim() == 1 and channels is not None and len(tensor) != channels:
            raise ValueError(f"{name}: expected {channels} values, one per channel, got {len(tensor)}")
        if name not in self.learnable:
            self.register_buffer(name, tensor)
            return
        if channels is not None:
            tensor = tensor.expand(channels).clone()
        self.register_parameter(name, nn.Parameter(tensor.to(_learned_dtype(torch.get_default_dtype()))))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves of the module: constants follow to devices; learned ones alone follow to float64 and back."""
        before = {name: tensor.data for name, tensor in self._own_constants().items()}
        vars(self).pop(_TABLES, None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, after in self._own_constants().items():
            value = before[name]
            dtype = _learned_dtype(after.dtype) if isinstance(after, nn.Parameter) else value.dtype
            if after.dtype != dtype:
                kept = (
                    torch.empty_like(after, dtype=dtype) if after.is_meta else value.to(after.device, dtype)
                )
                # A parameter stays the object that an optimiser knows.
                after.data = kept
        return self

    def resizable(self) -> dict[str, int | None]:
        """Constants that are not learned, shared or one per channel."""
        return {name: None for name in self.constant_names if name not in self.learnable}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Learned constants keep their shape: an optimiser may hold them."""
        for name in self.learnable:
            own, stored = getattr(self, name), state_dict.get(prefix + name)
            if stored is None or own.shape == stored.shape or stored.is_meta:
                continue
            if stored.dim() == 0:
                state_dict[prefix + name] = stored.expand(own.shape)
            elif own.dim() == 0 and stored.numel() and bool((stored == stored.flatten()[0]).all()):
                state_dict[prefix + name] = stored.flatten()[0]
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _own_constants(self) -> dict[str, Tensor]:
        """Returns what the module stores of the constants: themselves, or what a parametrization makes them of."""
        stored = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        names = {*self.constant_names, *(f"parametrizations.{n}.original" for n in self.constant_names)}
        return {name: tensor for name, tensor in stored.items() if name in names}

    def constants(self) -> dict[str, Tensor]:
        """Constants by name, `[]` or `[C]`, as `dynamics` gets them: in float64 where the device has it."""
        return {name: _widest(getattr(self, name)) for name in self.constant_names}

    def check_channels(self, channels: int, like: Tensor) -> None:
        """Raise ValueError unless the constants fit currents of so many channels on the device of `like`."""
        for name, value in self.constants().items():
            check_device(name, value, like)
            if value.dim() == 1 and len(value) != channels:
                raise ValueError(f"{name}: expected {channels} values, one per channel, got {len(value)}")


def _is_traced() -> bool:
    """Returns whether the call becomes part of a program that runs later, or of a transform."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or in_transform()


def _stays(tensor: Tensor) -> bool:
    """Returns whether a tensor is on a GPU, does not learn, and counts how often it is written to."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.device.type in _ALWAYS_ANEW:
        return False
    return not (tensor.requires_grad or tensor.is_inference() or _is_capturing(tensor))


def _is_capturing(tensor: Tensor) -> bool:
    """Returns whether what is done with a tensor goes into a CUDA graph."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _stream(tensor: Tensor) -> int:
    """The stream on which work with a tensor is queued."""
    return int(torch.cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else 0


def _learned_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of learned constants in a net of this dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _widest(value: Tensor) -> Tensor:
    """In float64 where the device has it, so that coefficients of learnable constants are rounded once."""
    return value if value.device.type == "mps" else value.double()


def broadcast(constants: Mapping[str, Tensor], axes: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Constants in shapes that broadcast with one step `[N, C, ...]` of so many axes."""
    shape = [-1, *[1] * max(axes - 2, 0)]
    return {
        name: value.to(dtype).reshape(shape) if value.dim() else value.to(dtype)
        for name, value in constants.items()
    }
