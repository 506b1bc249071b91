"""Dispatch of a convolution: by data and shape, explained on request."""

from typing import Any

import pytest
import torch
from rates import set_rates_
from torch import Tensor

import snnlib
from snnlib import functional as F
from snnlib.backends import algorithm
from snnlib.backends.geometry import ConvOptions, geometry

pytestmark = pytest.mark.skipif(snnlib.backends.native._module is None, reason="needs the compiled module")


def _train(density: float, *shape: int) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(2)) < density).float()


def _layer() -> snnlib.SRMConv2d:
    torch.manual_seed(1)
    return snnlib.SRMConv2d(16, 64, 3, padding=1)


def test_few_events_go_one_by_one_and_many_densely() -> None:
    layer = _layer()
    paths = [
        snnlib.explain_dispatch(layer, _train(d, 12, 4, 16, 16, 16)).forward.path
        for d in (0.02, 0.1, 0.9, 1.0)
    ]
    assert paths == ["events", "events", "dense", "dense"]


# Break-even was measured between these densities; docs/measurements/speed.md has the table.
@pytest.mark.parametrize(
    ("sequence", "weight", "padding", "below", "above"),
    [
        ((30, 50, 2, 34, 34), (12, 2, 5, 5), 1, 0.3, 0.5),
        ((30, 50, 12, 16, 16), (64, 12, 5, 5), 0, 0.6, 0.95),
        # Winograd's algorithm takes 0.6 of the time of oneDNN's convolution.
        ((12, 8, 128, 32, 32), (128, 128, 3, 3), 1, 0.2, 0.45),
        ((30, 50, 2304, 1, 1), (10, 2304, 1, 1), 0, 0.2, 0.5),
    ],
)
def test_estimates_meet_where_times_do(
    sequence: tuple[int, ...], weight: tuple[int, ...], padding: int, below: float, above: float
) -> None:
    x, w = torch.empty(sequence, device="meta"), torch.empty(weight, device="meta")
    g = geometry(x, w, ConvOptions((1, 1), (padding, padding), (1, 1), 1))
    for density, fewer in ((0.0, True), (below, True), (above, False), (1.0, False)):
        events, dense = algorithm.costs(g, density)
        assert (events < dense) == fewer


def test_explanation() -> None:
    def explained(layer: torch.nn.Module, x: Tensor) -> Any:
        return snnlib.explain_dispatch(layer, x).forward

    x = _train(0.1, 12, 4, 16, 16, 16)
    decision = explained(_layer(), x)
    assert 0.08 < decision.density < 0.12
    assert decision.events_cost < decision.dense_cost
    assert decision.reason.startswith(f"{decision.density:.1%} of the inputs are events")
    assert "float32" in explained(_layer().double(), x[:3, :1, :, :5, :5].double()).reason
    for dtype in (torch.bfloat16, torch.float16):
        assert explained(_layer().to(dtype), x.to(dtype)) == decision
    assert "too small" in explained(snnlib.SRMLinear(3, 2), torch.ones(4, 1, 3)).reason


def test_explanation_of_a_layer_whose_weight_is_made_of_others() -> None:
    layer, x = _layer(), _train(0.1, 12, 4, 16, 16, 16)
    expected = snnlib.explain_dispatch(layer, x).forward
    snnlib.nn.standardize_weights_(torch.nn.Sequential(layer))
    explanation = snnlib.explain_dispatch(layer, x)
    assert explanation.forward == expected
    assert explanation.rate == pytest.approx(layer(x).detach().mean().item())


def test_only_layers_with_neurons_are_explained() -> None:
    with pytest.raises(
        TypeError, match="expected a spiking layer or a net with spiking layers, got SRMReadout"
    ):
        snnlib.explain_dispatch(snnlib.SRMReadout(3, 2), torch.ones(4, 1, 3))


