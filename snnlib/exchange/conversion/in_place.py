"""Conversion of nets whose modules see whole sequences: their own `forward` stays, and its leaves are replaced."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.conversion import chains
from snnlib.exchange.conversion.modules import (
    Notes,
    is_dropout,
    is_torch,
    neuron_leaf,
    outputs_of,
    plain_torch,
    shallow_copy,
)
from snnlib.exchange.conversion.sequence_modules import Kept
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import called_children
from snnlib.structure import peers
from snnlib.structure.peers import attributes_kept, clear_states, holds_states, neuron_library, package_of


def takes_sequences(net: nn.Module) -> bool:
    """Returns whether a neuron or another stateful module of a net is called once for the whole sequence."""
    return any(
        peers.takes_sequences(module) and _is_stateful(module) for module in _outer_modules(net).values()
    )


def replace_leaves(net: nn.Module, x: Tensor, notes: Notes) -> nn.Module:
    """A copy of a net over sequences in which every leaf is replaced; its own `forward` and parameters stay.

    Args:
        net: the net.
        x: an input, for one run in evaluation mode.
        notes: where to write what was done.

    Raises:
        Unsupported: a state goes from one call of a module to the next, or is not cleared.
    """
    if chains.is_chain_of_leaves(net) and type(net).__name__ == "SequentialState":
        return chains.replace_chain(net, notes, whole=True)
    return _replaced(net, _ranks(net, x), notes, "")


def _outer_modules(net: nn.Module) -> dict[str, nn.Module]:
    """All modules but what is inside of a container that calls it step by step, or of a neuron."""
    return dict(
        chains.modules_until(net, lambda module: chains.runs_steps(module) or bool(neuron_library(module)))
    )


def _is_stateful(module: nn.Module) -> bool:
    """Returns whether a module holds states, or runs modules that do step by step."""
    if chains.is_lift(module):
        return any(map(holds_states, module.modules()))
    return holds_states(module) or (chains.runs_steps(module) and any(map(_is_stateful, module.children())))


def _ranks(net: nn.Module, x: Tensor) -> dict[nn.Module, int]:
    """Dimensions of what each module is given, in a run of the net from rest.

    Raises:
        Unsupported: a state is carried from call to call in this run, or goes on in the next.
    """
    ranks: dict[nn.Module, int] = {}
    outer = _outer_modules(net)

    def note(path: str, module: nn.Module, args: Any) -> None:
        if module in ranks and getattr(module, "_memories", None):
            raise chains.called_again(path, module)
        ranks[module] = args[0].dim() if args and isinstance(args[0], Tensor) else 0

    own = {
        path: module for path, module in outer.items() if not (_is_stateful(module) or chains.is_leaf(module))
    }
    with ExitStack() as stack:
        for path, module in outer.items():
            stack.callback(module.register_forward_pre_hook(partial(note, path)).remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(attributes_kept(net))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        net.eval()
        before = {path: dict(module.__dict__) for path, module in own.items()}
        outputs = []
        for _ in range(2):
            ranks.clear()
            clear_states(net)
            torch.manual_seed(0)
            outputs.append(pytree.tree_leaves(net(x.clone())))
        changed = [
            f"{path or 'the net'} ({name})"
            for path, module in own.items()
            for name, value in module.__dict__.items()
            if before[path].get(name) is not value
        ]
    pairs = (pair for pair in zip(*outputs, strict=False) if isinstance(pair[0], Tensor))
    same = (a.shape == b.shape and torch.allclose(a, b, equal_nan=True) for a, b in pairs)
    if changed and not all(same):
        raise Unsupported(
            f"{changed[0]} keeps a state of its own from call to call, which convert cannot clear"
        )
    return ranks


def _replaced(net: nn.Module, ranks: dict[nn.Module, int], notes: Notes, path: str) -> nn.Module:
    made: Any = _new_module(net, ranks, notes, path)
    if made is not net and hasattr(net, "step_mode") and not hasattr(made, "step_mode"):
        # A `forward` of SpikingJelly asks its modules for the mode.
        made.step_mode, made.supported_step_mode = "m", partial(tuple, ("m",))
    return made  # type: ignore[no-any-return]


def _new_module(net: nn.Module, ranks: dict[nn.Module, int], notes: Notes, path: str) -> nn.Module:
    theirs, whole = package_of(net) == "spikingjelly", peers.takes_sequences(net)
    if neuron_library(net) is not None:
        read = len(outputs_of(net)) - 1
        return neuron_leaf(path, net, notes, read, whole=True, chained=False)
    if chains.is_chain(net) and chains.runs_steps(net):
        folded = type(net).__name__ == "SeqToANNContainer" or getattr(net, "stateful", True) is False
        if not folded or not any(map(_is_stateful, net.modules())):
            return chains.replace_chain(net, notes, path, stepwise=not folded)
    elif whole and ((theirs and is_torch(net)) or chains.is_recurrent(net) or is_dropout(net)):
        # A linear layer takes what has no time any more, too.
        return plain_torch(net) if ranks.get(net) == 2 else chains.leaf(path, net, notes, stepwise=False)
    children = dict(called_children(net))
    if getattr(net, "_memories", None) or chains.runs_steps(net):
        notes.left[path] = f"{type(net).__name__} has no counterpart"
        return Kept(net, whole=True)
    if not children:
        # Torch's own stay: what calls them decides what they see.
        if theirs:
            notes.left[path] = f"SpikingJelly's {type(net).__name__} has no counterpart"
        return net
    made = shallow_copy(net, type(net))
    for name, child in children.items():
        made._modules[name] = _replaced(child, ranks, notes, f"{path}.{name}".lstrip("."))
    return made
