"""NIR graphs against the importers and exporters of other libraries, where they are installed.

What `verify_nir` says of an importer is what it does, and the variants that it writes are read right.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import peer_tables
import pytest
import torch
from nir_graphs import DT, LOW, dyadic, nir, single, spikes
from nir_interpreter import interpret
from torch import Tensor, nn

import snnlib
from snnlib import SpikingConv2d, SpikingLinear, SpikingRNN
from snnlib.exchange import verify_nir
from snnlib.exchange.compare import SpikeCounts
from snnlib.exchange.nir.importers import IMPORTERS
from snnlib.neurons import IF, LIF, SRM, CubaLIF

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS, BATCH = 20, 8
THREE = ("snntorch", "spikingjelly", "norse")


def peer(name: str) -> Any:
    return pytest.importorskip(name, reason=f"compares with {name.partition('.')[0]}, which is not installed")


def run(importer: str, graph: Any, x: Tensor) -> Tensor:
    """Output of the net that a library makes of a graph."""
    peer(importer)
    with torch.no_grad():
        return IMPORTERS[importer].run(copy.deepcopy(graph), x, DT)


def by_steps(net: Any, x: Tensor) -> Tensor:
    state, out = None, []
    for step in x:
        value, state = net(step, state)
        out.append(value)
    return torch.stack(out)


def nets(tau_m: float, tau_s: float) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(1)
    hidden = SpikingLinear(40, 30, neuron=LIF(tau=tau_m))
    conv = (
        SpikingConv2d(2, 4, 3, padding=1, neuron=LIF(tau=tau_m)),
        snnlib.AvgPool2d(2),
        SpikingConv2d(4, 6, 3, neuron=CubaLIF(tau_m, tau_s)),
        SpikingLinear(24, 10, neuron=LIF(tau=tau_s)),
    )
    srm = (snnlib.PerStep(nn.Linear(40, 20, bias=False)), SRM(tau_m, tau_s, reset_states="membrane"))
    return {
        "LIF": (nn.Sequential(hidden, SpikingLinear(30, 10, neuron=LIF(tau=tau_s))), (40,)),
        "IF": (nn.Sequential(SpikingLinear(40, 10, neuron=IF())), (40,)),
        "CubaLIF": (nn.Sequential(SpikingLinear(40, 10, neuron=CubaLIF(tau_m, tau_s))), (40,)),
        "convolutions": (nn.Sequential(*conv), (2, 8, 8)),
        "SRM": (nn.Sequential(*srm), (40,)),
        "recurrent": (nn.Sequential(SpikingRNN(40, 20, neuron=LIF(tau=tau_m, surrogate=LOW))), (40,)),
    }


@pytest.mark.parametrize("quantised", [True, False], ids=["binary fractions", "any numbers"])
@pytest.mark.parametrize("name", nets(4.0, 2.0))
@pytest.mark.parametrize("importer", THREE)
def test_importers_do_what_is_said_of_them(importer: str, name: str, quantised: bool) -> None:
    peer(importer)
    net, shape = nets(*((4.0, 2.0) if quantised else (5.0, 3.0)))[name]
    net = dyadic(net) if quantised else net.eval()
    x = spikes(STEPS, BATCH, *shape)
    with torch.no_grad():
        ours = net(x)
    assert ours.any()
    graph = snnlib.to_nir(net, x=x)
    found = verify_nir(graph, importer, DT, x=x.numpy())
    least = 1.0 if quantised else 0.9999
    if found.refused is None:
        assert (SpikeCounts.of(ours, run(importer, graph, x)).identical >= least) == found.exact
    read = graph if found.exact else found.variant
    assert read is not None, str(found)
    share = SpikeCounts.of(ours, run(importer, read, x)).identical
    assert share >= least
    how = "`to_nir`" if found.exact else "`to_nir`, the variant of `snnlib nir verify`"
    peer_tables.record_pair("snnlib", importer, how, name, share)


@pytest.mark.parametrize("importer", THREE)
def test_nets_arrive_without_their_readout(importer: str) -> None:
    hidden, x = dyadic(nets(4.0, 2.0)["LIF"][0]), spikes(STEPS, BATCH, 40)
    net = nn.Sequential(hidden, snnlib.SRMReadout(10, 3))
    graph = snnlib.to_nir(net, readout=False)
    real, ours = run(importer, graph, x), hidden(x)
    assert ours.count_nonzero() > 0 and torch.equal(real, ours)
    refused = verify_nir(snnlib.to_nir(net), importer, DT, x=x.numpy())
    assert refused.variant is None and "readout=False (--no-readout)" in str(refused.no_variant)


def importer_cases() -> dict[str, tuple[Any, dict[str, str]]]:
    """Graphs, and what importers do that do not read them as they stand: why there is no variant, or "" with one."""
    torch.manual_seed(0)
    conv = dyadic(nn.Sequential(SpikingConv2d(4, 4, 3, groups=2), snnlib.AvgPool2d(2)))
    rnn = dyadic(nn.Sequential(SpikingRNN(12, 8, neuron=LIF(tau=4.0, surrogate=LOW))))
    several = nir.LIF(np.array([2e-4, 2e-4]), np.ones(2), np.zeros(2), np.array([0.25, 0.5]))
    rest = nir.LIF(*(np.array([value, value]) for value in (2e-4, 1.0, 0.125, 0.25)), v_reset=np.zeros(2))
    plain = nir.LIF(*(np.array([value, value]) for value in (2e-4, 1.0, 0.0, 0.25)))
    scale = nir.NIRGraph.from_list(nir.Scale(np.array([0.75, 2.0])), plain)
    other_thresholds = {
        "snntorch": "v_threshold must be same",
        "spikingjelly": "v_threshold must be uniform",
    }
    other_rest = {"snntorch": "v_leak not supported", "spikingjelly": "v_leak"}

    def linear(neuron: Any) -> Any:
        return snnlib.to_nir(dyadic(nn.Sequential(SpikingLinear(12, 8, neuron=neuron))))

    return {
        "LIF": (linear(LIF(tau=4.0)), {}),
        "grouped": (snnlib.to_nir(conv, x=spikes(1, 1, 4, 6, 6)), {"spikingjelly": "", "norse": ""}),
        "recurrent": (snnlib.to_nir(rnn), {"snntorch": ""}),
        "IF": (linear(IF()), {"snntorch": ""}),
        "several thresholds": (single(several, (2,)), other_thresholds),
        "a rest that is no reset": (single(rest, (2,)), other_rest),
        "a scale": (scale, {"snntorch": "", "spikingjelly": ""}),
    }


@pytest.mark.parametrize("importer", [*THREE, "sinabs"])
@pytest.mark.parametrize("name", importer_cases())
def test_importers_are_told_apart(name: str, importer: str) -> None:
    peer(importer)
    graph, reasons = importer_cases()[name]
    x = spikes(40, 4, *graph.nodes["input"].input_type["input"])
    found = verify_nir(graph, importer, DT, x=x.numpy())
    reason = reasons.get(importer, "takes the threshold off" if importer == "sinabs" else None)
    assert found.exact == (reason is None), str(found)
    assert (found.variant is not None) == (reason == ""), str(found)
    assert (reason or "") in str(found.no_variant)


def test_units_of_the_importer() -> None:
    peer("snntorch")
    peer("sinabs")
    # Constants in steps, as sinabs has them: snnTorch reads a time constant of 20 s, where nearly nothing leaks.
    graph = single(nir.LIF(*(np.array([value] * 3) for value in (20.0, 20.0, 0.0, 2.5))), (3,))
    found = verify_nir(graph, "snntorch", 1.0, rate=0.5)
    assert not found.exact and found.variant is not None
    assert float(found.variant.nodes["node"].tau[0]) == pytest.approx(20e-4)
    leaky = single(nir.LI(np.array([2.0]), np.ones(1), np.zeros(1)), (1,))
    assert "input gain of 1" in str(verify_nir(leaky, "sinabs", 1.0).no_variant)
    with pytest.raises(
        ValueError, match="target: expected one of snntorch, spikingjelly, norse, sinabs, rockpool"
    ):
        verify_nir(graph, "lava", 1.0)


def test_recurrent_neurons_that_nirtorch_builds_twice_are_refused() -> None:
    peer("snntorch")
    torch.manual_seed(1)
    layers = (SpikingRNN(8, 8, neuron=LIF(tau=4.0, decay_input=False)) for _ in range(2))
    x = spikes(STEPS, BATCH, 8)
    graph = snnlib.to_nir(nn.Sequential(*layers), x=x)
    found = verify_nir(graph, "snntorch", DT, x=x.numpy())
    assert found.refused is not None and found.refused.startswith("AttributeError")
    assert found.variant is not None
    # The variant may be read in any order, as that in which a file gives the nodes back.
    nodes = {name: found.variant.nodes[name] for name in sorted(found.variant.nodes)}
    listed = nir.NIRGraph(nodes, found.variant.edges, type_check=False)
    assert verify_nir(listed, "snntorch", DT, x=x.numpy()).exact


def test_sinabs_fires_several_times_in_a_step() -> None:
    peer("sinabs")
    rng = np.random.default_rng(0)
    neurons = nir.LIF(*(np.full(6, value) for value in (5.0, 1.0, 0.0, 0.5)))
    graph = nir.NIRGraph.from_list(nir.Affine(rng.normal(size=(6, 8)), np.zeros(6)), neurons)
    x = spikes(STEPS, BATCH, 8)
    real = run("sinabs", graph, x)
    assert real.max() > 1
    assert np.array_equal(interpret(graph, x.numpy(), reading="sinabs")["output"], real)
    assert torch.equal(snnlib.from_nir(graph, reading="sinabs")(x), real)
    leaky = single(nir.LI(np.array([5.0]), np.ones(1), np.zeros(1)), (8,))
    expected = interpret(leaky, x.numpy(), reading="sinabs")["output"]
    np.testing.assert_allclose(run("sinabs", leaky, x), expected, rtol=1e-5, atol=1e-5)


def _read_by_both(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of the graph that sinabs writes of its net, as snnlib and as sinabs reads it."""
    flat = x.transpose(0, 1).flatten(0, 1)
    with torch.no_grad():
        net(flat)
        graph = peer("sinabs.nir").to_nir(net, flat)
        found = snnlib.from_nir(graph, reading="sinabs")(x)
        expected = peer("sinabs.nir").from_nir(graph, batch_size=BATCH)(flat)[0]
    return found, expected.unflatten(0, (BATCH, STEPS)).transpose(0, 1)


