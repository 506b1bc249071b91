"""Modules of other libraries and of torch as they become in a net over sequences."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from snnlib.exchange.conversion import norse, own_neurons, snntorch, spikingjelly
from snnlib.exchange.conversion.sequence_modules import EachStep, Kept, RecurrentNeurons, WithStates
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.nn import AvgPool2d, MaxPool2d, PerStep, SpikeDropout
from snnlib.structure.peers import OWN, is_class, neuron_library, package_of, takes_sequences

_BUILDERS: dict[str, Callable[[Any], nn.Module]] = {
    **{"snntorch": snntorch.neuron, "spikingjelly": spikingjelly.neuron, "norse": norse.neuron},
    "own": own_neurons.counterpart,
}
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
_POOLS: dict[type[nn.Module], type[nn.Module]] = {nn.MaxPool2d: MaxPool2d, nn.AvgPool2d: AvgPool2d}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass
class Notes:
    """Notes on what was done with each module, by its path in the net.

    Args:
        done: modules that were replaced.
        left: modules that stay as they are, with the reason.
        keep: modules that have to stay, with the reason.
        whole: lines about the net.
    """

    done: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    keep: dict[str, str] = field(default_factory=dict)
    whole: list[str] = field(default_factory=list)

    def kept(self, path: str, module: nn.Module, whole: bool) -> Kept | None:
        """Returns the module as it is, if it has to stay."""
        if path not in self.keep:
            return None
        self.left[path] = self.keep[path]
        return Kept(module, whole)

    def shown(self) -> str:
        """A line for each module."""
        rows = [*self.done.items(), *((path, f"left as it is: {why}") for path, why in self.left.items())]
        rows += [("", line) for line in self.whole]
        width = max((len(path) for path, _ in rows), default=0)
        return "\n".join(f"{path or '(net)':{max(width, 5)}}  {text}" for path, text in rows)


def neuron_leaf(
    path: str, module: nn.Module, notes: Notes, read: int = 0, whole: bool = False, chained: bool = True
) -> nn.Module:
    """A neuron over sequences; a module without counterpart is `Kept`.

    Args:
        path: of the module in its net.
        module: a neuron of another library.
        notes: where to write what was done.
        read: place of the last of its outputs that is needed.
        whole: whether the net calls it once for the whole sequence.
        chained: whether nothing but its spikes is read, and no state handed to it.
    """
    library = neuron_library(module)
    assert library is not None
    try:
        if path in notes.keep:
            raise Unsupported(notes.keep[path])
        if library != "own" and (package_of(module) != library or "forward" in vars(module)):
            raise Unsupported(
                f"{type(module).__name__} is a class of its own{own_neurons.advice(type(module).__name__)}"
            )
        if whole and not takes_sequences(module):
            raise Unsupported(f"{type(module).__name__} runs one step in a net over sequences")
        made: nn.Module = _BUILDERS[library](module)
        outputs = outputs_of(module)
        if read >= len(outputs):
            raise Unsupported(f"a state of {type(module).__name__} is read, which has no counterpart")
        if outputs[: read + 1] != ("s",):
            made = _with_states(made, outputs[: read + 1])
        if not chained and library not in ("own", "spikingjelly"):
            raise Unsupported(f"{type(module).__name__} gives its state to the code of the net")
        mine = {id(parameter) for parameter in made.parameters()}
        for name, parameter in module.named_parameters():
            if id(parameter) not in mine:
                raise Unsupported(f"its parameter {name} has no counterpart")
    except ValueError as reason:
        if library == "own":
            raise Unsupported(f"{path} ({type(module).__name__}): {reason}") from reason
        # An option without counterpart, or out of the range that our neurons take.
        notes.left[path] = str(reason)
        return Kept(module, whole, gives_states=library != "norse" or read > 0 or not chained)
    notes.done[path] = f"{type(module).__name__} -> {_name(made)}"
    return made


def _with_states(made: nn.Module, outputs: tuple[str, ...]) -> nn.Module:
    if "e" in outputs:
        raise Unsupported("a trace of Alpha is read, which has no counterpart")
    dynamics = getattr(made, "dynamics", None)
    if dynamics is None or dynamics(made.constants()) is None:  # type: ignore[operator]
        raise Unsupported(f"{type(made).__name__} does not give its membrane potential")
    return WithStates(made, outputs)  # type: ignore[arg-type]


def outputs_of(module: nn.Module) -> tuple[str, ...]:
    """Returns the outputs of a neuron of another library by name, in order; spikes alone for hidden states."""
    library = neuron_library(module)
    if library == "own":
        outputs: tuple[str, ...] = vars(module)[OWN].outputs
        return outputs
    states = snntorch.STATES.get(type(module).__name__.removeprefix("R"), ())
    if library == "snntorch" and states and (module.output or not module.init_hidden):
        return ("s", *states)
    return ("s",)


def torch_leaf(path: str, module: nn.Module, notes: Notes, statistics_per_step: bool) -> nn.Module:
    """A torch module over sequences, with the module's own parameters.

    Args:
        path: of the module in its net.
        module: a module of torch, or one of SpikingJelly's that is derived from one.
        notes: where to write what was done.
        statistics_per_step: whether the net called it step by step, so that batch statistics are each step's own.
    """
    kept = notes.kept(path, module, takes_sequences(module) or not statistics_per_step)
    if kept is not None:
        return kept
    if is_dropout(module):
        p: Any = module.p
        notes.done[path] = f"Dropout({p}) -> SpikeDropout({p}), random numbers in another order"
        return SpikeDropout(p)
    plain = plain_torch(module)
    kind = type(plain).__name__
    if statistics_per_step and (isinstance(plain, _BATCH_NORMS) or _iterates(plain)):
        notes.done[path] = f"{kind} -> EachStep({kind}), with statistics of each step"
        return EachStep(plain)
    if type(plain) in _POOLS and not getattr(plain, "return_indices", False):
        notes.done[path] = f"{kind} -> {kind} over the sequence"
        return shallow_copy(plain, _POOLS[type(plain)])
    if isinstance(plain, (*_PER_SAMPLE, *_BATCH_NORMS)) or _keeps_samples(plain):
        notes.done[path] = f"{kind} -> PerStep({kind})"
        return PerStep(plain)
    notes.done[path] = f"{kind}, step by step"
    return Kept(plain, whole=False)


def _iterates(module: nn.Module) -> bool:
    """Returns whether every call in training changes what a weight is computed from, as a spectral norm does."""
    hooks = module._forward_pre_hooks.values()
    return any(type(hook).__name__ == "SpectralNorm" for hook in hooks) or (
        is_parametrized(module) and any(True for _ in module.parametrizations.buffers())  # type: ignore[union-attr]
    )


def is_dropout(module: nn.Module) -> bool:
    """Returns whether a module is SpikingJelly's dropout, which silences a cell for the whole sequence."""
    return is_class(module, "spikingjelly", "Dropout")


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
    if package_of(module) != "spikingjelly":
        return module
    if is_parametrized(module):
        # Its class computes the weights.
        made: Any = shallow_copy(module, type(module))
        made.step_mode = "s"
        return made  # type: ignore[no-any-return]
    return shallow_copy(module, type(module).__mro__[1])


def shallow_copy(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A module of this class with the same parameters, whose own lists of them may be changed."""
    made: nn.Module = kind.__new__(kind)
    for name, value in module.__dict__.items():
        own = isinstance(value, MethodType) and value.__self__ is module
        held = copy(value) if isinstance(value, dict | list | set) else value
        made.__dict__[name] = MethodType(value.__func__, made) if own else held
    return made


def is_torch(module: nn.Module) -> bool:
    """Returns whether a module is one of torch's, or derived from one by SpikingJelly, that does work of its own."""
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return False
    kind, base = type(module).__mro__[is_parametrized(module) :][:2]
    kind = base if package_of(module) == "spikingjelly" else kind
    return kind.__module__.startswith("torch.nn.modules.") and kind is not nn.Module


def _name(module: nn.Module) -> str:
    if isinstance(module, WithStates):
        return (
            f"{type(module.neuron).__name__} with {', '.join(name for name in module.outputs if name != 's')}"
        )
    if isinstance(module, nn.Sequential):
        return " and ".join(_name(part) for part in module)
    if isinstance(module, RecurrentNeurons):
        return f"RecurrentNeurons of {type(module.neuron).__name__}"
    return type(module).__name__
