"""`fuse_`: computes neighbours in an `nn.Sequential` as one block, without tensors in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from snnlib.checks import warn_caller
from snnlib.nn.fusion.event_driven_map import EventDrivenMap, linear_map_of
from snnlib.nn.fusion.fused_block import Block, pooled_layer_at
from snnlib.nn.fusion.gradient_kinds import gradient_findings
from snnlib.nn.fusion.linear_map import first_linear_map
from snnlib.nn.fusion.normalized_block import normalized_neurons_at
from snnlib.nn.layers.per_step import PerStep

__all__ = ["fuse_", "unfuse_"]

Net = TypeVar("Net", bound=nn.Module)


class Fused(nn.Sequential):
    """An `nn.Sequential` whose layers run in blocks; `fuse_` makes it, `unfuse_` undoes it.

    Children, their names and the `state_dict` stay those of the `nn.Sequential`. A child can still be called alone.
    Children may be exchanged: a block whose modules are no longer neighbours runs as separate layers.
    """

    # Blocks by the name of their first module; a slice of the net has none.
    blocks: dict[str, Block] = {}  # noqa: RUF012 - replaced as a whole, never changed

    def forward(self, input: Tensor) -> Tensor:
        """Returns the output of the last part."""
        for part in self.parts():
            input = part(input)
        return input

    def parts(self) -> Iterator[nn.Module]:
        """Returns the blocks, and the modules outside of blocks, in their order."""
        names, modules = list(self._modules), list(self._modules.values())
        at = 0
        while at < len(modules):
            block = self.blocks.get(names[at])
            if block is not None and _same(block.parts, modules[at : at + len(block.parts)]):
                yield block
                at += len(block.parts)
            else:
                yield modules[at]
                at += 1

    def extra_repr(self) -> str:
        """Returns which children run as one."""
        names = list(self._modules)
        spans = [names[(at := names.index(name)) : at + len(b.parts)] for name, b in self.blocks.items()]
        return "blocks: " + ", ".join("+".join(span) for span in spans)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles: the class of a fused subclass is generated, so pickle cannot find it by name."""
        return _new_fused, (_kind(self),), self.__dict__


def _same(a: Sequence[nn.Module], b: Sequence[nn.Module | None]) -> bool:
    return len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))


_fused_classes: dict[type, type[Fused]] = {nn.Sequential: Fused}


def _fused_class(kind: type[nn.Sequential]) -> type[Fused]:
    if kind not in _fused_classes:
        _fused_classes[kind] = type(f"Fused{kind.__name__}", (Fused, kind), {})
    return _fused_classes[kind]


def _new_fused(kind: type[nn.Sequential]) -> Fused:
    made = _fused_class(kind)
    return made.__new__(made)


def _kind(net: Fused) -> type[nn.Sequential]:
    """Returns the class before `fuse_`."""
    return cast(type[nn.Sequential], type(net).__bases__[-1])


