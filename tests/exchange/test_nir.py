"""NIR graphs: nets written and read again, and the reference interpreter."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nir_graphs import DT, LOW, dyadic, nir, single, spikes
from nir_interpreter import interpret
from peer_standins import Leaky
from torch import Tensor, nn

import snnlib
from snnlib import SpikingConv2d, SpikingLinear, SpikingRNN
from snnlib.exchange import verify_nir
from snnlib.exchange.nir.show import shown
from snnlib.models import SpikingResNet
from snnlib.neurons import ALIF, IF, LIF, SRM, CubaLIF, Integrator


def normalised() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.running_mean, norm.running_var = torch.rand(4), 0.25 * torch.ones(4)
    return nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 4, 3, padding="same"), norm), LIF(tau=2.0), SpikingLinear(64, 5)
    )


def residual(kind: Any) -> nn.Module:
    net = SpikingResNet(kind, (1, 1), 5, channels=2, width=4, stem="small").eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
    return net


class Branches(nn.Module):
    """A forward of its own, with a sum and a flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (SpikingConv2d(2, 3, 3, padding=1) for _ in range(2))
        self.out = SpikingLinear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out((self.a(x) + self.b(x)).flatten(2))
        return y


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LIF and IF": (
        lambda: nn.Sequential(
            SpikingLinear(20, 12, neuron=LIF(tau=4.0, compare=">")),
            SpikingLinear(12, 5, neuron=IF(threshold=torch.tensor([1.0, 2.0, 0.5, 1.0, 1.5]))),
        ),
        (20,),
    ),
    "groups, a kernel that is not square, pooling": (
        lambda: nn.Sequential(
            SpikingConv2d(2, 4, (3, 5), padding=(1, 2), neuron=LIF(tau=torch.tensor([2.0, 4, 8, 16]))),
            snnlib.AvgPool2d(2),
            SpikingConv2d(4, 8, 3, groups=2, stride=2, padding=1, neuron=CubaLIF(4.0, 2.0)),
            SpikingLinear(8, 5),
        ),
        (2, 4, 4),
    ),
    "sums of windows": (
        lambda: nn.Sequential(snnlib.AvgPool2d(2, divisor_override=1), nn.Flatten(2), SpikingLinear(8, 5)),
        (2, 4, 4),
    ),
    "one axis": (lambda: nn.Sequential(snnlib.SpikingConv1d(2, 4, 3, dilation=2, padding="same")), (2, 7)),
    "recurrent": (
        lambda: nn.Sequential(SpikingRNN(10, 6, 2, neuron=CubaLIF(4.0, 2.0, surrogate=LOW)), nn.Identity()),
        (10,),
    ),
    "SRM with its membrane reset, and an integrator": (
        lambda: nn.Sequential(
            nn.Flatten(2),
            snnlib.PerStep(nn.Linear(8, 6)),
            SRM(4.0, 2.0, reset_states="membrane"),
            snnlib.PerStep(nn.Linear(6, 5, bias=False)),
            Integrator(4.0, tau_s=2.0),
        ),
        (2, 2, 2),
    ),
    "batch norm": (normalised, (2, 4, 4)),
    "residual": (
        lambda: nn.Sequential(snnlib.nn.Residual(SpikingConv2d(2, 2, 3, padding=1)), SpikingLinear(32, 5)),
        (2, 4, 4),
    ),
    "a forward of its own": (Branches, (2, 4, 4)),
    **{f"{kind} resnet": (partial(residual, kind), (2, 6, 6)) for kind in ("sew", "spiking", "ms")},
    "delays": (
        lambda: nn.Sequential(SpikingConv2d(2, 4, 3, delays=snnlib.Delays(4)), SpikingLinear(16, 5)),
        (2, 4, 4),
    ),
    "no reset": (lambda: nn.Sequential(SpikingLinear(20, 5, neuron=LIF(tau=4.0, reset="none"))), (20,)),
    "no reset of a membrane that starts at rest": (
        lambda: nn.Sequential(SpikingLinear(20, 5, neuron=LIF(4.0, reset="none", rest=0.5, start_value=0.5))),
        (20,),
    ),
    "no reset of any state": (
        lambda: nn.Sequential(SpikingLinear(20, 5, neuron=CubaLIF(4.0, reset="none", reset_states="all"))),
        (20,),
    ),
}


