"""A `PerStep` whose linear map adds events; `fuse_` puts it in the place of those that no block contains."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.backends import algorithm
from snnlib.nn.fusion.fused_block import is_watched
from snnlib.nn.fusion.linear_map import LinearMap, currents_of, first_linear_map, runs_on_events
from snnlib.nn.layers.per_step import PerStep


class EventDrivenMap(PerStep):
    """`PerStep` whose first module is a linear map of torch; `fuse_` makes it, `unfuse_` makes it what it was.

    Its children, their names and the `state_dict` stay. Currents equal torch's up to rounding: where few inputs are
    events they are sums over these, and so are gradients of weights; elsewhere they are torch's products. It runs as
    `PerStep` where a module within carries a hook, in other dtypes than float32, under autocast, in compiled nets, and
    on a GPU.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The modules' output with the first two dimensions of `x`."""
        linear = first_linear_map(self)
        # A GPU adds events in the CPU's order where that is asked for.
        by_events = x.device.type == "cpu" or algorithm.chosen() == "events"
        if linear is None or not by_events or is_watched(self.children()) or not runs_on_events(linear, x):
            return super().forward(x)
        return self.run_from(1, currents_of(linear, x))


def linear_map_of(module: nn.Module) -> LinearMap | None:
    """The linear map of a `PerStep` that may become an `EventDrivenMap`."""
    if not isinstance(module, PerStep) or type(module) not in (PerStep, EventDrivenMap):
        return None
    return first_linear_map(module)
