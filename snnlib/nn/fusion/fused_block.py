"""Blocks of modules behind each other that run as one: how they are found and computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.neurons.base import Output
from snnlib.neurons.training_words import learns_when_silent
from snnlib.nn.fusion.handover import FlattenCall, apart, handed_on
from snnlib.nn.fusion.hooks import is_watched
from snnlib.nn.layers.per_step import AvgPool2d, PerStep, pooling_window
from snnlib.nn.layers.spike_pool import SpikeAvgPool2d
from snnlib.nn.layers.spiking import SpikingConv2d, SpikingLinear
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.layers.srm import SRMConv2d

Child = tuple[str, nn.Module]


class Block(nn.Module):
    """Modules behind each other that run as one, or one after the other if one of them has a hook.

    The block stays fused if the hook, or the function that replaces the `forward` of a part, has an attribute
    `sees_blocks`: its tool handles blocks as well.
    """

    def __init__(
        self, parts: Sequence[nn.Module], weighted: nn.Module, neurons: nn.Module, window: tuple[int, int]
    ) -> None:
        super().__init__()
        # A tuple, as the parts are children of the net and not of the block.
        self.parts = tuple(parts)
        # The module with the weight, the part that fires, and the window over which its spikes are averaged.
        self._modules_within, self.window = (weighted, neurons), window
        # Modules whose hooks a fused run would bypass: the parts, and containers of some of them.
        self.watched = self.parts
        # The module whose output is flattened, if the first part is a function.
        self.before: tuple[nn.Module, ...] = ()
        # Parent, name and part, where the parts were found by their calls.
        self.homes: tuple[tuple[nn.Module, str, nn.Module], ...] = ()

    @property
    def weighted(self) -> nn.Module:
        """Returns the layer or the linear map whose weight the block applies."""
        return self._modules_within[0]

    @property
    def neurons(self) -> nn.Module:
        """Returns the layer with neurons, or the standalone neurons, among the parts."""
        return self._modules_within[1]

    def at_home(self) -> bool:
        """Returns whether no part was exchanged since the block was found by calls."""
        for parent, name, part in self.homes:  # noqa: SIM110 - `all` takes twice as long
            if parent._modules.get(name) is not part:
                return False
        return True

    def forward(self, x: Tensor) -> Tensor:
        """Output of the last part."""
        return handed_on(self.parts[-1], self.run_apart(x) if is_watched(self.watched) else self.run_fused(x))  # type: ignore[no-any-return]

    def run_apart(self, x: Tensor) -> Tensor:
        """Runs the parts one after the other."""
        # Compiled parts hand nothing over, and a compiler cannot follow who does.
        with nullcontext() if torch.compiler.is_compiling() else apart(self):
            for part in self.parts:
                x = part(x)
        return x

    def run_fused(self, x: Tensor) -> Tensor:
        """Runs the parts as one."""
        raise NotImplementedError


class FusedLayer(Block):
    """A layer with neurons, and the average pooling of its spikes or the flattening of its input, in one kernel."""

    def __init__(self, parts: Sequence[nn.Module], layer: SpikingLayer, window: tuple[int, int]) -> None:
        super().__init__(parts, layer, layer, window)

    def run_fused(self, x: Tensor) -> Tensor:
        """Pooled spikes."""
        return cast(SpikingLayer, self.neurons).forward(x, pool=self.window)

    def run(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """Returns pooled spikes from a state of the layer, and its state after the last step."""
        layer = cast(SpikingLayer, self.neurons)
        # Steps of the input in a state have the shape that the layer alone would store.
        if layer.keeps_input and flattens(self.parts[0]):
            x = self.parts[0](x)
        return layer.run(x, state, pool=self.window)


def flattens(module: nn.Module) -> bool:
    """Returns whether a module makes features of the frames of a sequence: `nn.Flatten(2)`, `PerStep(nn.Flatten())`."""
    first = 2
    if type(module) is PerStep and len(module) == 1:
        first, module = 1, module[0]
    if not isinstance(module, nn.Flatten) or type(module) not in (nn.Flatten, FlattenCall):
        return False
    return module.start_dim == first and module.end_dim == -1


def flattened_layer_at(children: Sequence[Child]) -> Block | None:
    """Returns the block of a flattening and the fully connected layer behind it, which reads frames without it."""
    if len(children) < 2 or not flattens(children[0][1]):
        return None
    parts = [module for _, module in children[:2]]
    kind = type_before_parametrizations(parts[1])
    if not issubclass(kind, SpikingLinear) or kind.__module__.partition(".")[0] != "snnlib":
        return None
    return FusedLayer(parts, cast(SpikingLayer, parts[1]), (1, 1))


def pooled_layer_at(children: Sequence[Child]) -> Block | None:
    """Returns the block of a spiking layer and its pooling that begins at the first of these neighbours, or None."""
    if len(children) < 2:
        return None
    (name, layer), (pool_name, pool) = children[:2]
    # A parametrized weight, as a standardised one is, gives its layer a class of its own. A user's class may do more in
    # its forward than the layer that it is made of.
    kind = type_before_parametrizations(layer)
    if not issubclass(kind, (SpikingConv2d, SRMConv2d)) or kind.__module__.partition(".")[0] != "snnlib":
        return None
    layer = cast(SpikingLayer, layer)
    if learns_when_silent(layer):
        check_pool(name, pool_name, pool)
    if type(pool) is not (AvgPool2d if learns_when_silent(layer) else SpikeAvgPool2d):
        return None
    window = pooling_window(pool)
    return None if window is None else FusedLayer((layer, pool), layer, window)


def check_pool(name: str, pool_name: str, pool: nn.Module) -> None:
    """Raises ValueError for a pooling with the event-time gradient behind surrogate neurons."""
    if type(pool) is SpikeAvgPool2d:
        raise ValueError(
            f"net: expected AvgPool2d after {name}, whose neurons have a surrogate gradient, got "
            f"SpikeAvgPool2d at {pool_name}, whose event-time gradient is for SRM neurons"
        )
