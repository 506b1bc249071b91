"""A `PerStep` with an event-driven linear map, which `fuse_` substitutes for a `PerStep` outside of blocks."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.backends import algorithm
from snnlib.nn.fusion.hooks import is_watched
from snnlib.nn.fusion.linear_map import LinearMap, currents_of, first_linear_map, runs_on_events
from snnlib.nn.layers.per_step import PerStep


class EventDrivenMap(PerStep):
    """`PerStep` whose first module, a linear map of torch, is event-driven; `fuse_` makes it, `unfuse_` undoes it.

    Children, their names and the `state_dict` stay the same. Currents equal torch's up to rounding: sparse inputs use
    sums over events, also for the gradients of weights, and dense inputs use torch's products. The module runs as
    `PerStep` if a module within has a hook, in dtypes other than float32, under autocast, in compiled nets, and on a
    GPU.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns the modules' output with the first two dimensions of `x`."""
        out = None if is_watched(self.children()) else run_on_events(self, x)
        return super().forward(x) if out is None else out


def run_on_events(modules: PerStep, x: Tensor, flattens: bool = False) -> Tensor | None:
    """Returns the output of modules behind an event-driven linear map; None where torch's map has to run.

    With `flattens` the map reads the frames of x without `nn.Flatten(2)`.
    """
    linear = first_linear_map(modules)
    # A GPU adds events in the CPU's order where that is asked for.
    by_events = x.device.type == "cpu" or algorithm.chosen() == "events"
    if linear is None or not by_events or not runs_on_events(linear, x, flattens):
        return None
    return modules.run_from(1, currents_of(linear, x))


def linear_map_of(module: nn.Module) -> LinearMap | None:
    """Returns the linear map of a `PerStep` that can become an `EventDrivenMap`, else None."""
    if not isinstance(module, PerStep) or type(module) not in (PerStep, EventDrivenMap):
        return None
    return first_linear_map(module)
