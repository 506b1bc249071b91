"""Conversion of nets that need not be traced: chains of modules, and SpikingJelly's nets over sequences."""

from __future__ import annotations

from torch import nn

from snnlib.exchange.conversion.modules import (
    Notes,
    dropout_leaf,
    is_torch,
    neuron_leaf,
    shallow_copy,
    states_of,
    torch_leaf,
)
from snnlib.exchange.conversion.recurrent_containers import container
from snnlib.structure.peers import neuron_library

# Classes of other libraries whose call is that of their children, one after the other.
_CHAINS = {
    "norse": ("SequentialState",),
    "spikingjelly": ("MultiStepContainer", "SeqToANNContainer", "StepModeContainer"),
}


def is_chain(module: nn.Module) -> bool:
    """Returns whether a module calls its children one after the other and does nothing else."""
    library = type(module).__module__.partition(".")[0]
    if library in _CHAINS and type(module).__name__ in _CHAINS[library]:
        return not getattr(module, "return_hidden", False)
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def is_chain_of_leaves(net: nn.Module) -> bool:
    """Returns whether a net is chains of neurons and torch modules all the way down."""
    return is_chain(net) and all(
        neuron_library(child) is not None
        or is_torch(child)
        or is_chain_of_leaves(child)
        or is_dropout(child)
        or _is_lift(child)
        or is_recurrent(child)
        for child in net.children()
    )


def takes_sequences(net: nn.Module) -> bool:
    """Returns whether all modules of a net are SpikingJelly's in step mode "m", which map sequences to sequences."""
    inside = {
        part
        for module in net.modules()
        if is_recurrent(module)
        for part in module.modules()
        if part is not module
    }
    # What a recurrent container calls takes single steps.
    modules = [module for module in net.modules() if module not in inside]
    modes = [getattr(module, "step_mode", None) for module in modules]
    neurons = [module for module in net.modules() if neuron_library(module) is not None]
    # Torch's own modules within such a net stand in containers that fold time.
    return bool(neurons) and all(mode in ("m", None) for mode in modes) and "m" in modes


def replace_chain(net: nn.Module, notes: Notes, path: str = "", stepwise: bool = True) -> nn.Module:
    """The same chain over sequences, with the same names.

    Args:
        net: a chain of leaves.
        notes: where to write what was done.
        path: of the chain in its net.
        stepwise: whether the net was called step by step.
    """
    children: dict[str, nn.Module] = {}
    count = len(list(net.children()))
    for number, (name, child) in enumerate(net.named_children()):
        full = f"{path}.{name}".lstrip(".")
        if neuron_library(child) is not None:
            read = len(states_of(child)) if number == count - 1 else 0
            children[name] = neuron_leaf(full, child, notes, read)
        elif is_chain(child):
            children[name] = replace_chain(child, notes, full, stepwise)
        else:
            children[name] = leaf(full, child, notes, stepwise)
    made = nn.Sequential()
    for name, child in children.items():
        made.add_module(name, child)
    return made


def leaf(path: str, module: nn.Module, notes: Notes, stepwise: bool) -> nn.Module:
    """A module that is no neuron and no chain, over sequences."""
    if _is_lift(module):
        return leaf(path, module.lifted_module, notes, stepwise=True)  # type: ignore[arg-type]
    if is_recurrent(module):
        return container(path, module, notes)
    return dropout_leaf(path, module, notes) or torch_leaf(path, module, notes, stepwise)


def replace_in_place_of(net: nn.Module, notes: Notes, path: str = "") -> nn.Module:
    """A copy of a net over sequences in which every leaf is replaced; its own `forward` and parameters stay."""
    if neuron_library(net) is not None:
        return neuron_leaf(path, net, notes)
    if type(net).__name__ == "SeqToANNContainer":
        return replace_chain(net, notes, path, stepwise=False)
    theirs = type(net).__module__.startswith("spikingjelly.")
    if is_recurrent(net) or is_dropout(net) or (theirs and is_torch(net)):
        return leaf(path, net, notes, stepwise=False)
    if theirs and (".neuron." in type(net).__module__ or not list(net.children())):
        notes.left[path] = f"SpikingJelly's {type(net).__name__} has no counterpart"
        return net
    # Torch's own stay: what calls them decides what they see.
    if not list(net.children()):
        return net
    children: dict[str, nn.Module | None] = {
        name: replace_in_place_of(child, notes, f"{path}.{name}".lstrip("."))
        for name, child in net.named_children()
    }
    made = shallow_copy(net, type(net))
    made._modules.update(children)
    return made


def _is_lift(module: nn.Module) -> bool:
    return type(module).__name__ == "Lift" and type(module).__module__.startswith("norse.")


def is_recurrent(module: nn.Module) -> bool:
    """Returns whether a module is one of SpikingJelly's recurrent containers."""
    names = ("LinearRecurrentContainer", "ElementWiseRecurrentContainer")
    return type(module).__name__ in names and type(module).__module__.startswith("spikingjelly.")


def is_dropout(module: nn.Module) -> bool:
    """Returns whether a module is SpikingJelly's dropout."""
    return dropout_leaf("", module, Notes()) is not None
