"""Neurons of the user's own classes, for which `convert(neurons=...)` names neurons of snnlib."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.conversion.sequence_modules import WithStates
from snnlib.neurons import Neuron
from snnlib.structure.peers import OWN, attributes_kept, clear_states, package_of

# The neuron that stands for the modules of a class, or a function that makes it of a module.
Counterparts = Mapping[type[nn.Module], nn.Module | Callable[[Any], nn.Module]]
# Errors by which a net says that it does not take an input.
ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, AttributeError)
# Leaves of the arguments of a call, and tensors that it gave.
_Call = tuple[list[Any], list[Tensor]]


@dataclass
class Own:
    """A neuron of an own class.

    Args:
        made: the neuron that stands for it.
        whole: whether a call takes the whole sequence.
        current: place of the current among the leaves of a call's arguments.
        outputs: outputs of a call by name, as in `WithStates`.
    """

    made: nn.Module
    whole: bool = False
    current: int = 0
    outputs: tuple[str, ...] = ("s",)


def mark(net: nn.Module, x: Tensor, neurons: Counterparts) -> None:
    """Marks modules of these classes as neurons, within `attributes_kept`.

    Raises:
        TypeError: a class or its counterpart is no module.
        ValueError: the net has no module of a class.
    """
    for kind, given in neurons.items():
        found = {module: path for path, module in net.named_modules() if type(module) is kind}
        if not found:
            raise ValueError(f"neurons: expected classes of modules of the net, got {kind!r}")
        for module, path in found.items():
            made = copy.deepcopy(given) if isinstance(given, nn.Module) else given(module)
            if not isinstance(made, nn.Module):
                raise TypeError(f"neurons: expected a neuron of snnlib for {path}, got {made!r}")
            vars(module)[OWN] = Own(made)
    calls = _recorded(net, partial(net, x)) or _recorded(net, lambda: net(x[0]))
    for module, own in calls.items():
        mode = getattr(module, "step_mode", None)
        one = all(sum(isinstance(leaf, Tensor) for leaf in given) == 1 for given, _ in own)
        vars(module)[OWN].whole = mode == "m" if mode else one and not _keeps_state(module, own[0][0])


def fit(net: nn.Module, run: Callable[[], Any]) -> None:
    """Finds what arguments and outputs of marked modules are, from a run of the net: their order, and that of time."""
    for module, calls in _recorded(net, run).items():
        own: Own = vars(module)[OWN]
        given, before = calls[-1][0], [output for _, made in calls[:-1] for output in made]
        currents = (
            place
            for place, leaf in enumerate(given)
            if isinstance(leaf, Tensor) and not any(leaf is output for output in before)
        )
        own.current = next(currents, 0)
        with suppress(*ERRORS), torch.no_grad():
            if own.whole:
                _fit(own, given[own.current], calls[-1][1])
            else:
                outputs = [torch.stack(steps) for steps in zip(*(made for _, made in calls), strict=True)]
                _fit(own, torch.stack([leaves[own.current] for leaves, _ in calls]), outputs)


def _fit(own: Own, x: Tensor, outputs: list[Tensor]) -> None:
    """Names each output by what it resembles most, and takes the order of time in which the outputs do."""
    names, best, made = ("s", "v", "r") if len(outputs) > 1 else ("s",), 0.0, cast(Any, own.made)
    given: bool = getattr(made, "batch_first", False)
    orders = (given, not given) if own.whole else (False,)
    for order in orders if isinstance(made, Neuron) else orders[:1]:
        made.batch_first = order
        ours = dict(zip(names, WithStates(made, names)(x), strict=True))
        alike = [{name: _share(output, mine) for name, mine in ours.items()} for output in outputs]
        total = sum(max(shares.values()) for shares in alike)
        if total > best:
            best, given = total, order
            own.outputs = tuple(max(shares, key=lambda name: shares[name]) for shares in alike)
    made.batch_first = given


def _share(expected: Tensor, found: Tensor) -> float:
    """Returns which share of the values is alike."""
    return float(torch.isclose(expected, found, 1e-4, 1e-6).double().mean())


def _recorded(net: nn.Module, run: Callable[[], Any]) -> dict[nn.Module, list[_Call]]:
    """Returns the calls of marked modules in a run in evaluation mode from rest; none where the run fails."""
    calls = defaultdict[nn.Module, list[_Call]](list)
    marked = [module for module in net.modules() if OWN in vars(module)]
    if not marked:
        return calls

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        outputs = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
        calls[module].append((pytree.tree_leaves((args, kwargs)), outputs))

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(attributes_kept(net))
        clear_states(net.eval())
        for module in marked:
            stack.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        try:
            run()
        except ERRORS:
            # It takes no single step, or no sequence.
            calls.clear()
    return calls


def _keeps_state(module: nn.Module, given: list[Any]) -> bool:
    """Returns whether a second call with the same current gives something else, or changes a tensor that it holds."""
    (current,) = (leaf for leaf in given if isinstance(leaf, Tensor))
    # Below and above any threshold.
    current = torch.logspace(-3, 3, current.numel()).to(current).reshape(current.shape)
    seen = []
    with suppress(*ERRORS), torch.no_grad(), attributes_kept(module):
        for _ in range(2):
            held = [module(current), *vars(module).values(), *module.buffers()]
            seen.append([leaf.clone() for leaf in pytree.tree_leaves(held) if isinstance(leaf, Tensor)])
    return len({*map(len, seen)}) != 1 or not all(map(torch.equal, *seen))


def counterpart(module: nn.Module) -> nn.Module:
    """Returns the neuron that stands for a marked module."""
    made: nn.Module = vars(module)[OWN].made
    return made


def is_own(net: nn.Module, path: str) -> bool:
    """Returns whether the module at this path is marked."""
    return OWN in vars(net.get_submodule(path))


def advice(*classes: str) -> str:
    """Returns the argument of `convert` that says which neuron a class is, for the end of a message."""
    shown = ", ".join(f"{name}: snnlib.neurons.LIF(tau=2.0)" for name in classes or ("TheirNeuron",))
    return (
        f"; of neurons of your own say which of snnlib's they are: neurons={{{shown}}} (docs/moving-nets.md)"
    )


def own_classes(net: nn.Module) -> list[str]:
    """Returns the names of classes of a net that may be neurons of the user's own."""
    packages = ("torch", "snnlib", "spikingjelly", "snntorch", "norse")
    return sorted(
        {
            type(module).__name__
            for module in net.modules()
            if module is not net and package_of(module) not in packages and not any(module.children())
        }
    )
