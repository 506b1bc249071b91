"""Constants of a converted neuron that are parameters of the module it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.neurons import Neuron
from snnlib.structure.unsupported import Unsupported

Source = tuple[nn.Module, str, Callable[[Tensor], Tensor]]


def with_shared_constants(neuron: Neuron, shared: Mapping[str, Source]) -> Neuron:
    """The neuron with constants that follow parameters of another module, so that both learn the same numbers.

    It gets a subclass of its own, whose `constants` are computed from parameters that it now holds as well, under their
    names there.

    Args:
        neuron: changed in place, unless nothing is shared.
        shared: `{name of the constant: (module, its parameter, function of it)}`.
    """
    if not shared:
        return neuron
    base = type(neuron)

    class _Shared(base):  # type: ignore[misc,valid-type]
        def constants(self) -> dict[str, Tensor]:
            own: dict[str, Tensor] = super().constants()
            for name, (parameter, function) in self.sources.items():
                value: Tensor = function(getattr(self, parameter))
                # One number in a tensor of one element is shared by all channels.
                own[name] = value.reshape(()) if value.numel() == 1 else value
            return own

    _Shared.__name__ = _Shared.__qualname__ = base.__name__
    neuron.__class__ = _Shared
    neuron.sources = {name: (parameter, function) for name, (_, parameter, function) in shared.items()}
    for name, (module, parameter, _) in shared.items():
        if parameter in neuron._buffers:
            del neuron._buffers[parameter]
        if name != parameter and name in neuron._buffers:
            # The value that it had is of no use any more.
            neuron.register_buffer(name, neuron._buffers[name], persistent=False)
        neuron.register_parameter(parameter, getattr(module, parameter))
    return neuron


def number(name: str, value: Any) -> Tensor:
    """A constant of another library: a number, or one per channel, as floating point.

    Raises:
        Unsupported: it has more axes.
    """
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    tensor = tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())
    if tensor.numel() == 1:
        return tensor.reshape(())
    if tensor.dim() != 1:
        raise Unsupported(f"{name} of shape {tuple(tensor.shape)} is neither a number nor one per channel")
    return tensor
