"""Constants of a converted neuron: parameters of the module that it comes from, numbers, and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.exchange.conversion.sequence_modules import RecurrentNeurons
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.neurons import Neuron
from snnlib.surrogate import Surrogate, match

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
                # A tensor of one element is shared by all channels.
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


def one_number(name: str, value: Any) -> float:
    """A constant of another library that all neurons share.

    Raises:
        Unsupported: it differs between neurons.
    """
    if isinstance(value, Tensor) and value.numel() != 1:
        raise Unsupported(f"a {name} that differs between neurons has no counterpart")
    return float(value)


def check_above_zero(threshold: Tensor | float) -> None:
    """Raises Unsupported for a threshold at which a neuron at rest fires."""
    lowest = float(torch.as_tensor(threshold).detach().min())
    if not lowest > 0:
        raise Unsupported(f"a threshold of {lowest:g}, which is not above 0, has no counterpart")


@dataclass(frozen=True)
class InPotential(Surrogate):
    """A surrogate whose widths are in units of the membrane potential, whatever the threshold.

    Args:
        bump: the surrogate of a neuron with a threshold of 1.
    """

    bump: Surrogate

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The shape of the bump."""
        return self.bump.kind

    def coefficients(self, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Height and scale at a threshold of 1."""
        return self.bump.coefficients(torch.ones_like(threshold))


def check_spike_at_threshold(spike: Callable[[Tensor], Tensor], expected: bool) -> None:
    """Raises Unsupported where a spike function decides otherwise than its library at the threshold itself."""
    if bool(spike(torch.zeros(1)).any()) != expected:
        does = "fires" if not expected else "does not fire"
        raise Unsupported(f"a spike function that {does} at the threshold itself has no counterpart")


def matched(spike: Callable[[Tensor], Tensor], threshold: Tensor) -> Surrogate | None:
    """Returns the surrogate of a spike function for a module's threshold, or None."""
    if threshold.numel() == 1 and not isinstance(threshold, nn.Parameter):
        return match(spike, float(threshold))
    found = match(spike, 1.0)
    if found is None or found.coefficients(torch.tensor(1.0)) == found.coefficients(torch.tensor(2.0)):
        return found
    # The original's widths are in potentials, which thresholds that differ or learn must not change.
    return InPotential(found)


def is_per_neuron(made: nn.Module) -> bool:
    """Returns whether a converted neuron is recurrent or has constants that differ between neurons."""
    return any(
        isinstance(part, RecurrentNeurons)
        or (isinstance(part, Neuron) and any(value.dim() for value in part.constants().values()))
        for part in made.modules()
    )
