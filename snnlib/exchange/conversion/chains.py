"""Conversion of chains of modules, which need not be traced."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from snnlib.exchange.conversion.modules import (
    Notes,
    is_dropout,
    is_torch,
    neuron_leaf,
    outputs_of,
    torch_leaf,
)
from snnlib.exchange.conversion.recurrent_containers import container
from snnlib.exchange.conversion.sequence_modules import Kept
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import called_children, name_of
from snnlib.structure.peers import holds_states, is_class, neuron_library, package_of, takes_sequences

# Classes of SpikingJelly whose call is that of their children, one after the other.
_CHAINS = ("MultiStepContainer", "SeqToANNContainer", "StepModeContainer")


def modules_until(
    net: nn.Module, stop: Callable[[nn.Module], bool], path: str = ""
) -> Iterator[tuple[str, nn.Module]]:
    """All modules of a net by path, but for those inside of a module at which the walk stops."""
    yield path, net
    if not stop(net):
        for name, child in net.named_children():
            yield from modules_until(child, stop, f"{path}.{name}".lstrip("."))


def is_chain(module: nn.Module) -> bool:
    """Returns whether a module calls its children one after the other and does nothing else."""
    if "forward" in vars(module):
        return False
    if is_class(module, "norse", "SequentialState") or is_class(module, "spikingjelly", *_CHAINS):
        return not getattr(module, "return_hidden", False)
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def is_chain_of_leaves(net: nn.Module) -> bool:
    """Returns whether a net is chains of neurons and torch modules all the way down."""
    return is_chain(net) and all(is_chain_of_leaves(child) or is_leaf(child) for child in net.children())


def is_leaf(module: nn.Module) -> bool:
    """Returns whether a net calls a module as a whole: neurons, torch's modules, and layers of other libraries."""
    # A package's class without modules of its own computes with tensors alone.
    plain = package_of(module) in ("spikingjelly", "snntorch", "norse") and not is_chain(module)
    simple = plain and not any(neuron_library(part) for part in module.modules())
    return is_torch(module) or is_lift(module) or is_recurrent(module) or holds_states(module) or simple


def runs_steps(module: nn.Module) -> bool:
    """Returns whether a module of SpikingJelly takes a sequence and calls what is inside of it by steps or frames."""
    known = is_class(module, "spikingjelly", "TLastMultiStepContainer", "TLastSeqToANNContainer", *_CHAINS)
    return (known or is_recurrent(module)) and takes_sequences(module)


def replace_chain(
    net: nn.Module, notes: Notes, path: str = "", stepwise: bool = True, whole: bool = False
) -> nn.Module:
    """Returns the chain over sequences, with the same names.

    Args:
        net: a chain of leaves.
        notes: where to write what was done.
        path: of the chain in its net.
        stepwise: whether the net was called step by step.
        whole: whether its modules were called with whole sequences; torch's own then stay.

    Raises:
        Unsupported: a neuron in several places, whose state goes from one to the next.
    """
    places = Counter(child for parent in net.modules() for _, child in called_children(parent))
    for name, module in net.named_modules():
        # Norse's chains hold a state of each place.
        kept = [part for part in module.modules() if holds_states(part) and neuron_library(part) != "norse"]
        if kept and places[module] > 1:
            raise called_again(f"{path}.{name}".lstrip("."), module)
    children: dict[str, nn.Module] = {}
    called = called_children(net)
    for number, (name, child) in enumerate(called):
        full = f"{path}.{name}".lstrip(".")
        lifted = child.lifted_module if is_lift(child) else None
        if isinstance(lifted, nn.Module) and neuron_library(lifted) is not None:
            children[name] = neuron_leaf(full, lifted, notes)
        elif neuron_library(child) is not None:
            read = len(outputs_of(child)) - 1 if number == len(called) - 1 else 0
            children[name] = neuron_leaf(full, child, notes, read, whole)
        elif is_chain(child):
            children[name] = replace_chain(child, notes, full, stepwise, whole)
        elif whole and not is_lift(child) and not isinstance(child, nn.Linear):
            children[name] = child
        else:
            children[name] = leaf(full, child, notes, stepwise)
    return nn.Sequential(OrderedDict(children))


def called_again(path: str, module: nn.Module) -> Unsupported:
    """Returns the error for a module whose state goes from one call to the next in a forward."""
    return Unsupported(
        f"{name_of(path, module)} is called more than once in a forward, and its state goes from call to call; give "
        "each place a module of its own"
    )


def leaf(path: str, module: nn.Module, notes: Notes, stepwise: bool) -> nn.Module:
    """A module that is no neuron and no chain, over sequences."""
    if is_lift(module) and not any(map(neuron_library, module.modules())):
        lifted: Any = module.lifted_module
        return leaf(path, lifted, notes, stepwise=True)
    if is_recurrent(module):
        return container(path, module, notes, whole=not stepwise)
    if is_torch(module) or is_dropout(module):
        return torch_leaf(path, module, notes, stepwise)
    if any(map(holds_states, module.modules())):
        notes.left[path] = f"{type(module).__name__} has no counterpart"
    else:
        notes.done[path] = f"{type(module).__name__}, step by step"
    return Kept(module, takes_sequences(module) or not stepwise, gives_states=not is_lift(module))


def is_lift(module: nn.Module) -> bool:
    """Returns whether a module of Norse calls another at each step of a sequence."""
    return is_class(module, "norse", "Lift")


def is_recurrent(module: nn.Module) -> bool:
    """Returns whether a module is one of SpikingJelly's recurrent containers."""
    return is_class(module, "spikingjelly", "LinearRecurrentContainer", "ElementWiseRecurrentContainer")
