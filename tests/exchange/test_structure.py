"""A net as a graph of operations: their order, what they read, and modules without an operation."""

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange.structure.operations import Flatten, Neurons, Pool, Sum, Weights
from snnlib.exchange.structure.stages import stages_of
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.exchange.structure.walk import graph_of
from snnlib.neurons import LIF


class Branches(nn.Module):
    """Two paths that read one layer, and dropout that leaves no trace."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = snnlib.SpikingConv2d(2, 2, 3, padding=1), snnlib.SpikingConv2d(2, 2, 1)
        self.drop = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.flatten(self.drop(self.second(y) + y), 2)


def test_steps_come_in_the_order_of_the_calls_with_what_they_read() -> None:
    graph = graph_of(nn.Sequential(Branches(), snnlib.SpikingLinear(8, 3)))
    kinds = [type(step.operation) for step in graph.steps]
    layer = [Weights, Neurons]
    assert kinds == [*layer, *layer, Sum, Flatten, Flatten, *layer]
    first, second, total = graph.steps[1], graph.steps[3], graph.steps[4]
    assert total.sources == (second, first) and total.where == "0 (Branches)"
    assert graph.steps[0].sources == (graph.input,) and graph.output is graph.steps[-1]
    # Readers: the second layer and the sum.
    assert graph.readers()[first] == 2 and graph.readers()[graph.output] == 1
    assert [step.part for step in graph.steps if step.path == "0.first"] == ["weight", "neuron"]
    assert [step.part for step in graph.steps if step.path == "1"] == ["flatten", "weight", "neuron"]


def test_axes_that_lead_are_those_of_the_call() -> None:
    flatten = nn.Flatten(1)
    inside, outside = (graph_of(net).steps[0].operation for net in (snnlib.PerStep(flatten), flatten))
    assert inside == Flatten(1, -1, 1) and outside == Flatten(1, -1, 2)


def test_the_innermost_module_is_named_once() -> None:
    net = nn.Sequential(nn.Sequential(snnlib.PerStep(nn.Linear(3, 4), nn.Tanh())))
    with pytest.raises(
        Unsupported, match=r"^0\.0\.1 \(Tanh\): no layer, neuron or pool does what Tanh does$"
    ):
        graph_of(net)
    with pytest.raises(Unsupported, match=r"^0 \(Residual\): join='and' has no counterpart"):
        graph_of(nn.Sequential(snnlib.nn.Residual(snnlib.SpikingLinear(3, 3), join="and")))


def test_stages_hold_what_belongs_to_their_weights() -> None:
    norm = nn.BatchNorm2d(4)
    net = nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, groups=2, bias=False), norm),
        LIF(2.0),
        snnlib.nn.AvgPool2d(2),
        snnlib.SRMLinear(16, 3),
        snnlib.SRMReadout(3, 2),
    ).eval()
    first, second, last = stages_of(net, torch.zeros(1, 1, 2, 6, 6))
    assert [stage.end for stage in (first, second, last)] == [3, 4, 5]
    assert first.weight.shape == (4, 2, 3, 3) and not first.weight[:2, 1].any() and first.bias is not None
    assert first.neurons == (4, 4, 4) and first.output == second.input == (4, 2, 2)
    assert (second.resets_all, last.resets_all) == (True, False)
    assert first.cell is not None and last.cell is not None and first.cell.spikes and not last.cell.spikes


def test_an_average_pool_of_spikes_is_an_operation() -> None:
    assert isinstance(graph_of(snnlib.nn.AvgPool2d(2)).steps[0].operation, Pool)
