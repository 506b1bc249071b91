"""Neurons of other libraries whose options decide what becomes of them: translated exactly, or kept and named."""

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_nets import random_spikes
from peer_standins import Leaky, LIFNode, RLeaky
from torch import Tensor, nn

import snnlib
from snnlib.exchange.conversion import Comparison
from snnlib.surrogate import Exponential, Rectangle, Surrogate, Triangle, spike

pytestmark = pytest.mark.filterwarnings("ignore")

FRAMES = 3 * torch.rand(7, 2, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def _package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"compares with {name.partition('.')[0]}, which is not installed")


def _compared(net: nn.Module, x: Tensor, kept: str = "") -> Comparison:
    """The comparison of a net with its conversion; `kept` is the reason for which a module is kept, if one is."""
    made = snnlib.convert(net, x, quiet=True)
    found = snnlib.verify_conversion(net, made, x)
    assert found.identical == 1 and not found.gradients_missing, str(found)
    if not kept:
        snnlib.convert(net, x, quiet=True, unsupported="raise")
        return found
    with pytest.raises(ValueError, match=kept):
        snnlib.convert(net, x, quiet=True, unsupported="raise")
    return found


def _dense(neuron: nn.Module, x: Tensor) -> nn.Module:
    torch.manual_seed(0)
    front = nn.Linear(x.shape[-1], 10)
    nn.init.uniform_(front.weight, -0.5, 1)
    return nn.Sequential(front, neuron)


class Frames(nn.Module):
    """A convolution before a neuron, in a `forward` of one step or around a loop over time."""

    def __init__(self, neuron: Any, loops: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.neuron, self.loops = nn.Conv2d(1, 4, 3), neuron, loops
        neuron.init_hidden = not loops

    def forward(self, x: Tensor) -> Tensor:
        if not self.loops:
            return self.neuron(2 * self.conv(x))  # type: ignore[no-any-return]
        mem, out = self.neuron.reset_mem(), []
        for step in x:
            spikes, mem = self.neuron(2 * self.conv(step), mem)
            out.append(spikes)
        return torch.stack(out)


@pytest.mark.parametrize("form", ["chain", "step", "loop"])
@pytest.mark.parametrize("name", ["beta", "threshold"])
def test_constants_of_columns_are_kept(name: str, form: str) -> None:
    neuron = Leaky(0.5, hidden=True)
    setattr(neuron, name, torch.linspace(0.3, 0.9, 4))
    net = nn.Sequential(nn.Conv2d(1, 4, 3), neuron) if form == "chain" else Frames(neuron, form == "loop")
    found = _compared(
        net, FRAMES, kept="neuron: .*last of 4 axes" if form != "chain" else "1: .*last of 4 axes"
    )
    assert found.ok


def test_constants_of_neurons_behind_a_linear_layer_are_exact() -> None:
    neuron = Leaky(0.5, hidden=True)
    neuron.beta, neuron.threshold = torch.linspace(0.3, 0.9, 10), torch.linspace(0.5, 2.0, 10)
    x = random_spikes(9, 3, 12)
    assert _compared(_dense(neuron, x), x).ok


def test_recurrence_along_the_last_axis_of_frames_is_kept() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), neuron := RLeaky(0.5, 4))
    neuron.init_hidden = True
    with pytest.raises(ValueError, match=r"1: .*last of 4 axes"):
        snnlib.convert(net, FRAMES, quiet=True, unsupported="raise")


BUMPS = [Triangle(0.7, 0.4), Rectangle(0.6, 0.3), Exponential(0.3, 0.5), Triangle()]


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("bump", BUMPS, ids=str)
def test_widths_of_surrogates_are_in_potentials(bump: Surrogate, each: bool, learned: bool) -> None:
    neuron, x = Leaky(0.5, hidden=True), random_spikes(9, 3, 12)
    neuron.spike_grad = lambda u: spike(u, torch.ones(()), bump, strict=True)
    value = torch.linspace(0.4, 2.0, 10) if each else torch.tensor(0.6)
    del neuron.threshold
    neuron.threshold = nn.Parameter(value) if learned else value
    net = _dense(neuron, x)
    made = snnlib.convert(net, x, quiet=True, unsupported="raise")
    if learned:
        neuron.threshold.data.mul_(1.7)
    found = snnlib.verify_conversion(net, made, x)
    assert found.ok and found.spikes["1"][0] > 0, str(found)


def test_a_straight_through_estimator_ends_nowhere() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, u: Tensor) -> Tensor:
            return (u > 0).to(u)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    neuron, x = Leaky(0.5, hidden=True), 400 * random_spikes(9, 3, 12) - 200
    neuron.spike_grad = Straight.apply
    found = _compared(_dense(neuron, x), x)
    assert found.ok and found.gradient_errors["0.weight"] < 1e-5, str(found)


def test_a_learned_threshold_below_zero_is_an_error() -> None:
    neuron, x = Leaky(0.5, hidden=True), random_spikes(9, 3, 12)
    del neuron.threshold
    neuron.threshold = nn.Parameter(torch.tensor(1.0))
    made = snnlib.convert(_dense(neuron, x), x, quiet=True)
    neuron.threshold.data.fill_(-0.2)
    with pytest.raises(
        ValueError, match=r"threshold: expected numbers > 0 after training, too; clamp .* got -0.2"
    ):
        made(x)
    neuron.threshold.data.clamp_(min=0.1)
    assert made(x).any()