@pytest.mark.parametrize("discretisation", ["euler", "exponential"])
@pytest.mark.parametrize("name", NETS)
def test_a_net_comes_back_as_it_was(name: str, discretisation: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    build, shape = NETS[name]
    net = dyadic(build())
    x = spikes(20, 3, *shape)
    graph = snnlib.to_nir(net, x=x, discretisation=discretisation)
    nir.write(tmp_path / "net.nir", graph)
    with torch.no_grad():
        expected = net(x)
        read = snnlib.from_nir(tmp_path / "net.nir", DT, discretisation=discretisation)(x)
    assert expected.count_nonzero() > 0
    # A time constant that is no power of two rounds in the exponential discretisation.
    torch.testing.assert_close(read, expected, rtol=1e-5, atol=1e-6)
    found = interpret(graph, x.double().numpy(), DT, discretisation=discretisation)["output"]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def constants(shape: tuple[int, ...], **ranges: tuple[float, float]) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(1)
    return {name: draw.uniform(*bounds, shape) for name, bounds in ranges.items()}


LEAKY = {"tau": (2e-4, 9e-4), "r": (0.5, 3.0), "v_leak": (-0.2, 0.2)}
FIRING = {"v_threshold": (0.3, 0.9), "v_reset": (-0.3, 0.2)}
SYNAPSE = {
    "tau_syn": (2e-4, 6e-4),
    "tau_mem": (2e-4, 9e-4),
    "w_in": (1.0, 3.0),
    "r": (0.5, 2.0),
    "v_leak": (-0.2, 0.2),
}


@pytest.mark.parametrize("shape", [(6,), (2, 3, 2), ()], ids=["neurons", "cells of frames", "one number"])
@pytest.mark.parametrize(
    ("kind", "ranges"),
    [
        ("LIF", LEAKY | FIRING),
        ("CubaLIF", SYNAPSE | FIRING),
        ("IF", {"r": (3e3, 9e3), **FIRING}),
        ("LI", LEAKY),
        ("CubaLI", SYNAPSE),
        ("I", {"r": (3e3, 9e3)}),
        ("Scale", {"scale": (-2.0, 2.0)}),
        ("Threshold", {"threshold": (0.3, 0.9)}),
    ],
)
def test_constants_of_every_element(kind: str, ranges: dict[str, Any], shape: tuple[int, ...]) -> None:
    node = getattr(nir, kind)(**constants(shape, **ranges))
    full = shape or (4,)
    x = torch.rand(30, 2, *full, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = single(node, full)
    net = snnlib.from_nir(graph, DT)
    found = net(x).numpy()
    expected = interpret(graph, x.numpy(), DT)["output"]
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_delays_shift_each_element(tmp_path: Path) -> None:
    graph = single(nir.Delay(np.array([0.0, 2e-4, 3e-4])), (3,))
    x = torch.rand(6, 2, 3)
    y = snnlib.from_nir(graph, DT)(x)
    assert torch.equal(y[:, :, 0], x[:, :, 0])
    assert torch.equal(y[2:, :, 1], x[:4, :, 1]) and not y[:2, :, 1].any()
    assert np.array_equal(interpret(graph, x.numpy(), DT)["output"], y.numpy())
    with pytest.raises(
        ValueError, match=r"node: expected delays of whole steps of dt = 0.0001 s, got 2.5 steps"
    ):
        snnlib.from_nir(single(nir.Delay(np.array([2.5e-4])), (3,)), DT)


def test_a_recurrent_bias_acts_from_the_second_step_on() -> None:
    neuron = nir.LIF(*(value * np.ones(2) for value in (2e-4, 2.0, 0.0, 0.6)))
    nodes = {
        "input": nir.Input({"input": np.array([2])}),
        "lif": neuron,
        "back": nir.Affine(0.5 * np.ones((2, 2)), np.array([0.25, -0.25])),
        "output": nir.Output({"output": np.array([2])}),
    }
    edges = [("input", "lif"), ("lif", "back"), ("back", "lif"), ("lif", "output")]
    x = spikes(12, 3, 2)
    graph = nir.NIRGraph(nodes, edges, type_check=False)
    expected = interpret(graph, x.numpy(), DT)["output"]
    assert np.array_equal(snnlib.from_nir(graph, DT)(x).detach().numpy(), expected)
    nested = nir.NIRGraph(
        {"input": nodes["input"], "rnn": graph, "output": nodes["output"]},
        [("input", "rnn"), ("rnn", "output")],
        type_check=False,
    )
    assert np.array_equal(interpret(nested, x.numpy(), DT)["output"], expected)


def test_a_cycle_of_two_populations_runs_step_by_step() -> None:
    torch.manual_seed(0)
    lif = [nir.LIF(*(value * np.ones(3) for value in (2e-4, 1.0, 0.0, 0.5))) for _ in range(2)]
    weights = [nir.Linear(np.round(np.random.default_rng(i).normal(size=(3, 3)) * 8) / 4) for i in range(2)]
    nodes = {
        "input": nir.Input({"input": np.array([3])}),
        **{"a": lif[0], "ab": weights[0], "b": lif[1], "ba": weights[1]},
        "output": nir.Output({"output": np.array([3])}),
    }
    edges = [("input", "a"), ("a", "ab"), ("ab", "b"), ("b", "ba"), ("ba", "a"), ("b", "output")]
    graph = nir.NIRGraph(nodes, edges, type_check=False)
    x = spikes(15, 2, 3, rate=0.6)
    net = snnlib.from_nir(graph, DT)
    expected = interpret(graph, x.numpy(), DT)["output"]
    assert expected.any() and np.array_equal(net(x).detach().numpy(), expected)
    net(x).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (snnlib.SRMLinear(4, 3), r"0 \(SRMLinear\): a reset of the synaptic trace .* approximate=True"),
        (SpikingLinear(4, 3, neuron=LIF(reset="subtract")), r"0 \(SpikingLinear\): reset='subtract'"),
        (
            SpikingLinear(4, 3, neuron=ALIF()),
            r"expected leaky integrators, such as LIF and CubaLIF, got ALIF",
        ),
        (
            nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)),
            r"0.1 \(Softmax\): no layer, neuron or pool does what Softmax does",
        ),
        (snnlib.PerStep(nn.Linear(4, 3), nn.MaxPool1d(1)), r"0.1 \(MaxPool1d\)"),
    ],
)
def test_what_has_no_counterpart_is_named(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.to_nir(nn.Sequential(module).eval())


def test_an_approximation_prints_what_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(snnlib.SRMLinear(20, 10))
    graph = snnlib.to_nir(net, x=spikes(50, 4, 20), approximate=True)
    said = capsys.readouterr().out
    assert "0.neuron: written without a reset of the synaptic trace" in said and "extra" in said
    assert type(graph.nodes["0.neuron"]).__name__ == "CubaLIF"


def test_an_approximation_of_samples_first_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net, said = nn.Sequential(snnlib.SRMLinear(20, 10)), []
    for net[0].batch_first in (False, True):
        for x in (None, spikes(50, 4, 20).transpose(0, int(net[0].batch_first))):
            snnlib.to_nir(net, x=x, approximate=True)
            said.append(capsys.readouterr().out)
    assert said[:2] == said[2:] and "extra" in said[0]


def test_wrong_input_is_named() -> None:
    slow = single(nir.LI(*(np.array([value]) for value in (5e-5, 1.0, 0.0))), (1,))
    apart = nir.NIRGraph(slow.nodes, [], type_check=False)
    broken = nir.NIRGraph(slow.nodes, [("input", "node"), ("node", "gone")], type_check=False)
    conv, read = nn.Sequential(SpikingConv2d(2, 3, 3)), snnlib.from_nir
    calls: dict[str, Callable[[], object]] = {
        r"x: expected an input \[T, N, ...\] whose shape is the graph's input": lambda: snnlib.to_nir(conv),
        r"net: expected evaluation mode, net.eval\(\), got 0.1 in training mode": lambda: snnlib.to_nir(
            normalised(), x=spikes(2, 1, 2, 4, 4)
        ),
        r"node.tau: expected time constants of at least dt = 0.0001 s, got 5e-05 s": lambda: read(slow, DT),
        "discretisation: expected one of euler, exponential": lambda: read(
            slow, DT, discretisation="midpoint"
        ),
        r"output: expected edges that lead to it from the Input, got none": lambda: read(apart, DT),
        "edges: expected names of nodes, got 'gone'": lambda: read(broken, DT),
    }
    for message, call in calls.items():
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"v_threshold": math.inf}, r"lif.v_threshold: expected finite numbers, got inf"),
        ({"v_threshold": 1e300}, r"lif.v_threshold: expected finite numbers, got 1e\+300"),
        ({"v_leak": math.nan}, r"lif.v_leak: expected finite numbers, got nan"),
        ({"tau": math.inf}, r"lif.tau: expected finite time constants, got inf s"),
        (
            {"tau": 1e300},
            r"lif: threshold: expected finite numbers, got .*, of a neuron in steps of dt = 0.0001 s",
        ),
        ({"weight": math.nan}, r"linear.weight: expected finite numbers, got nan"),
        ({"delay": math.inf}, r"lif: expected delays below 2147483648 steps of dt = 0.0001 s, got inf"),
    ],
)
def test_numbers_that_are_none_are_named(node: dict[str, float], message: str) -> None:
    numbers = {"tau": 4e-4, "r": 1.0, "v_leak": 0.0, "v_threshold": 0.2, **node}
    weight = np.full((3, 3), numbers.pop("weight", 1.0))
    delay = numbers.pop("delay", None)
    values = {key: np.full(3, value) for key, value in numbers.items()}
    second = nir.LIF(**values) if delay is None else nir.Delay(np.full(3, delay))
    nodes = {"in": nir.Input(np.array([3])), "linear": nir.Linear(weight), "lif": second}
    nodes["out"] = nir.Output(np.array([3]))
    edges = [("in", "linear"), ("linear", "lif"), ("lif", "out")]
    with pytest.raises(ValueError, match=message):
        snnlib.from_nir(nir.NIRGraph(nodes, edges), DT)