def test_layers_of_a_net_are_explained_for_what_reaches_them() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        _layer(),
        snnlib.SpikeAvgPool2d(2),
        torch.nn.Flatten(2),
        snnlib.SRMLinear(64 * 64, 9),
        snnlib.SRMReadout(9, 3),
    )
    x = _train(0.1, 12, 4, 16, 16, 16)
    snnlib.prepare_(net, x)
    with torch.no_grad():
        expected = {"0": snnlib.explain_dispatch(net[0], x), "3": snnlib.explain_dispatch(net[3], net[:3](x))}
    for each in (net, snnlib.fuse_(net)):
        found = snnlib.explain_dispatch(each, x)
        assert found == expected
        assert not any(module._forward_pre_hooks for module in each.modules())
    assert str(found).startswith("0\n  path: layer\n  forward: events (") and "\n3\n  path: " in str(found)


def _way_of_gradients(layer: snnlib.SRMConv2d, x: Tensor, pool: tuple[int, int] = (1, 1)) -> tuple[str, ...]:
    """Returns the gradients that the layer's backward pass requested."""
    ways: list[tuple[str, ...]] = []

    def decide(*arguments: Any) -> algorithm.BackwardAlgorithms:
        ways.append(choose(*arguments))
        return ways[-1]  # type: ignore[return-value]

    choose = algorithm.decide_backward
    with pytest.MonkeyPatch.context() as patch:
        out = layer.forward(x.clone().requires_grad_(), pool=pool)
        patch.setattr(algorithm, "decide_backward", decide)
        out.sum().backward()
    return ways[0]


@pytest.mark.parametrize("pool", [(1, 1), (2, 2)])
@pytest.mark.parametrize(("density", "rate"), [(0.02, 0.01), (0.02, 0.2), (0.2, 0.01), (0.5, 0.4)])
def test_gradients_take_the_ways_that_are_explained(
    density: float, rate: float, pool: tuple[int, int]
) -> None:
    layer, x = _layer(), _train(density, 12, 4, 16, 16, 16)
    set_rates_(layer, x, rate)
    explanation = snnlib.explain_dispatch(layer, x)
    assert explanation.rate == pytest.approx(rate, rel=0.1)
    assert tuple(explanation.gradients) == _way_of_gradients(layer, x, pool)
    assert f"weight gradient: {explanation.gradients.weight}" in str(explanation)
    for asked, ways in (("dense", {"dense"}), ("events", {"inputs", "spikes"})):
        with snnlib.use_convolution(asked):  # type: ignore[arg-type]
            forced = snnlib.explain_dispatch(layer, x).gradients
            assert set(forced) <= ways
            assert tuple(forced) == _way_of_gradients(layer, x, pool)


@pytest.mark.parametrize(
    ("layer", "lacks"),
    [(snnlib.SRMConv2d(2, 4, 3, groups=2), "groups"), (snnlib.SRMConv3d(2, 4, 3), "third axis")],
    ids=["groups", "third axis"],
)
def test_convolutions_without_events_are_always_dense(layer: snnlib.nn.SRMLayer, lacks: str) -> None:
    x = _train(0.1, 3, 1, 2, *[5] * (layer.weight.dim() - 2))
    for asked in ("auto", "events"):
        with snnlib.use_convolution(asked):
            decision = snnlib.explain_dispatch(layer, x).forward
            assert decision.path == "dense"
            assert decision.reason == f"the event-driven kernels have no {lacks}"
            assert 0 < decision.dense_cost < decision.events_cost
            assert torch.equal(layer(x), layer.run(x).value)