def test_nets_that_sinabs_wrote_are_read_as_it_does() -> None:
    layers = peer("sinabs.layers")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), layers.IAFSqueeze(batch_size=BATCH, min_v_mem=-1.0),
        layers.SumPool2d(2), nn.Flatten(), nn.Linear(64, 6), layers.IAFSqueeze(batch_size=BATCH, min_v_mem=-1.0),
    )  # fmt: skip
    nn.init.normal_(net[0].weight, 0, 0.7)
    x = spikes(STEPS, BATCH, 2, 8, 8)
    found, expected = _read_by_both(net, x)
    assert expected.max() > 1 and torch.equal(found, expected)


@pytest.mark.parametrize("last", ["LIFSqueeze", "ExpLeakSqueeze"])
def test_time_constants_without_an_axis_are_read_as_sinabs_does(last: str) -> None:
    layers = peer("sinabs.layers")
    torch.manual_seed(0)
    options = {"batch_size": BATCH, "norm_input": False}
    first = layers.LIFSqueeze(tau_mem=10.0, spike_threshold=0.5, **options)
    net = nn.Sequential(
        nn.Linear(6, 8), first, nn.Linear(8, 5), getattr(layers, last)(tau_mem=5.0, **options)
    )
    x = 4 * spikes(STEPS, BATCH, 6)
    found, expected = _read_by_both(net, x)
    assert expected.any()
    torch.testing.assert_close(found, expected)


