"""`snnlib train` with surrogate neurons: every model, with and without batch norm, learns, fires and is counted."""

from pathlib import Path
from typing import Any

import pytest
import torch

import snnlib
from snnlib.app.kinds.base import DataFacts
from snnlib.app.training import RunFolder, TrainConfig
from snnlib.app.training import run as training
from snnlib.app.training.classifier import SpikingClassifier
from snnlib.app.training.load import load
from snnlib.app.training.neuron import GRADED_NEURONS, NEURONS, SURROGATES, build_neuron
from snnlib.nn.fusion.fuse import parts_of


@pytest.mark.parametrize(
    "settings",
    [
        {"neuron": "lif", "batch_norm": True, "surrogate": "atan", "loss": "tet", "batch_size": 5},
        {"neuron": "cubalif", "surrogate": "triangle", "surrogate_width": 0.25, "epochs": 8},
        {"neuron": "lif", "levels": 4, "threshold": 0.5, "surrogate": "straight-through", "epochs": 8},
    ],
    ids=["LIF, batch norm", "CubaLIF, calibrated", "LIF, graded"],
)
def test_a_run(settings: dict[str, Any], config: TrainConfig, tmp_path: Path) -> None:
    config = config.changed(**settings)
    run = RunFolder.create(tmp_path / "run", config)
    result = training.train_run(config, run, progress=False)
    names = ["neuron1"] if config.net.batch_norm else ["conv1", "fc1"]
    assert [layer.name for layer in result.test.layers] == names
    assert all(layer.rate > 0 for layer in result.test.layers)
    losses = [row["train_loss"] for row in result.history]
    half = len(losses) // 2
    assert sum(losses[-half:]) < sum(losses[:half])
    again = training.test_run(config, run, progress=False)
    assert torch.equal(again.confusion, result.test.confusion)


@pytest.mark.parametrize("settings", [{"neuron": "lif", "loss": "tet"}, {"neuron": "cubalif"}])
def test_a_run_in_the_dialect_of_a_chip_ends_in_integers(
    settings: dict[str, Any], config: TrainConfig, tmp_path: Path
) -> None:
    """Its read-out is a membrane of the chip, and the net without a floating point gives the same numbers."""
    config = config.changed(dialect="loihi", **settings)
    run = RunFolder.create(tmp_path / "run", config)
    result = training.train_run(config, run, progress=False)
    spiking = ["conv1", *["fc1"] * (config.learning.loss == "count")]
    assert [layer.name for layer in result.test.layers] == spiking
    assert all(layer.rate > 0 for layer in result.test.layers)
    losses = [row["train_loss"] for row in result.history]
    assert losses[-1] < losses[0]
    net = load(run.path).net.eval()
    x = torch.poisson(torch.full((8, 5, 2, 34, 34), 0.1), generator=torch.Generator().manual_seed(0))
    assert torch.equal(snnlib.to_integers(net, x)(x), net(x))


def test_every_neuron_and_surrogate_is_built() -> None:
    shapes = [build_neuron(TrainConfig(neuron="lif", surrogate=name).net) for name in SURROGATES]
    assert len({type(neuron.surrogate) for neuron in shapes}) == len(shapes)
    assert build_neuron(TrainConfig(neuron="lif", surrogate_width=0.25).net).surrogate.width == 0.25
    kinds = [
        build_neuron(TrainConfig(neuron=name, net="8S-10" if "lru" in name else "8-10", tau=5.0).net)
        for name in NEURONS
    ]
    assert kinds[0] is None
    names = [name.removeprefix("spiking-") for name in list(NEURONS)[3:]]
    assert [type(neuron).__name__.lower() for neuron in kinds[3:]] == names
    assert [neuron.gives_spikes for neuron in kinds[-2:]] == [False, True]
    assert kinds[4].tau == 5.0
    graded = [
        build_neuron(TrainConfig(neuron=name, levels=4, threshold=0.5).net) for name in sorted(GRADED_NEURONS)
    ]
    assert [(neuron.levels, float(neuron.threshold)) for neuron in graded] == [(4, 0.5)] * 4