@pytest.mark.parametrize("threshold", [0.0, -50.0])
def test_thresholds_that_rest_reaches_are_kept(threshold: float) -> None:
    x, leaky, node = 30 * random_spikes(9, 3, 12), Leaky(0.5, hidden=True), LIFNode()
    leaky.threshold.fill_(threshold)
    node.v_threshold, node.v_reset = threshold, threshold - 15.0
    node.v = node.v_reset
    node.reset = lambda: setattr(node, "v", node.v_reset)  # type: ignore[method-assign]
    for neuron in (leaky, node):
        assert _compared(
            _dense(neuron, x), x, kept=f"1: a threshold of {threshold:g}, which is not above 0"
        ).ok


RESETS = ("zero", "subtract", "none")
MODELS: dict[str, dict[str, Any]] = {
    "Leaky": {"beta": 0.9},
    "Synaptic": {"alpha": 0.8, "beta": 0.9},
    "Alpha": {"alpha": 0.9, "beta": 0.8},
    "Lapicque": {"beta": 0.9},
    "RLeaky": {"beta": 0.9, "all_to_all": True, "linear_features": 10},
    "RSynaptic": {"alpha": 0.8, "beta": 0.9, "all_to_all": True, "linear_features": 10},
}


@pytest.mark.parametrize("model", MODELS)
def test_resets_are_those_that_the_constructor_bound(model: str) -> None:
    snn = _package("snntorch")
    x = 2 * random_spikes(9, 3, 12)
    for bound, said in itertools.permutations(RESETS, 2):
        neuron = getattr(snn, model)(threshold=0.5, init_hidden=True, reset_mechanism=bound, **MODELS[model])
        neuron.reset_mechanism = said
        kept = "1: a reset to zero under" if model.startswith("R") and bound == "zero" else ""
        assert _compared(_dense(neuron, x), x, kept).spikes["1"][0] > 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("threshold", [0.0, -0.5, torch.linspace(-1, 1, 10)], ids=str)
def test_thresholds_of_snntorch_that_rest_reaches_are_kept(model: str, threshold: Any) -> None:
    snn, x = _package("snntorch"), random_spikes(9, 3, 12)
    neuron = getattr(snn, model)(threshold=threshold, init_hidden=True, **MODELS[model])
    _compared(_dense(neuron, x), x, kept="1: a threshold of .*, which is not above 0")


NODES: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda kind: kind(v_threshold=-50.0, v_reset=-65.0)
        for name in ("IFNode", "LIFNode", "ParametricLIFNode", "KLIFNode", "CUBALIFNode", "IzhikevichNode")
    },
}


@pytest.mark.parametrize("name", NODES)
def test_options_of_spikingjelly_beyond_the_range_are_kept(name: str) -> None:
    neurons = _package("spikingjelly.activation_based.neuron")
    x = random_spikes(9, 3, 12)
    for mode in ("s", "m"):
        net = _dense(NODES[name](getattr(neurons, name)), x)
        net[1].step_mode = mode
        _compared(net, x, kept="1: a threshold of -.*, which is not above 0")


def test_an_ilif_node_takes_the_threshold_off_whatever_its_reset_value() -> None:
    neurons, x = _package("spikingjelly.activation_based.neuron"), 3 * random_spikes(9, 3, 12)
    node = neurons.ILIFNode()
    node.v_reset = 0.0
    assert _compared(_dense(node, x), x).ok


@pytest.mark.parametrize(
    ("cell", "kind", "constant"),
    [
        ("LIFCell", "lif", "tau_mem_inv"),
        ("LIFCell", "lif", "tau_syn_inv"),
        ("LIFBoxCell", "lif_box", "tau_mem_inv"),
        ("LICell", "leaky_integrator", "tau_mem_inv"),
        ("LSNNCell", "lsnn", "tau_adapt_inv"),
    ],
)
def test_constants_of_norse_along_the_last_axis(cell: str, kind: str, constant: str) -> None:
    norse = _package("norse.torch")
    names = {"lif": "LIF", "lif_box": "LIFBox", "leaky_integrator": "LI", "lsnn": "LSNN"}
    parameters = getattr(
        importlib.import_module(f"norse.torch.functional.{kind}"), f"{names[kind]}Parameters"
    )
    p = parameters(**{constant: torch.tensor([100.0, 200.0, 300.0, 50.0])})
    torch.manual_seed(0)
    frames = norse.SequentialState(nn.Conv2d(1, 4, 3), getattr(norse, cell)(p))
    assert _compared(frames, 9 * FRAMES, kept="1: .*last of 4 axes").output_error < 1e-5
    rows = norse.SequentialState(nn.Linear(6, 4), getattr(norse, cell)(p))
    assert _compared(rows, 20 * FRAMES[:, :, 0, 0]).output_error < 1e-5


def test_resets_of_norse_are_recognised_by_what_they_do() -> None:
    norse = _package("norse.torch")
    box = importlib.import_module("norse.torch.functional.lif_box")

    def new_value(z: Tensor, v: Tensor, reset: Tensor, threshold: Tensor) -> Tensor:
        return v - z * threshold

    def other(z: Tensor, v: Tensor, reset: Tensor, threshold: Tensor) -> Tensor:
        return v + z * (reset - v)

    x = 20 * torch.rand(12, 3, 6)
    for method, kept in ((new_value, "1: reset_method 'new_value'"), (other, "")):
        net = norse.SequentialState(
            nn.Linear(6, 4), norse.LIFBoxCell(box.LIFBoxParameters(reset_method=method))
        )
        net[0].weight.data.mul_(4)
        assert _compared(net, x, kept).spikes["1"][0] > 0
