"""`PerStep` of a linear map whose currents are sums over events: what `fuse_` makes of those that are in no block."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.backends import choice
from snnlib.functional.normalized import along_channels
from snnlib.functional.spiking import layer_currents
from snnlib.nn.fused_block import is_watched
from snnlib.nn.linear_map import LinearMap, first_linear_map, operator_of, runs_on_events
from snnlib.nn.per_step import PerStep


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
        by_events = x.device.type == "cpu" or choice.chosen() == "events"
        if linear is None or not by_events or is_watched(self.children()) or not runs_on_events(linear, x):
            return super().forward(x)
        current = layer_currents(x, linear.weight, operator_of(linear), time_dim=0)
        if linear.bias is not None:
            current = current + along_channels(linear.bias, current)
        return current if len(self) == 1 else self.run_from(1, current)


def as_event_driven_map(module: nn.Module) -> LinearMap | None:
    """The linear map of a `PerStep` that may become an `EventDrivenMap`."""
    if not isinstance(module, PerStep) or type(module) not in (PerStep, EventDrivenMap):
        return None
    return first_linear_map(module)
