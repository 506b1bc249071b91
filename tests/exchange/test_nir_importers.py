"""What importers of other libraries make of NIR graphs, as `verify_nir` and `from_nir` have it, and the command."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nir_graphs import DT, LOW, dyadic, nir, single, spikes
from torch import nn

import snnlib
from snnlib.exchange import verify_nir
from snnlib.exchange.nir.interpret import interpret, run_units
from snnlib.exchange.nir.show import shown
from snnlib.exchange.nir.structure import structure_of
from snnlib.exchange.nir.targets.sinabs import Sinabs
from snnlib.neurons import IF, LIF


def importer_cases() -> dict[str, tuple[Any, dict[str, tuple[bool, str | None]]]]:
    """Graphs, and for each importer whether it is exact as it stands, and why there is no variant."""
    torch.manual_seed(0)
    refused = "takes the threshold off"
    lif = dyadic(nn.Sequential(snnlib.SpikingLinear(12, 8, neuron=LIF(tau=4.0))))
    conv = dyadic(nn.Sequential(snnlib.SpikingConv2d(4, 4, 3, groups=2), snnlib.AvgPool2d(2)))
    rnn = dyadic(nn.Sequential(snnlib.SpikingRNN(12, 8, neuron=LIF(tau=4.0, surrogate=LOW))))
    neurons = dyadic(nn.Sequential(snnlib.SpikingLinear(12, 8, neuron=IF())))
    several = nir.LIF(np.array([2e-4, 4e-4]), np.ones(2), np.zeros(2), np.array([0.25, 0.5]))
    rest = nir.LIF(*(np.array([value, value]) for value in (2e-4, 1.0, 0.125, 0.25)), v_reset=np.zeros(2))
    return {
        "LIF": (
            snnlib.to_nir(lif),
            {
                "snntorch": (True, None),
                "spikingjelly": (True, None),
                "norse": (True, None),
                "sinabs": (False, refused),
            },
        ),
        "grouped convolution and pooling": (
            snnlib.to_nir(conv, x=spikes(1, 1, 4, 6, 6)),
            {"snntorch": (False, None), "spikingjelly": (False, None), "norse": (False, None)},
        ),
        "recurrent": (
            snnlib.to_nir(rnn),
            {
                "snntorch": (False, None),
                "spikingjelly": (True, None),
                "norse": (True, None),
                "sinabs": (False, refused),
            },
        ),
        "IF": (
            snnlib.to_nir(neurons),
            {
                "snntorch": (False, None),
                "spikingjelly": (True, None),
                "norse": (True, None),
                "rockpool": (False, refused),
            },
        ),
        "several thresholds": (
            single(several, (2,)),
            {
                "snntorch": (False, "one threshold"),
                "spikingjelly": (False, "one threshold for all neurons"),
                "norse": (True, None),
            },
        ),
        "a rest that is no reset": (
            single(rest, (2,)),
            {
                "snntorch": (False, "v_leak = 0"),
                "spikingjelly": (False, "v_leak = v_reset"),
                "norse": (True, None),
            },
        ),
    }


@pytest.mark.parametrize("name", list(importer_cases()) if nir else [])
def test_importers_are_told_apart(name: str) -> None:
    graph, targets = importer_cases()[name]
    x = spikes(40, 4, *graph.nodes["input"].input_type["input"])
    fired = interpret(graph, x.numpy(), DT)
    assert any(fired[node].any() for node in fired if "neuron" in node or node == "node")
    for target, (exact, reason) in targets.items():
        found = verify_nir(graph, target, DT, x=x.numpy())
        assert found.exact == exact, f"{target}: {found}"
        if exact:
            continue
        assert (found.variant is None) == (reason is not None), f"{target}: {found}"
        if reason is not None:
            assert reason in str(found.no_variant)


def test_units_of_the_importer() -> None:
    # In steps, as sinabs has it: snnTorch reads a time constant of 20 s, where nearly nothing leaks.
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
        structure = structure_of(graph)
        units = {name: Sinabs().unit(name, each, (3,), 1.0) for name, each in structure.nodes.items()}
        expected = run_units(structure, units, x.numpy())["output"]
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


def test_a_graph_that_never_fires_is_not_compared() -> None:
    # Without a leak, a neuron of sinabs' gains 1 per step and spike: 1e-4 with a step of 1e-4.
    graph = single(nir.IF(r=np.ones(3), v_threshold=np.ones(3)), (3,))
    with pytest.raises(
        ValueError, match=r"dt: expected a step at which .* fire, got 0\.0001 s, at which none"
    ):
        verify_nir(graph, "norse", DT)
    assert verify_nir(graph, "norse", 1.0).spikes["node"].matched > 0
    # Potentials alone are compared as they are.
    assert not verify_nir(
        single(nir.LI(np.array([2.0]), np.ones(1), np.zeros(1)), (1,)), "sinabs", 1.0
    ).spikes


def test_recurrent_neurons_that_nirtorch_builds_twice_are_refused() -> None:
    made = snnlib.to_nir(
        nn.Sequential(snnlib.SpikingRNN(6, 4, neuron=LIF(tau=4.0, decay_input=False, surrogate=LOW)))
    )
    x = spikes(20, 4, 6)
    assert verify_nir(made, "snntorch", DT, x=x.numpy()).refused is None
    # The order in which a file gives the nodes back.
    listed = nir.NIRGraph(
        {name: made.nodes[name] for name in sorted(made.nodes)}, made.edges, type_check=False
    )
    found = verify_nir(listed, "snntorch", DT, x=x.numpy())
    assert found.refused is not None and "0_0.neuron: nirtorch 2.6 fails" in found.refused
    assert found.variant is not None and verify_nir(found.variant, "snntorch", DT, x=x.numpy()).exact


def test_the_last_spikes_go_where_no_readout_does(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    hidden = dyadic(nn.Sequential(snnlib.SpikingConv2d(2, 4, 3, neuron=LIF(tau=4.0)), snnlib.AvgPool2d(2)))
    lif = snnlib.SpikingRNN(16, 8, neuron=LIF(tau=4.0, surrogate=LOW))
    integrated = snnlib.SpikingLinear(8, 3, neuron=snnlib.neurons.Integrator(tau=4.0))
    x = spikes(20, 3, 2, 6, 6)
    for readout in (snnlib.SRMReadout(8, 3), integrated):
        net = nn.Sequential(hidden, dyadic(lif), readout)
        for target in ("snntorch", "spikingjelly", "norse"):
            refused = verify_nir(snnlib.to_nir(net, x=x), target, DT, x=x.numpy())
            assert refused.variant is None and "readout=False (--no-readout)" in str(refused.no_variant)
            graph = snnlib.to_nir(net, x=x, readout=False)
            found = verify_nir(graph, target, DT, x=x.numpy())
            assert found.exact or found.variant is not None, str(found)
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
    text = shown(snnlib.to_nir(nn.Sequential(snnlib.SpikingRNN(4, 3, neuron=LIF(tau=4.0, surrogate=LOW)))))
    assert "0_0.w_in + 0_0.w_rec [t-1]" in text and "tau [3] 0.0004" in text


def test_the_command_writes_the_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = pytest.importorskip("snnlib.app.cli", reason="the command needs snnlib[train]")
    path = tmp_path / "net.nir"
    nir.write(path, snnlib.to_nir(nn.Sequential(snnlib.SpikingLinear(6, 4, neuron=IF()))))

    def run(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["nir", *map(str, arguments)])
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out + said.err

    assert "0.neuron  IF" in run("show", path)[1]
    code, said = run("verify", path, "--target", "snntorch")
    assert code == 0 and "a variant of the graph is exact there" in said
    assert (tmp_path / "net.snntorch.nir").exists()
    assert run("verify", path, "--target", "sinabs")[0] == 1
    nir.write(path, single(nir.IF(r=np.ones(3), v_threshold=np.ones(3)), (3,)))
    code, said = run("verify", path, "--target", "norse")
    assert code == 2 and said.startswith("error: --dt: expected a step at which the graph's neurons fire")
    code, said = run("show", tmp_path / "none.nir")
    assert code == 2 and said.startswith("error: ")
