"""Modules of other libraries and of torch as they become in a net over sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from snnlib.exchange.conversion import norse, snntorch, spikingjelly
from snnlib.exchange.conversion.sequence_modules import EachStep, RecurrentNeurons, Steps, WithStates
from snnlib.nn.dropout import SpikeDropout
from snnlib.nn.per_step import AvgPool2d, MaxPool2d, PerStep
from snnlib.structure.peers import neuron_library
from snnlib.structure.unsupported import Unsupported

_BUILDERS = {"snntorch": snntorch.neuron, "spikingjelly": spikingjelly.neuron, "norse": norse.neuron}
# Torch modules that treat every sample of dimension 0 alike, so that time and batch may be one dimension.
_PER_SAMPLE = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.AvgPool1d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d),
    *(nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d, nn.LPPool1d, nn.LPPool2d, nn.FractionalMaxPool2d),
    *(nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU),
    *(nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Hardtanh, nn.Hardsigmoid, nn.Identity, nn.Dropout),
    *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.Upsample, nn.ZeroPad2d),
    *(nn.ConstantPad2d, nn.ReflectionPad2d, nn.PixelShuffle, nn.PixelUnshuffle, nn.Embedding),
)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Notes:
    """Notes on what was done with each module, by its path in the net."""

    done: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """A line for each module."""
        rows = [*self.done.items(), *((path, f"left as it is: {why}") for path, why in self.left.items())]
        width = max((len(path) for path, _ in rows), default=0)
        return "\n".join(f"{path or '(net)':{max(width, 5)}}  {text}" for path, text in rows)


def neuron_leaf(path: str, module: nn.Module, notes: Notes, read: int = 0) -> nn.Module:
    """A neuron over sequences; a module without counterpart becomes `Steps` around itself.

    Args:
        path: of the module in its net.
        module: a neuron of another library.
        notes: where to write what was done.
        read: how many of the tensors that it returns beside the spikes are needed.
    """
    library = neuron_library(module)
    assert library is not None
    try:
        made: nn.Module = _BUILDERS[library](module)
        if read:
            states = states_of(module)
            if read > len(states):
                raise Unsupported(f"a state of {type(module).__name__} is read, which has no counterpart")
            made = _with_states(made, states)
    except Unsupported as reason:
        notes.left[path] = str(reason)
        hidden = library == "spikingjelly" or bool(getattr(module, "init_hidden", False))
        return Steps(module, hidden, gives_states=read > 0)
    notes.done[path] = f"{type(module).__name__} -> {_name(made)}"
    return made


def _with_states(made: nn.Module, states: tuple[str, ...]) -> nn.Module:
    if "e" in states:
        raise Unsupported("a trace of Alpha is read, which has no counterpart")
    dynamics = getattr(made, "dynamics", None)
    if dynamics is None or dynamics(made.constants()) is None:  # type: ignore[operator]
        raise Unsupported(f"{type(made).__name__} does not give its membrane potential")
    return WithStates(made, states)  # type: ignore[arg-type]


def states_of(module: nn.Module) -> tuple[str, ...]:
    """Returns what a neuron of another library returns beside its spikes, in order; empty for hidden states."""
    library = neuron_library(module)
    if library == "snntorch" and (module.output or not module.init_hidden):
        return snntorch.states_of(module)
    return ()


def torch_leaf(path: str, module: nn.Module, notes: Notes, statistics_per_step: bool) -> nn.Module:
    """A torch module over sequences, with the module's own parameters.

    Args:
        path: of the module in its net.
        module: a module of torch, or one of SpikingJelly's that is derived from one.
        notes: where to write what was done.
        statistics_per_step: whether the net called it step by step, so that batch statistics are each step's own.
    """
    plain = plain_torch(module)
    kind = type(plain).__name__
    if isinstance(plain, _BATCH_NORMS) and statistics_per_step:
        notes.done[path] = f"{kind} -> EachStep({kind}), with statistics of each step"
        return EachStep(plain)
    if type(plain) is nn.MaxPool2d and not plain.return_indices:
        notes.done[path] = "MaxPool2d -> MaxPool2d over the sequence"
        return MaxPool2d(
            plain.kernel_size, plain.stride, plain.padding, plain.dilation, ceil_mode=plain.ceil_mode
        )
    if type(plain) is nn.AvgPool2d:
        notes.done[path] = "AvgPool2d -> AvgPool2d over the sequence"
        return AvgPool2d(
            plain.kernel_size,
            plain.stride,
            plain.padding,
            plain.ceil_mode,
            plain.count_include_pad,
            plain.divisor_override,
        )
    if isinstance(plain, (*_PER_SAMPLE, *_BATCH_NORMS)) or _keeps_samples(plain):
        notes.done[path] = f"{kind} -> PerStep({kind})"
        return PerStep(plain)
    notes.done[path] = f"{kind}, step by step"
    return Steps(plain, hidden_states=True)


def dropout_leaf(path: str, module: Any, notes: Notes) -> nn.Module | None:
    """SpikingJelly's dropout, which silences a cell for the whole sequence."""
    if type(module).__name__ != "Dropout" or not type(module).__module__.startswith("spikingjelly."):
        return None
    notes.done[path] = f"Dropout({module.p}) -> SpikeDropout({module.p}), random numbers in another order"
    return SpikeDropout(module.p)


def _keeps_samples(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    if isinstance(module, nn.Unflatten):
        return isinstance(module.dim, int) and module.dim >= 1
    if isinstance(module, nn.Softmax | nn.LogSoftmax):
        return module.dim is not None and module.dim >= 1
    return False


def plain_torch(module: nn.Module) -> nn.Module:
    """The torch module that one of SpikingJelly's is derived from, with the same parameters; others as they are."""
    if not type(module).__module__.startswith("spikingjelly."):
        return module
    bases = type(module).__mro__[1:]
    base = next((kind for kind in bases if kind.__module__.startswith("torch.nn.modules.")), None)
    if base is None or base is nn.Module or type(module).__mro__[1] is not base:
        raise Unsupported(f"SpikingJelly's {type(module).__name__} has no counterpart")
    return shallow_copy(module, base)


def shallow_copy(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A module of this class with the same parameters, whose own lists of them may be changed."""
    made: nn.Module = kind.__new__(kind)
    made.__dict__ = {**module.__dict__}
    for name in ("_parameters", "_buffers", "_modules"):
        made.__dict__[name] = dict(module.__dict__[name])
    return made


def is_torch(module: nn.Module) -> bool:
    """Returns whether a module is one of torch's, or derived from one by SpikingJelly, that does work of its own."""
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return False
    kinds = type(module).__mro__[: 2 if type(module).__module__.startswith("spikingjelly.") else 1]
    return any(kind.__module__.startswith("torch.nn.modules.") and kind is not nn.Module for kind in kinds)


def _name(module: nn.Module) -> str:
    if isinstance(module, WithStates):
        return f"{type(module.neuron).__name__} with {', '.join(module.states)}"
    if isinstance(module, nn.Sequential):
        return " and ".join(_name(part) for part in module)
    if isinstance(module, RecurrentNeurons):
        return f"RecurrentNeurons of {type(module.neuron).__name__}"
    return type(module).__name__