@pytest.mark.parametrize("synapse", [False, True])
@pytest.mark.parametrize(("rest", "reset"), [(0.25, 0.25), (0.25, 0.0), (-0.5, -0.5), (0.0, -0.5)])
def test_membranes_start_where_they_rest(rest: float, reset: float, synapse: bool) -> None:
    constants = {"r": 1.0, "v_leak": rest, "v_threshold": 0.5, "v_reset": reset}
    taus = {"tau_mem": 4e-4, "tau_syn": 2e-4, "w_in": 1.0} if synapse else {"tau": 4e-4}
    kind = nir.CubaLIF if synapse else nir.LIF
    graph = single(kind(**{name: np.full(3, value) for name, value in {**constants, **taus}.items()}), (3,))
    x = 4 * spikes(40, 4, 3)
    expected = interpret(graph, x.numpy(), DT)["output"]
    net = snnlib.from_nir(graph, DT)
    assert expected.any() and type(net[0]) is (CubaLIF if synapse else LIF)
    assert np.array_equal(net(x).detach().numpy(), expected)
    # With a synapse NIR's membrane is written in other units, from which it is read again.
    again = snnlib.from_nir(snnlib.to_nir(net, DT, x=x), DT)
    assert np.array_equal(again(x).detach().numpy(), expected)