def exported(library: str) -> tuple[Any, Callable[[Tensor], Tensor], float, str]:
    """A graph that a library writes of a net of its own, the net over a sequence, its step and discretisation."""
    torch.manual_seed(0)
    linear = nn.Linear(12, 8, bias=False)
    dyadic(linear)
    if library == "snntorch":
        snn = peer("snntorch")
        # Its exporter needs constants of every neuron.
        alpha, beta, threshold = torch.full((3, 8), 0.5) + torch.tensor([[0.0], [0.25], [0.5]])
        options = {"init_hidden": True, "reset_mechanism": "zero", "reset_delay": False}
        net = nn.Sequential(linear, snn.Synaptic(alpha, beta, threshold, **options))
        graph = peer("snntorch.export_nir").export_to_nir(net, torch.zeros(1, 12), ignore_dims=[0])
        return graph, lambda x: torch.stack([net(step) for step in x]), 1e-4, "euler"
    if library == "spikingjelly":
        neuron = peer("spikingjelly.activation_based.neuron")
        net = nn.Sequential(linear, neuron.LIFNode(tau=4.0, v_threshold=0.5))
        graph = peer("spikingjelly.activation_based.nir_exchange").export_to_nir(net, torch.zeros(1, 12))
        return graph, lambda x: torch.stack([net(step) for step in x]), 1e-4, "euler"
    if library == "norse":
        torch_norse = peer("norse.torch")
        p = torch_norse.functional.lif_box.LIFBoxParameters(
            tau_mem_inv=torch.tensor(250.0), v_th=torch.tensor(0.5)
        )
        net = torch_norse.SequentialState(linear, torch_norse.LIFBoxCell(p=p, dt=1e-3))
        graph = torch_norse.to_nir(net, torch.zeros(1, 12), dt=1e-3)
        # Its exporter writes time constants times dt: 4e-6 s for 4e-3 s, so that a step is dt^2.
        return graph, lambda x: by_steps(net, x), 1e-6, "euler"
    layers = peer("sinabs.layers")
    net = nn.Sequential(linear, layers.ExpLeakSqueeze(tau_mem=4.0, batch_size=BATCH, norm_input=True))
    x = torch.zeros(STEPS * BATCH, 12)
    net(x)
    graph = peer("sinabs.nir").to_nir(net, x)

    def run(x: Tensor) -> Tensor:
        net[1].reset_states()
        out: Tensor = net(x.transpose(0, 1).flatten(0, 1))
        return out.unflatten(0, (BATCH, STEPS)).transpose(0, 1)

    return graph, run, 1.0, "exponential"


