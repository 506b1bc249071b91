"""NIR graphs against the importers and exporters of other libraries, where they are installed.

What `verify_nir` says of an importer is what it does, and the variants that it writes are read right.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pairs
import pytest
import torch
from nir_graphs import DT, LOW, dyadic, single, spikes
from torch import Tensor, nn

import snnlib
from snnlib.exchange import verify_nir
from snnlib.exchange.nir.interpret import run_units
from snnlib.exchange.nir.spikes import SpikeCounts
from snnlib.exchange.nir.structure import structure_of
from snnlib.exchange.nir.targets import TARGETS
from snnlib.neurons import IF, LIF, SRM, CubaLIF

nir: Any = pytest.importorskip("nir", reason="NIR graphs need the package nir, which is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

STEPS, BATCH = 20, 8


def peer(name: str) -> Any:
    return pytest.importorskip(name, reason=f"compares with {name.partition('.')[0]}, which is not installed")


def by_steps(net: Any, x: Tensor) -> Tensor:
    state, out = None, []
    for step in x:
        value, state = net(step, state)
        out.append(value)
    return torch.stack(out)


def snntorch(graph: Any, x: Tensor) -> Tensor:
    return by_steps(peer("snntorch.import_nir").import_from_nir(graph), x)


def spikingjelly(graph: Any, x: Tensor) -> Tensor:
    return by_steps(peer("spikingjelly.activation_based.nir_exchange").import_from_nir(graph, dt=DT), x)


def norse(graph: Any, x: Tensor) -> Tensor:
    return by_steps(peer("norse.torch").from_nir(graph, dt=DT), x)


def sinabs(graph: Any, x: Tensor) -> Tensor:
    net = peer("sinabs.nir").from_nir(graph, batch_size=x.shape[1])
    out: Tensor = net(x.transpose(0, 1).flatten(0, 1))[0]
    return out.unflatten(0, (x.shape[1], x.shape[0])).transpose(0, 1)


IMPORTERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "snntorch": snntorch,
    "spikingjelly": spikingjelly,
    "norse": norse,
}


def nets(tau_m: float, tau_s: float) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(1)
    hidden = snnlib.SpikingLinear(40, 30, neuron=LIF(tau=tau_m))
    conv = (
        snnlib.SpikingConv2d(2, 4, 3, padding=1, neuron=LIF(tau=tau_m)),
        snnlib.AvgPool2d(2),
        snnlib.SpikingConv2d(4, 6, 3, neuron=CubaLIF(tau_m, tau_s)),
        snnlib.SpikingLinear(24, 10, neuron=LIF(tau=tau_s)),
    )
    srm = (snnlib.PerStep(nn.Linear(40, 20, bias=False)), SRM(tau_m, tau_s, reset_states="membrane"))
    return {
        "LIF": (nn.Sequential(hidden, snnlib.SpikingLinear(30, 10, neuron=LIF(tau=tau_s))), (40,)),
        "IF": (nn.Sequential(snnlib.SpikingLinear(40, 10, neuron=IF())), (40,)),
        "CubaLIF": (nn.Sequential(snnlib.SpikingLinear(40, 10, neuron=CubaLIF(tau_m, tau_s))), (40,)),
        "convolutions": (nn.Sequential(*conv), (2, 8, 8)),
        "SRM": (nn.Sequential(*srm), (40,)),
        "recurrent": (nn.Sequential(snnlib.SpikingRNN(40, 20, neuron=LIF(tau=tau_m, surrogate=LOW))), (40,)),
    }


@pytest.mark.parametrize("quantised", [True, False], ids=["binary fractions", "any numbers"])
@pytest.mark.parametrize("name", nets(4.0, 2.0))
@pytest.mark.parametrize("importer", IMPORTERS)
def test_importers_do_what_is_said_of_them(importer: str, name: str, quantised: bool) -> None:
    net, shape = nets(*((4.0, 2.0) if quantised else (5.0, 3.0)))[name]
    net = dyadic(net) if quantised else net.eval()
    x = spikes(STEPS, BATCH, *shape)
    with torch.no_grad():
        ours = net(x).numpy()
    assert ours.any()
    graph = snnlib.to_nir(net, x=x)
    found = verify_nir(graph, importer, DT, x=x.numpy())
    least = 1.0 if quantised else 0.9999
    if found.refused is None:
        with torch.no_grad():
            real = IMPORTERS[importer](copy.deepcopy(graph), x).numpy()
        assert SpikeCounts.of(said(graph, importer, x), real).identical >= least
        assert (SpikeCounts.of(ours, real).identical >= least) == found.exact
    how = "`to_nir`"
    if not found.exact:
        assert found.variant is not None, str(found)
        with torch.no_grad():
            real = IMPORTERS[importer](copy.deepcopy(found.variant), x).numpy()
        how = "`to_nir`, the variant of `snnlib nir verify`"
    share = SpikeCounts.of(ours, real).identical
    assert share >= least
    pairs.record("snnlib", importer, how, name, share)


@pytest.mark.parametrize("importer", IMPORTERS)
def test_nets_arrive_without_their_readout(importer: str) -> None:
    hidden, x = dyadic(nets(4.0, 2.0)["LIF"][0]), spikes(STEPS, BATCH, 40)
    graph = snnlib.to_nir(nn.Sequential(hidden, snnlib.SRMReadout(10, 3)), readout=False)
    with torch.no_grad():
        real, ours = IMPORTERS[importer](graph, x), hidden(x)
    assert ours.count_nonzero() > 0 and torch.equal(real, ours)


def said(graph: Any, importer: str, x: Tensor) -> Any:
    """Output of a graph as the library's emulation of an importer has it."""
    target, structure = TARGETS[importer], structure_of(graph)
    units = {
        name: target.unit(name, node, structure.shapes[(*structure.sources[name], name)[0]], DT)
        for name, node in structure.nodes.items()
    }
    wired = target.structure(structure)
    return run_units(wired, {name: units[name] for name in wired.nodes}, x.numpy())["output"]