class Looping(nn.Module):
    """A loop over time in the manner of snnTorch, with a sum of two branches; the readout never fires."""

    def __init__(self, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled
        self.conv, self.lif, self.more = nn.Conv2d(2, 3, 3), Leaky(0.75), nn.Conv2d(2, 3, 3)
        self.fc, self.out = nn.Linear(12, 5), Leaky(0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mem, last, spikes, potentials = self.lif.reset_mem(), self.out.reset_mem(), [], []
        for now in x:
            hidden, mem = self.lif(self.conv(now) + self.more(now), mem)
            current = self.fc(hidden.view(hidden.shape[0], -1))
            spike, last = self.out(current * 2 if self.scaled else current, last)
            spikes.append(spike)
            potentials.append(last)
        return torch.stack(potentials), torch.stack(spikes)


def test_a_converted_loop_is_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    x, net = spikes(20, 3, 2, 4, 4), dyadic(Looping())
    made = snnlib.convert(net, x, quiet=True).eval()
    with pytest.raises(ValueError, match=r"lif \(LIF\): reset='subtract'"):
        snnlib.to_nir(made, x=x)
    graph = snnlib.to_nir(made, x=x, approximate=True)
    assert "lif: written without reset='subtract'" in capsys.readouterr().out
    assert {("conv_0", "lif"), ("more_0", "lif"), ("fc_0", "out"), ("out", "output")} <= set(graph.edges)
    # With a reset to zero in the step that fired the same modules are what the graph is.
    for neuron in (made.get_submodule("lif"), made.get_submodule("out").neuron):
        neuron.reset, neuron.reset_time = "zero", "same"
    graph = snnlib.to_nir(made, DT, x=x)
    expected = made(x)[1].detach().numpy()
    assert expected.sum() > 0 and np.array_equal(interpret(graph, x.numpy(), DT)["output"], expected)
    scaled = snnlib.convert(Looping(scaled=True).eval(), x, quiet=True)
    with pytest.raises(ValueError, match="the call of mul in its loop has no counterpart"):
        snnlib.to_nir(scaled, x=x, approximate=True)


def test_graphs_are_read_as_sinabs_reads_them() -> None:
    thresholds = np.array([0.5, 1.0, 1.5])
    zero, ones = np.zeros(3), np.ones(3)
    weight = nir.Affine(np.random.default_rng(0).normal(0.2, 1, (3, 8)), zero)
    x = spikes(40, 4, 8)
    for node in (
        nir.IF(r=ones, v_threshold=ones),
        nir.IF(r=ones, v_threshold=thresholds),
        nir.LIF(tau=5 * ones, r=ones, v_leak=zero, v_threshold=thresholds),
        nir.LIF(tau=np.array([3.0, 5.0, 9.0]), r=ones, v_leak=zero, v_threshold=ones),
        nir.LI(tau=5 * ones, r=ones, v_leak=zero),
    ):
        graph = nir.NIRGraph.from_list(weight, node)
        expected = interpret(graph, x.numpy(), reading="sinabs")["output"]
        net = snnlib.from_nir(graph, reading="sinabs")
        assert expected.max() > 1
        np.testing.assert_allclose(net(x).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    graph = nir.NIRGraph.from_list(weight, nir.IF(r=ones, v_threshold=ones))
    for options, message in (
        ({"reading": "lava"}, "reading: expected one of nir, sinabs, got 'lava'"),
        ({"reading": "sinabs", "dt": DT}, "dt: expected none, or 1, with reading="),
        (
            {"reading": "sinabs", "discretisation": "euler"},
            'discretisation: expected "exponential" with reading=',
        ),
        ({}, "dt: expected a number of seconds > 0, got None"),
    ):
        with pytest.raises(ValueError, match=message):
            snnlib.from_nir(graph, **options)
    cuba = nir.CubaLIF(tau_mem=ones, tau_syn=ones, r=ones, v_leak=zero, v_threshold=ones)
    with pytest.raises(
        ValueError, match="node: expected a neuron that sinabs takes, IF, LI, LIF, got CubaLIF"
    ):
        snnlib.from_nir(single(cuba, (3,)), reading="sinabs")


def test_the_last_spikes_go_where_no_readout_does(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    hidden = dyadic(nn.Sequential(SpikingConv2d(2, 4, 3, neuron=LIF(tau=4.0)), snnlib.AvgPool2d(2)))
    lif = SpikingRNN(16, 8, neuron=LIF(tau=4.0, surrogate=LOW))
    integrated = SpikingLinear(8, 3, neuron=Integrator(tau=4.0))
    x = spikes(20, 3, 2, 6, 6)
    for readout in (snnlib.SRMReadout(8, 3), integrated):
        net = nn.Sequential(hidden, dyadic(lif), readout)
        graph = snnlib.to_nir(net, x=x, readout=False)
        again = snnlib.from_nir(graph, DT)(x)
        assert again.count_nonzero() > 0 and torch.equal(again, net[:2](x))
    # Frames in front of the readout are no longer flat.
    frames = snnlib.to_nir(
        nn.Sequential(*hidden, nn.Flatten(2), snnlib.SRMReadout(16, 3)), x=x, readout=False
    )
    assert frames.nodes["output"].output_type["output"].tolist() == [4, 4, 4]
    assert set(frames.nodes) == {"input", "0.weight", "0.neuron", "output"}
    for alone in (snnlib.SRMReadout(8, 3), nn.Linear(8, 3)):
        with pytest.raises(ValueError, match="readout: expected one last layer that fires where it is False"):
            snnlib.to_nir(nn.Sequential(alone), readout=False)
    snnlib.to_nir(nn.Sequential(snnlib.SRMLinear(8, 6), snnlib.SRMReadout(6, 3)), approximate=True)
    assert "output potentials: differ by up to " in capsys.readouterr().out


def test_show_lists_nodes_and_constants() -> None:
    text = shown(snnlib.to_nir(nn.Sequential(SpikingRNN(4, 3, neuron=LIF(tau=4.0, surrogate=LOW)))))
    assert "0_0.w_in + 0_0.w_rec [t-1]" in text and "tau [3] 0.0004" in text


def test_an_unknown_target_is_refused() -> None:
    graph = single(nir.IF(r=np.ones(3), v_threshold=np.ones(3)), (3,))
    with pytest.raises(
        ValueError, match="target: expected one of snntorch, spikingjelly, norse, sinabs, rockpool"
    ):
        verify_nir(graph, "lava", 1.0)
