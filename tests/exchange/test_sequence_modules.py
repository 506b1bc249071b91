"""Modules of converted nets: they stream, and describe themselves to exports."""

import torch
from compare import assert_bits
from torch import nn

import snnlib
from snnlib.exchange.conversion.sequence_modules import EachStep, RecurrentNeurons
from snnlib.exchange.structure.neurons import Neurons
from snnlib.exchange.structure.operations import Normalise, Weights
from snnlib.exchange.structure.walk import graph_of
from snnlib.neurons import LIF


def test_converted_recurrent_neurons_go_on_from_their_state() -> None:
    net = RecurrentNeurons(LIF(), torch.full((20, 20), 0.1))
    x = (torch.rand(16, 2, 20, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    stream = snnlib.Stream(net)
    assert_bits(torch.cat([stream(chunk) for chunk in x.split(3)]), net(x))


def test_modules_may_describe_themselves() -> None:
    weight, bias = torch.eye(4), torch.ones(4)
    net = nn.Sequential(
        EachStep(nn.Linear(3, 4), nn.BatchNorm1d(4)), RecurrentNeurons(LIF(2.0), weight, bias)
    )
    *linear, neurons = graph_of(net.eval()).steps
    assert [type(step.operation) for step in linear] == [Weights, Normalise]
    assert isinstance(neurons.operation, Neurons) and neurons.operation.recurrence is not None
    assert neurons.operation.recurrence.weight is net[1].weight
    assert neurons.operation.recurrence.bias is net[1].bias