@pytest.mark.parametrize("layers", ["R", "RL", "LR", "RR"])
def test_order_of_nodes_in_which_snntorch_fails_is_known(layers: str) -> None:
    import_from_nir = peer("snntorch.import_nir").import_from_nir
    torch.manual_seed(1)
    kinds = {"R": snnlib.SpikingRNN, "L": snnlib.SpikingLinear}
    net = nn.Sequential(*(kinds[kind](8, 8, neuron=LIF(tau=4.0, decay_input=False)) for kind in layers))
    x = spikes(STEPS, BATCH, 8)
    made = snnlib.to_nir(net, x=x)
    order = np.random.default_rng(0)
    outcomes = set()
    for shuffled in (False, *[True] * 7):
        names = order.permutation(list(made.nodes)) if shuffled else list(made.nodes)
        graph = nir.NIRGraph({name: made.nodes[name] for name in names}, made.edges, type_check=False)
        refused = verify_nir(graph, "snntorch", DT, x=x.numpy()).refused
        try:
            by_steps(import_from_nir(copy.deepcopy(graph)), x)
        except AttributeError:
            assert refused is not None and "nirtorch 2.6 fails on recurrent neurons" in refused
        else:
            assert refused is None
        outcomes.add(refused is None)
    assert outcomes == ({False} if layers == "RR" else {False, True})


def test_sinabs_fires_several_times_in_a_step() -> None:
    rng = np.random.default_rng(0)
    neurons = nir.LIF(*(np.full(6, value) for value in (5.0, 1.0, 0.0, 0.5)))
    nodes = {
        "input": nir.Input({"input": np.array([8])}),
        "w": nir.Affine(rng.normal(size=(6, 8)), np.zeros(6)),
        "lif": neurons,
        "output": nir.Output({"output": np.array([6])}),
    }
    graph = nir.NIRGraph(nodes, [("input", "w"), ("w", "lif"), ("lif", "output")], type_check=False)
    x = spikes(STEPS, BATCH, 8)
    with torch.no_grad():
        real = sinabs(copy.deepcopy(graph), x).numpy()
    assert real.max() > 1
    assert SpikeCounts.of(said(graph, "sinabs", x), real).identical == 1.0
    assert np.array_equal(snnlib.from_nir(graph, reading="sinabs")(x).detach().numpy(), real)
    leaky = single(nir.LI(np.array([5.0]), np.ones(1), np.zeros(1)), (8,))
    with torch.no_grad():
        np.testing.assert_allclose(
            said(leaky, "sinabs", x), sinabs(copy.deepcopy(leaky), x).numpy(), rtol=1e-5, atol=1e-5
        )


def test_nets_that_sinabs_wrote_are_read_as_it_does() -> None:
    layers = peer("sinabs.layers")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), layers.IAFSqueeze(batch_size=BATCH, min_v_mem=-1.0),
        layers.SumPool2d(2), nn.Flatten(), nn.Linear(64, 6), layers.IAFSqueeze(batch_size=BATCH, min_v_mem=-1.0),
    )  # fmt: skip
    nn.init.normal_(net[0].weight, 0, 0.7)
    x = spikes(STEPS, BATCH, 2, 8, 8)
    flat = x.transpose(0, 1).flatten(0, 1)
    with torch.no_grad():
        net(flat)
        graph = peer("sinabs.nir").to_nir(net, flat)
        found = snnlib.from_nir(graph, reading="sinabs")(x)
        expected = peer("sinabs.nir").from_nir(graph, batch_size=BATCH)(flat)[0]
    expected = expected.unflatten(0, (BATCH, STEPS)).transpose(0, 1)
    assert expected.max() > 1 and torch.equal(found, expected)


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
        pairs.record(library, "snnlib", "`from_nir`", "one layer", 1.0)


@pytest.mark.parametrize("importer", IMPORTERS)
@pytest.mark.parametrize("library", ["snntorch", "spikingjelly", "norse"])
def test_a_net_of_one_library_runs_in_another(library: str, importer: str) -> None:
    if library == importer:
        pytest.skip("one library, not a pair")
    graph, net, dt, discretisation = exported(library)
    x = spikes(STEPS, BATCH, 12)
    with torch.no_grad():
        expected = net(x).numpy()
        between = snnlib.to_nir(snnlib.from_nir(graph, dt, discretisation=discretisation).eval(), x=x)
        checked = verify_nir(between, importer, DT, x=x.numpy())
        read = between if checked.exact else checked.variant
        assert read is not None, str(checked)
        real = IMPORTERS[importer](copy.deepcopy(read), x).numpy()
    share = SpikeCounts.of(expected, real).identical
    assert expected.any() and share == 1.0
    pairs.record(library, importer, "`from_nir`, `to_nir`", "one layer", share)