def test_nets_of_exact_times_are_those_of_srm_neurons() -> None:
    config = TrainConfig(neuron="cuba-event", tau_m=7.0, tau_s=3.5, net="4C3-P2-10", loss="count")
    facts = DataFacts(classes=tuple(map(str, range(10))), input_shape=(2, 8, 8))
    net = SpikingClassifier(config, facts).net
    of_srm = SpikingClassifier(config.changed(neuron="srm"), facts).net
    own, theirs = (dict(part.named_parameters()) for part in (net, of_srm))
    assert {name: value.shape for name, value in own.items()} == {n: v.shape for n, v in theirs.items()}
    assert isinstance(net.pool1, snnlib.SpikeAvgPool2d)
    neuron = net.conv1.neuron
    assert (neuron.gradient, float(neuron.tau_m), float(neuron.tau_s), neuron.refractory) == (
        "event",
        7,
        3.5,
        0,
    )
    once = build_neuron(config.changed(neuron="cuba-once").net)
    response = once.free_potential(torch.eye(20)[:, :1, None])[:, 0, 0]
    # Response of continuous time at the ends of steps, which peaks at t = tau ln 4 for tau_m = 2 tau.
    assert once.refractory == torch.inf and int(response.argmax()) + 1 == round(7.0 * 0.6931)
    potentials = SpikingClassifier(config.changed(loss="tet"), facts).net
    assert isinstance(potentials.fc1, snnlib.SRMReadout)


def test_a_run_of_exact_times(config: TrainConfig, tmp_path: Path) -> None:
    config = config.changed(neuron="cuba-event", weight_scheme="standardized", epochs=2)
    run = RunFolder.create(tmp_path / "run", config)
    result = training.train_run(config, run, progress=False)
    assert all(layer.rate > 0 for layer in result.test.layers)
    weight = result.module.net.conv1.parametrizations.weight
    assert weight[0].rate is not None and not torch.equal(weight[0].gain, torch.ones(4))
    again = training.test_run(config, run, progress=False)
    assert torch.equal(again.confusion, result.test.confusion)


def test_the_net_of_batch_norm_is_fused() -> None:
    config = TrainConfig(neuron="plif", batch_norm=True, net="4C3-P2-8C3-P2-20-10")
    facts = DataFacts(classes=tuple(map(str, range(10))), input_shape=(2, 18, 18))
    net = SpikingClassifier(config, facts).net
    assert [name for name, _ in net.named_children()] == [
        *("conv1", "neuron1", "pool1", "conv2", "neuron2", "pool2", "flatten", "fc1", "neuron3", "fc2")
    ]
    assert isinstance(net.fc2, snnlib.SRMReadout)
    blocks = [
        part for part in parts_of(snnlib.fuse_(net)) if isinstance(part, snnlib.nn.fusion.fused_block.Block)
    ]
    assert len(blocks) == 3


@pytest.mark.parametrize("options", [{}, {"neuron": "lif", "batch_norm": True}], ids=str)
def test_operations_are_part_of_the_loss(options: dict[str, Any]) -> None:
    """Their share of the dense ones times the factor, in a fused net too; the gradient reaches the first weights."""
    facts = DataFacts(classes=tuple(map(str, range(10))), input_shape=(2, 18, 18))
    frames, labels = (torch.rand(6, 4, 2, 18, 18) < 0.1).float(), torch.tensor([0, 1, 2, 3])
    results = []
    for weight in (0.0, 2.0):
        torch.manual_seed(0)
        config = TrainConfig(net="4C3-P2-8C3-P2-10", operations_weight=weight, **options)
        module = SpikingClassifier(config, facts)
        snnlib.prepare_(module.net, frames)
        snnlib.fuse_(module.net)
        loss, _ = module._loss_and_share(frames, labels)
        loss.backward()
        results.append((loss.item(), next(module.parameters()).grad.clone()))
    with snnlib.losses.SynapticOperationsLoss(module.net) as operations:
        module.net(frames)
    share = operations().item()
    assert share > 0.01 and results[1][0] - results[0][0] == pytest.approx(2 * share, rel=1e-4)
    assert not torch.equal(results[0][1], results[1][1])