def fuse_(net: Net) -> Net:
    """Computes neighbours in every `nn.Sequential` of a net as one block, in place; returns the net.

    - `SRMConv2d` with the `SpikeAvgPool2d` behind it, or `SpikingConv2d` with the average pooling of its kind of
      gradient: one kernel, which does not store the spikes before pooling, the largest tensors of a spiking conv net;
    - `PerStep(nn.Conv2d(...), nn.BatchNorm2d(...))`, `PerStep` without the batch norm, or with `snnlib.BatchNorm2d`
      behind it; then neurons with a surrogate gradient, and optionally `AvgPool2d`: event-driven currents, which the
      neurons normalise on reading, in training by the statistics of the batch. The same with `nn.Conv1d` and
      `nn.Linear`;
    - `PerStep` of a convolution or linear layer anywhere else in the net, as in converted nets: event-driven currents.

    Convolutions in a `PerStep` on a GPU become channels-last, as tensor cores read them: move the net before `fuse_`.

    Children, their names and the `state_dict` stay the same, and `unfuse_` dissolves the blocks. Results and gradients
    are the same up to rounding. A block runs as separate layers if one of its modules has a hook, so that the hook
    sees the output of its module; a block with batch norm also in dtypes other than float32 and in compiled nets.

    `fuse_` leaves out pools with overlap, padding, `ceil_mode` or a divisor; standalone neurons with an event-driven
    gradient, whose weights need another signal than their currents; batch norm with statistics per step; and
    subclasses of `nn.Sequential` with their own `forward`.

    Args:
        net: any module.

    Raises:
        ValueError: surrogate neurons before a `SpikeAvgPool2d`, which would mix two kinds of gradient.

    Warns:
        UserWarning: a layer of exact spike times next to a module with ordinary gradients.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2))
    >>> x = (torch.rand(10, 1, 2, 10, 10) < 0.2).float()
    >>> expected = net(x)
    >>> torch.equal(snnlib.fuse_(net)(x), expected)
    True
    """
    for finding in gradient_findings(net):
        warn_caller(finding)
    found: list[tuple[nn.Sequential, type[nn.Sequential], dict[str, Block]]] = []
    for module in net.modules():
        if not isinstance(module, nn.Sequential):
            continue
        kind = _kind(module) if isinstance(module, Fused) else type(module)
        if kind.forward is nn.Sequential.forward and (blocks := _blocks_of(module)):
            found.append((module, kind, blocks))
    within = {part for *_, blocks in found for block in blocks.values() for part in block.parts}
    # Nothing has changed before every block was found.
    for module, kind, blocks in found:
        module.__class__ = _fused_class(kind)
        cast(Fused, module).blocks = blocks
    for module in net.modules():
        if module not in within and linear_map_of(module) is not None:
            module.__class__ = EventDrivenMap
        linear = first_linear_map(module) if isinstance(module, PerStep) else None
        if isinstance(linear, nn.Conv2d) and linear.weight.device.type != "cpu":
            cast(Any, linear).to(memory_format=torch.channels_last)
    return net


def _blocks_of(net: nn.Sequential) -> dict[str, Block]:
    children = [(name, module) for name, module in net._modules.items() if module is not None]
    blocks: dict[str, Block] = {}
    at = 0
    while at < len(children):
        block = pooled_layer_at(children[at:]) or normalized_neurons_at(children[at:])
        if block is not None:
            blocks[children[at][0]] = block
        at += 1 if block is None else len(block.parts)
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
            del module.blocks
            module.__class__ = _kind(module)  # type: ignore[assignment]
        elif isinstance(module, EventDrivenMap):
            module.__class__ = PerStep  # type: ignore[assignment]
    return net


@contextmanager
def unfused(net: nn.Module) -> Iterator[None]:
    """Undoes `fuse_` within a `with` block.

    >>> import torch, snnlib
    >>> net = snnlib.fuse_(torch.nn.Sequential(snnlib.SRMConv2d(2, 8, 3), snnlib.SpikeAvgPool2d(2)))
    >>> with snnlib.nn.fusion.fuse.unfused(net):
    ...     type(net)
    <class 'torch.nn.modules.container.Sequential'>
    >>> type(net)
    <class 'snnlib.nn.fusion.fuse.Fused'>
    """
    fused = [(module, type(module), module.blocks) for module in net.modules() if isinstance(module, Fused)]
    maps = [module for module in net.modules() if isinstance(module, EventDrivenMap)]
    unfuse_(net)
    try:
        yield
    finally:
        for module, kind, blocks in fused:
            module.__class__ = kind
            module.blocks = blocks
        for each in maps:
            each.__class__ = EventDrivenMap


def blocks_by_part(net: nn.Module) -> dict[nn.Module, Block]:
    """Returns the block of every fused module, for tools that watch a net in a forward pass.

    A hook on a module makes its block run as layers; a hook on the block leaves it fused and sees its output.
    """
    found: dict[nn.Module, Block] = {}
    for module in net.modules():
        if isinstance(module, Fused):
            for part in module.parts():
                if isinstance(part, Block):
                    found.update(
                        dict.fromkeys((inner for own in part.parts for inner in own.modules()), part)
                    )
    return found