@pytest.mark.parametrize("library", ["snntorch", "spikingjelly", "norse", "sinabs"])
def test_graphs_of_other_libraries_become_the_same_nets(library: str) -> None:
    graph, net, dt, discretisation = exported(library)
    x = spikes(STEPS, BATCH, 12)
    with torch.no_grad():
        expected = net(x)
        found = snnlib.from_nir(graph, dt, discretisation=discretisation)(x)
    assert expected.count_nonzero() > 0
    if library == "sinabs":
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(found, expected)
        peer_tables.record_pair(library, "snnlib", "`from_nir`", "one layer", 1.0)


@pytest.mark.parametrize("importer", THREE)
@pytest.mark.parametrize("library", ["snntorch", "spikingjelly", "norse"])
def test_a_net_of_one_library_runs_in_another(library: str, importer: str) -> None:
    if library == importer:
        pytest.skip("one library, not a pair")
    peer(importer)
    graph, net, dt, discretisation = exported(library)
    x = spikes(STEPS, BATCH, 12)
    with torch.no_grad():
        expected = net(x)
        between = snnlib.to_nir(snnlib.from_nir(graph, dt, discretisation=discretisation).eval(), x=x)
        checked = verify_nir(between, importer, DT, x=x.numpy())
        read = between if checked.exact else checked.variant
        assert read is not None, str(checked)
    share = SpikeCounts.of(expected, run(importer, read, x)).identical
    assert expected.any() and share == 1.0
    peer_tables.record_pair(library, importer, "`from_nir`, `to_nir`", "one layer", share)
