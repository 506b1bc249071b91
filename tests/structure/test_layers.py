"""Modules as tools see them: a layer with its neurons is one."""

from torch import nn

import snnlib
from snnlib.neurons import LIF, Integrator
from snnlib.structure.layers import outer_modules, spiking_modules


def test_tools_see_a_layer_and_its_neurons_as_one_module() -> None:
    net = nn.Sequential(
        snnlib.SpikingLinear(4, 3), snnlib.PerStep(nn.Linear(3, 3)), LIF(2.0), nn.Sequential(Integrator(3.0))
    )
    assert list(outer_modules(net)) == ["", "0", "1", "1.0", "2", "3", "3.0"]
    assert list(spiking_modules(net)) == ["0", "2"]
