"""The table of a net's layers: parameters of each, and the firing of those that spike."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.inspect.activity import SATURATED_RATE, LayerActivity
from snnlib.inspect.operations import Profile

COLUMNS = ("layer", "type", "parameters", "neurons", "spikes/step", "dead", "saturated")
NOTE = (
    "Spikes/step: spikes per neuron and time step, mean over the data. Dead neurons never fire; saturated ones fire in "
    f"more than {SATURATED_RATE:.0%} of all time steps."
)


def layer_table(net: nn.Module, activity: list[LayerActivity], profile: Profile) -> list[tuple[str, ...]]:
    """A row of texts in `COLUMNS` for each module with parameters of its own or with spikes, and a row of totals."""
    firing = {layer.name: layer for layer in activity}
    parameters = {layer.name: layer.parameters for layer in profile.layers if layer.parameters}
    names = [name for name, _ in net.named_modules() if name in firing or name in parameters]
    rows = []
    for name in names:
        layer, module = firing.get(name), net.get_submodule(name)
        numbers = ("", "", "", "") if layer is None else layer.texts()
        kind = type_before_parametrizations(module).__name__
        rows.append((name or "(net)", kind, f"{parameters.get(name, 0):,}", *numbers))
    neurons = sum(layer.neurons for layer in activity)
    return [*rows, ("all", "", f"{sum(parameters.values()):,}", f"{neurons:,}", "", "", "")]
