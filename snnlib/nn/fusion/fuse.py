"""`fuse_`: computes modules behind each other as one block, without tensors in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from snnlib.checks import warn_caller
from snnlib.neurons import Neuron
from snnlib.nn.fusion.event_driven_map import EventDrivenMap, linear_map_of
from snnlib.nn.fusion.fused_block import Block, flattens
from snnlib.nn.fusion.gain import gain_of, takes_time
from snnlib.nn.fusion.gradient_kinds import gradient_findings
from snnlib.nn.fusion.handover import FlattenCall, PartForward, computed, handing_over, places_of
from snnlib.nn.fusion.linear_map import first_linear_map, runs_on_events
from snnlib.nn.fusion.normalized_block import FlattenedMap, block_at
from snnlib.nn.fusion.traced_chains import ModuleCall, chains_in_both_modes, unchanged
from snnlib.nn.layers.per_step import PerStep
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.chunk import in_chunks

__all__ = ["fuse_", "unfuse_"]

Net = TypeVar("Net", bound=nn.Module)


class Fused:
    """Part of a class whose modules run in blocks; `fuse_` makes it, `unfuse_` undoes it.

    Children, their names, the `forward` and the `state_dict` stay those of the class before. A child can still be
    called alone. Children may be exchanged: a block whose modules are no longer behind each other runs as separate
    layers.
    """

    # Blocks by the name of their first module; a slice of the net has none.
    fused_blocks: dict[str, Block] = {}  # noqa: RUF012 - replaced as a whole, never changed

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the net's output."""
        net = cast(nn.Module, self)
        run = _kind(net).forward
        if run is nn.Sequential.forward:
            (value,) = (*args, *kwargs.values())
            for part in parts_of(net):
                value = part(value)
            return value
        # A compiler cannot follow parts that wait; in a chunk layers continue from their states.
        if torch.compiler.is_compiling() or in_chunks():
            return run(net, *args, **kwargs)
        with handing_over(places_of([block for block in self.fused_blocks.values() if block.at_home()])):
            return computed(run(net, *args, **kwargs))

    def extra_repr(self) -> str:
        """Returns which modules run as one."""
        net = cast(nn.Module, self)
        names = {module: name for name, module in net.named_modules()}
        spans = [
            "+".join(
                "flatten" if isinstance(part, FlattenCall) else names.get(part, "-") for part in block.parts
            )
            for block in self.fused_blocks.values()
        ]
        own = _kind(net).extra_repr(net)
        return ", ".join(filter(None, [own, "blocks: " + ", ".join(spans)]))

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles: the class of a fused net is generated, so pickle cannot find it by name."""
        kind: Any = _kind(cast(nn.Module, self))
        own = getattr(kind, "__getstate__", None)
        # From Python 3.11 on every class has one.
        if own is None or own is getattr(object, "__getstate__", None):
            return _new_fused, (kind,), self.__dict__
        return _new_fused, (kind,), own(self)


def parts_of(net: nn.Module) -> Iterator[nn.Module]:
    """Returns the blocks of an `nn.Sequential`, and the modules outside of blocks, in their order."""
    blocks = getattr(net, "fused_blocks", {})
    names, modules = list(net._modules), list(net._modules.values())
    at = 0
    while at < len(modules):
        block = blocks.get(names[at])
        if block is not None and _same(block.parts, modules[at : at + len(block.parts)]):
            yield block
            at += len(block.parts)
        else:
            yield cast(nn.Module, modules[at])
            at += 1


def _same(a: Sequence[nn.Module], b: Sequence[nn.Module | None]) -> bool:
    return len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))


_fused_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _fused_class(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _fused_classes:
        # Functions of this module tell torch.export the arguments of the net's forward.
        forward = FunctionType(Fused.forward.__code__, Fused.forward.__globals__, "forward")
        members = {"__doc__": kind.__doc__, "forward": update_wrapper(forward, kind.forward, ("__doc__",))}
        _fused_classes[kind] = type(f"Fused{kind.__name__}", (Fused, kind), members)
    return _fused_classes[kind]


def _new_fused(kind: type[nn.Module]) -> nn.Module:
    made = _fused_class(kind)
    return made.__new__(made)


def _kind(net: nn.Module) -> type[nn.Module]:
    """Returns the class before `fuse_`."""
    kind = type(net)
    return cast(type[nn.Module], kind.__bases__[-1]) if issubclass(kind, Fused) else kind


def fuse_(net: Net, x: Tensor | None = None) -> Net:
    """Computes modules behind each other as one block, in place; returns the net.

    Neighbours in every `nn.Sequential` are found without an input. With an input `x` the net runs twice without
    gradients, in training and in evaluation mode, and modules that its classes' own `forward` call one after the other
    are found as well: blocks of residual nets and of your own classes. On a CPU the costs of this batch then decide: a
    layer or block that would not gain is left as it is, and so is a block that gives other values for its part of the
    batch than its modules one after the other. Blocks are:

    - `SRMConv2d` with the `SpikeAvgPool2d` behind it, or `SpikingConv2d` with the average pooling of its kind of
      gradient: one kernel, which does not store the spikes before pooling, the largest tensors of a spiking conv net;
    - `PerStep(nn.Conv2d(...), nn.BatchNorm2d(...))`, `PerStep` without the batch norm, or with `snnlib.BatchNorm2d`
      behind it; then neurons with a surrogate gradient, and optionally `AvgPool2d`: event-driven currents, which the
      neurons normalise on reading, in training by the statistics of the batch. The same with `nn.Conv1d` and
      `nn.Linear`;
    - `nn.Flatten(2)` or `PerStep(nn.Flatten())` with the `SpikingLinear`, the `SRMLinear` or the `PerStep` of an
      `nn.Linear` behind it; with an `x` also `.flatten(2)` of the output of a module of this library: the fully
      connected layer reads the frames as they are in memory, and nothing is copied in either pass;
    - `PerStep` of a convolution or linear layer anywhere else in the net, as in converted nets: event-driven currents.

    Convolutions in a `PerStep` on a GPU become channels-last, as tensor cores read them: move the net before `fuse_`.

    Children, their names and the `state_dict` stay the same, and `unfuse_` dissolves the blocks. Results and gradients
    are the same up to rounding. A block runs as separate layers if one of its modules has a hook, so that the hook
    sees the output of its module; a block with batch norm also in dtypes other than float32 and in compiled nets.

    `fuse_` leaves out pools with overlap, padding, `ceil_mode` or a divisor; standalone neurons with an event-driven
    gradient, whose weights need another signal than their currents; batch norm with statistics per step; and
    modules that are called several times, or whose output something else reads; classes whose `forward` reads values
    of tensors, as in `if x.sum() > 0`; and, without `x`, all classes with their own `forward`. Call `unfuse_` before
    `copy.copy` of a part or `nn.DataParallel`, if `fuse_` had an input.

    Args:
        net: any module.
        x: an input of the net, `[T, N, ...]`. Buffers, modes and random numbers are afterwards what they were.

    Raises:
        ValueError: surrogate neurons before a `SpikeAvgPool2d`, which would mix two kinds of gradient.

    Warns:
        UserWarning: a layer of exact spike times next to a module with ordinary gradients; a module that is left out as
            its `forward` reads values of tensors, or as its block gave other values.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2))
    >>> x = (torch.rand(10, 1, 2, 10, 10) < 0.2).float()
    >>> expected = net(x)
    >>> torch.equal(snnlib.fuse_(net)(x), expected)
    True
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = snnlib.PerStep(torch.nn.Conv2d(2, 8, 3, padding=1), torch.nn.BatchNorm2d(8))
    ...         self.neuron = snnlib.neurons.LIF()
    ...     def forward(self, x):
    ...         return self.neuron(self.conv(x)).mean((3, 4))
    >>> snnlib.fuse_(Net(), torch.rand(4, 16, 2, 64, 64)).extra_repr()
    'blocks: conv+neuron'
    """
    for finding in gradient_findings(net):
        warn_caller(finding)
    # Nothing has changed before every block was found.
    unfuse_(net)
    found: dict[nn.Module, dict[str, Block]] = {}
    # Modules whose blocks and maps the costs have decided.
    decided: dict[nn.Module, bool] = {}
    if x is not None:
        found, decided = _traced_blocks(net, x)
    within = {part for blocks in found.values() for block in blocks.values() for part in block.parts}
    for module in net.modules():
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            blocks = _blocks_of(module, within.union(decided))
            if blocks:
                found[module] = {**found.get(module, {}), **blocks}
                within.update(part for block in blocks.values() for part in block.parts)
    for module, blocks in found.items():
        _fuse(module, blocks)
    for module in net.modules():
        if module not in within and decided.get(module, True) and linear_map_of(module) is not None:
            module.__class__ = EventDrivenMap
        linear = first_linear_map(module) if isinstance(module, PerStep) else None
        if isinstance(linear, nn.Conv2d) and linear.weight.device.type != "cpu":
            cast(Any, linear).to(memory_format=torch.channels_last)
    return net


def _fuse(module: nn.Module, blocks: dict[str, Block]) -> None:
    """Gives a module its blocks, and the modules within a way to hand inputs over if it has a `forward` of its own."""
    kind = type(module)
    module.__class__ = _fused_class(kind)
    cast(Fused, module).fused_blocks = blocks
    if kind.forward is not nn.Sequential.forward:
        parts = {part for block in blocks.values() for part in block.parts}
        for part in module.modules():
            # Other modules of this library take tensors alone.
            if _is_leaf(part) and (_is_ours(part) or part in parts) and "forward" not in vars(part):
                part.__dict__["forward"] = PartForward(part)


def _is_leaf(module: nn.Module) -> bool:
    """Returns whether what happens within a module is its own affair: a possible part, or one of torch and snnlib."""
    if isinstance(module, PerStep | Neuron | SpikingLayer):
        return True
    package = type(module).__module__.partition(".")[0]
    parts = (part for part in module.modules() if part is not module)
    return package in ("torch", "snnlib") and not any(
        isinstance(part, PerStep | Neuron | SpikingLayer) for part in parts
    )


def _traced_blocks(
    net: nn.Module, x: Tensor
) -> tuple[dict[nn.Module, dict[str, Block]], dict[nn.Module, bool]]:
    """Returns the blocks among the calls of a net by owner, and which linear maps gain from events without a block."""
    chains, left = chains_in_both_modes(net, x, _is_leaf)
    for reason in left:
        warn_caller(f"fuse_: left as it is: {reason}")
    names = {module: name for name, module in net.named_modules()}
    found: dict[nn.Module, dict[str, Block]] = {}
    decided: dict[nn.Module, bool] = {}
    within: set[nn.Module] = set()
    for before, chain in _beginnings(chains):
        first = int(len(chain) > 1 and flattens(chain[0].module))
        head = chain[first]
        linear, gain = linear_map_of(head.module), None
        if linear is not None and takes_time(head.x) and runs_on_events(linear, head.x):
            gain = gain_of(linear, head.x)
            decided[head.module] = gain.as_map > 0
        if gain is None or (gain.as_block > max(gain.as_map, 0)) or (first and gain.as_map > 0):
            # Torch's batch norm runs behind a map that gains nothing as a block.
            whole = gain is None or gain.as_block > gain.as_map
            added = _block_of_calls(net, chain if whole else chain[: first + 1], names, within, before)
            if added is None:
                continue
            owner, own, block = added
            with unchanged(net):
                agrees = _agrees(block, chain[0].x)
            if not agrees:
                parts = ", ".join(names.get(part, "flatten") for part in block.parts)
                warn_caller(
                    f"fuse_: left as they are: {parts}: other values in one block than one after the other"
                )
                continue
            found.setdefault(owner, {})[own] = block
            within.update(block.parts)
    return found, decided


def _beginnings(
    chains: Iterable[list[ModuleCall]],
) -> Iterator[tuple[tuple[ModuleCall, ...], list[ModuleCall]]]:
    """Yields chains in which a block may begin, with the call before it if the first is the function `x.flatten(2)`."""
    for chain in chains:
        if not isinstance(chain[0].module, FlattenCall):
            yield (), chain
        # Modules of this library alone can hand on what stands for their output.
        if len(chain) > 2 and isinstance(chain[1].module, FlattenCall) and _is_ours(chain[0].module):
            yield (chain[0],), chain[1:]


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("snnlib.")


# Share of values that rounding may change, and the number in small sequences; a wrong block changes most.
_ROUNDED, _FEW_ROUNDED = 1e-3, 2


@torch.no_grad()
def _agrees(block: Block, x: Tensor) -> bool:
    """Returns whether a block gives the values of its parts in both modes, but for spikes that rounding moves."""
    for training in (True, False):
        for part in block.parts:
            part.train(training)
        apart, fused = block.run_apart(x), block.run_fused(x)
        if apart.shape != fused.shape or apart.dtype != fused.dtype:
            return False
        # A flattening with a map gives currents, which round.
        changed = int((~torch.isclose(apart, fused, 1e-3, 1e-4, equal_nan=True)).sum())
        if changed > max(_ROUNDED * apart.numel(), _FEW_ROUNDED):
            return False
    return True


def _block_of_calls(
    net: nn.Module,
    chain: Sequence[ModuleCall],
    names: dict[nn.Module, str],
    within: set[nn.Module],
    before: tuple[ModuleCall, ...],
) -> tuple[nn.Module, str, Block] | None:
    """Returns the longest block at the begin of a chain, with its owner and the name of the first part there.

    The owner is the innermost module whose `forward` calls all parts, and what is `before` a function.
    """
    children = [(names.get(call.module, ""), call.module) for call in chain]
    while len(children) > 1:
        block = block_at(children)
        if block is None or within.intersection(block.parts):
            return None
        callers = [call.running for call in (*before, *chain[: len(block.parts)])]
        shared = [pair[0] for pair in zip(*callers, strict=False) if len({*pair}) == 1]
        owner = shared[-1]
        # The loop of an `nn.Sequential` runs children alone.
        loops = type(owner).forward is nn.Sequential.forward
        if not (loops and any(part not in owner.children() for part in block.parts)):
            block.before = tuple(call.module for call in before)
            block.homes = tuple((*_home(net, names[part]), part) for part in block.parts if part in names)
            between = {caller: None for each in callers for caller in each[len(shared) :]}
            block.watched = (*block.before, *block.parts, *between)
            own = next(name for name, module in owner.named_modules() if module in block.parts)
            return owner, own, block
        children = children[: len(block.parts) - 1]
    return None


def _home(net: nn.Module, path: str) -> tuple[nn.Module, str]:
    """Returns the parent of a module, and its name there."""
    parent, _, name = path.rpartition(".")
    return net.get_submodule(parent), name


def _blocks_of(net: nn.Sequential, within: set[nn.Module]) -> dict[str, Block]:
    """Returns the blocks of neighbours that are not within another block."""
    children = [(name, module) for name, module in net._modules.items() if module is not None]
    blocks: dict[str, Block] = {}
    at = 0
    while at < len(children):
        block = block_at(children[at:])
        if block is None or within.intersection(block.parts):
            at += 1
            continue
        blocks[children[at][0]] = block
        at += len(block.parts)
    return blocks


def unfuse_(net: Net) -> Net:
    """Undoes `fuse_`, in place: every layer runs by itself again.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2))
    >>> type(snnlib.unfuse_(snnlib.fuse_(net))) is torch.nn.Sequential
    True
    """
    for module in net.modules():
        if isinstance(module, Fused):
            _unfuse(module)
        elif isinstance(module, EventDrivenMap):
            module.__class__ = PerStep  # type: ignore[assignment]
    return net


def _unfuse(module: Any) -> None:
    for part in module.modules():
        if isinstance(vars(part).get("forward"), PartForward):
            del part.__dict__["forward"]
    del module.fused_blocks
    module.__class__ = _kind(module)


@contextmanager
def unfused(net: nn.Module) -> Iterator[None]:
    """Undoes `fuse_` within a `with` block.

    >>> import torch, snnlib
    >>> net = snnlib.fuse_(torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2)))
    >>> with snnlib.nn.fusion.fuse.unfused(net):
    ...     type(net)
    <class 'torch.nn.modules.container.Sequential'>
    >>> net.extra_repr()
    'blocks: 0+1'
    """
    fused = [(module, module.fused_blocks) for module in net.modules() if isinstance(module, Fused)]
    maps = [module for module in net.modules() if isinstance(module, EventDrivenMap)]
    unfuse_(net)
    try:
        yield
    finally:
        for module, blocks in fused:
            _fuse(cast(nn.Module, module), blocks)
        for each in maps:
            each.__class__ = EventDrivenMap


def blocks_by_part(net: nn.Module) -> dict[nn.Module, Block]:
    """Returns the block of every module in the blocks of an `nn.Sequential`, for tools that watch a net.

    Blocks of other classes run as layers wherever a tool watches one of their parts. A hook on a module makes its block
    run as layers; a hook on the block leaves it fused and sees its output. Blocks without neurons are left out.
    """
    found: dict[nn.Module, Block] = {}
    for module in net.modules():
        if isinstance(module, Fused) and _kind(module).forward is nn.Sequential.forward:
            for part in parts_of(module):
                if isinstance(part, Block) and not isinstance(part, FlattenedMap):
                    found.update(
                        dict.fromkeys((inner for own in part.parts for inner in own.modules()), part)
                    )
    return found