def test_zeros_between_taps_cost_events_only() -> None:
    # Few channels, for which Winograd's algorithm does not run.
    x, weight = torch.empty(12, 4, 16, 32, 32, device="meta"), torch.empty(64, 16, 3, 3, device="meta")
    plain, dilated = (
        algorithm.costs(geometry(x, weight, ConvOptions((1, 1), (gap, gap), (gap, gap), 1)), 0.3)
        for gap in (1, 2)
    )
    assert dilated[0] > 2 * plain[0]
    assert dilated[1] == plain[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options", [{"padding": 1}, {"padding": 2, "dilation": 2}, {"stride": 2, "padding": 2, "dilation": 2}]
)
def test_both_paths_give_the_same_layer(
    options: dict[str, int], batch_first: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    layer = snnlib.SRMConv2d(16, 40, 3, batch_first=batch_first, **options).to(dtype)
    x = _train(0.3, 6, 3, 16, 9, 8).to(dtype)
    # Eighths: currents are exact in any order, so spikes are equal.
    layer.weight.data = (layer.weight.data * 8).round() / 8 + 0.125
    results = []
    for path in ("events", "dense"):
        leaf = x.clone().requires_grad_()
        with snnlib.use_convolution(path):
            assert snnlib.explain_dispatch(layer, x).forward.path == path
            out, (state,) = layer.run(leaf)
        assert 0.02 < out.mean() < 0.9
        results.append((out, state, *torch.autograd.grad(out.sum(), [leaf, layer.weight])))
    assert all(map(torch.equal, *results))


def test_streams_go_by_events() -> None:
    x = _train(1.0, 12, 4, 16, 16, 16)
    layer = _layer()
    assert snnlib.explain_dispatch(layer, x).forward.path == "dense"
    with snnlib.use_convolution("events"):
        expected = layer(x)
    assert torch.equal(layer.run(x).value, expected)


@pytest.mark.parametrize("asked", ["auto", "events", "dense"])
def test_the_path_is_the_one_that_is_explained(asked: algorithm.Convolution) -> None:
    small, large = torch.rand(2, 12, 4, 16, 16, 16).unbind()
    for sequence in (small[:1, :1, :, :4, :4], large, _train(0.01, 12, 4, 16, 16, 16)):
        g = geometry(sequence, _layer().weight, ConvOptions((1, 1), (1, 1), (1, 1), 1))
        for streaming in (False, True):
            with snnlib.use_convolution(asked):
                expected = algorithm.decide(sequence, g, streaming).path
                assert algorithm.path(sequence, g, streaming) == expected


@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 4), (3, 0, 2), (1, 1, 1)])
def test_density_of_odd_sequences(shape: tuple[int, ...]) -> None:
    assert algorithm.density(torch.ones(shape)) == float(0 not in shape)


def test_density_reads_a_sample_of_any_layout() -> None:
    x = _train(0.2, 40, 10, 2, 30, 30)
    for sequence in (x, x.transpose(0, 1), x.movedim(2, -1).contiguous().movedim(-1, 2)):
        assert abs(algorithm.density(sequence) - 0.2) < 0.01


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layers_without_inputs_are_silent(axes: int, groups: int, path: str) -> None:
    """Neurons without a current, as many as there are output channels, by every path."""
    convolve = (F.srm_conv1d, F.srm_conv2d, F.srm_conv3d)[axes - 1]
    for asked in ("events", "dense"):
        x = torch.zeros(3, 2, 0, *[5] * axes, requires_grad=True)
        weight = torch.zeros(4, 0, *[3] * axes, requires_grad=True)
        with snnlib.use_convolution(asked):
            y = convolve(x, weight, groups=groups)
            y.sum().backward()
        assert y.shape == (3, 2, 4, *[3] * axes)
        assert not y.any()
        assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)


def test_what_takes_spikes_back() -> None:
    x = _train(0.3, 5, 2, 6)
    compact = snnlib.surrogate.Triangle(height=0.5)
    neuron = snnlib.neurons.LIF(surrogate=compact)

    def explained(**options: Any) -> str:
        return snnlib.explain_dispatch(snnlib.SpikingRNN(6, 4, **options).layers[0], x).recurrence

    with snnlib.use_path("native"):
        assert explained(neuron=neuron).startswith("native (")
        assert explained(neuron=neuron, recurrent_delays=snnlib.Delays(3)).startswith("native (")
    with snnlib.use_path("reference"):
        assert explained(neuron=neuron).startswith("reference (asked for")
    assert explained(neuron=snnlib.neurons.KLIF(scale_reset=True, surrogate=compact)).startswith("native (")
    assert "recurrent kernels lack Integrator" in explained(neuron=snnlib.neurons.Integrator())
    assert snnlib.explain_dispatch(snnlib.SRMLinear(6, 4), x).recurrence == ""
