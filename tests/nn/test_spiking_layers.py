"""Layers with any neuron: fused kernels, currents and scan, and plain torch give the same; states and errors."""

import pytest
import torch
from runs import results_in_chunks
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.functional import Convolution, FullyConnected, spiking_layer

SURROGATES = [surrogate.Triangle(), surrogate.Triangle(0.25, 0.4), surrogate.Rectangle(), surrogate.ATan()]
RESETS = [("zero", True), ("zero", False), ("subtract", True), ("subtract", False), ("none", True)]
CONVOLUTIONS = {"padded": {"padding": 1}, "stride": {"stride": 2}, "groups": {"groups": 2}}


def _by_hand(
    x: Tensor, weight: Tensor, operator: object, neuron: neurons.Neuron, pool: tuple[int, int]
) -> Tensor:
    """The layer in float64 by torch's convolution and the neuron's own `step`."""
    current = operator.forward(x.flatten(0, 1), weight)  # type: ignore[attr-defined]
    value = neuron.reference(current.reshape(*x.shape[:2], *current.shape[1:])).value
    if pool == (1, 1):
        return value
    return nn.functional.avg_pool2d(value.flatten(0, 1), pool).unflatten(0, x.shape[:2])


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=list(CONVOLUTIONS))
@pytest.mark.parametrize("pool", [(1, 1), (2, 2)], ids=["unpooled", "pooled"])
@pytest.mark.parametrize(("reset", "detach"), RESETS)
@pytest.mark.parametrize("bump", SURROGATES, ids=str)
def test_fused_layer_equals_step_by_step(
    bump: surrogate.Surrogate, reset: str, detach: bool, pool: tuple[int, int], options: dict[str, int]
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(11, 3, 4, 9, 10, generator=generator) < 0.1).float()
    operator = Convolution(2, **options)
    weight = torch.randn(20, 4 // operator.groups, 3, 3, generator=generator) * 0.5
    threshold = 0.75 + 0.5 * torch.rand(20, generator=generator)
    neuron = neurons.LIF(
        3.0, decay_input=False, surrogate=bump, reset=reset, detach_reset=detach, threshold=threshold
    )
    wide_x, wide_w = (tensor.double().requires_grad_() for tensor in (x, weight))
    expected = _by_hand(wide_x, wide_w, operator, neuron, pool)
    q = torch.randn(expected.shape, generator=generator)
    (expected * q).sum().backward()
    assert 0.005 < expected.mean() < 0.5
    for choice in ("events", "dense"):
        events, w = x.clone().requires_grad_(), weight.clone().requires_grad_()
        with snnlib.use_convolution(choice):
            out = spiking_layer(events, w, operator, neuron, return_state=False, pool=pool).value
            (out * q).sum().backward()
        assert torch.equal(out.double(), expected)
        for grad, answer in ((events.grad, wide_x.grad), (w.grad, wide_w.grad)):
            assert grad is not None and answer is not None
            assert (grad - answer).abs().max() < 1e-5 * answer.abs().max(), choice


def _layers() -> dict[str, tuple[nn.Module, Tensor]]:
    spikes = lambda *shape: (torch.rand(12, 3, *shape) < 0.2).float()  # noqa: E731
    tau = {"tau": 3.0, "surrogate": surrogate.Triangle()}
    return {
        "linear": (snnlib.SpikingLinear(20, 6, neuron=neurons.LIF(**tau)), spikes(20)),
        "linear over frames": (
            snnlib.SpikingLinear(2 * 4 * 5, 6, neuron=neurons.LIF(**tau)),
            spikes(2, 4, 5),
        ),
        "1-D": (snnlib.SpikingConv1d(2, 6, 3, padding=1, neuron=neurons.LIF(**tau)), spikes(2, 9)),
        "2-D": (snnlib.SpikingConv2d(2, 6, 3, stride=2, neuron=neurons.LIF(**tau)), spikes(2, 8, 9)),
        "3-D": (snnlib.SpikingConv3d(2, 4, 3, padding="same", neuron=neurons.LIF(**tau)), spikes(2, 4, 5, 6)),
        "learnable": (
            snnlib.SpikingConv2d(
                2, 6, 3, neuron=neurons.LIF(3.0, learnable=("tau", "threshold"), channels=6)
            ),
            spikes(2, 8, 9),
        ),
        "next": (snnlib.SpikingLinear(20, 6, neuron=neurons.LIF(3.0, dialect="snntorch")), spikes(20)),
    }


@pytest.mark.parametrize("name", list(_layers()))
def test_chunks_give_the_whole_sequence(name: str) -> None:
    """Spikes and states bit for bit; gradients to 1e-6 of the largest entry."""
    torch.manual_seed(0)
    layer, x = _layers()[name]
    if name == "3-D":
        # torch sums this convolution, in an order of its own: on a grid every order gives the same spikes.
        layer.weight.data.mul_(64).round_().div_(64)
    whole, chunks = (results_in_chunks(layer, x, sizes) for sizes in ([12], [1, 7, 4]))
    assert whole[0].sum() > 0
    # torch sums dL/dx, and some processors round by the number of its frames.
    for number, (a, b) in enumerate(zip(whole, chunks, strict=True)):
        assert a.abs().max() > 0
        if number < 2:
            assert torch.equal(a, b)
        tolerance = 4e-6 if name == "3-D" else 1e-6
        assert (a - b).abs().max() <= tolerance * a.abs().max()


@pytest.mark.parametrize("name", list(_layers()))
def test_a_layer_equals_its_run_and_batch_first(name: str) -> None:
    torch.manual_seed(0)
    layer, x = _layers()[name]
    out = layer(x)
    assert torch.equal(out, layer.run(x).value)
    with torch.no_grad():
        assert torch.equal(out, layer.run(x).value)
    layer.batch_first = layer.neuron.batch_first = True
    assert torch.equal(layer(x.transpose(0, 1)).transpose(0, 1), out)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(TypeError, match=r"neuron: expected an instance of snnlib\.neurons\.Neuron"):
        snnlib.SpikingLinear(3, 4, neuron=neurons.LIF)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"threshold: expected 4 values, one per channel, got 5"):
        snnlib.SpikingLinear(3, 4, neuron=neurons.LIF(threshold=torch.ones(5)))(torch.rand(2, 1, 3))
    layer = snnlib.SpikingLinear(3, 4)
    with pytest.raises(ValueError, match=r"state: expected shape \(1, 2, 4\) for v, got \(1, 3, 4\)"):
        layer.run(torch.rand(2, 2, 3), layer.run(torch.rand(2, 3, 3)).state)
    with pytest.raises(ValueError, match=r"x: expected 3 inputs in dimension 2"):
        spiking_layer(torch.rand(2, 2, 4), torch.rand(4, 3), FullyConnected(), neurons.LIF())
    with pytest.raises(ValueError, match=r"modules: expected an output of 4 frames"):
        snnlib.PerStep(nn.Flatten(0))(torch.rand(2, 2, 3))


@pytest.mark.parametrize(
    "layer", [kind for name in snnlib.nn.__all__ if isinstance(kind := getattr(snnlib.nn, name), type)]
)
def test_four_classes_above_a_layer(layer: type) -> None:
    """A reader of a layer meets at most four classes of this library above it."""
    above = [kind.__name__ for kind in layer.__mro__[1:] if kind.__module__.startswith("snnlib")]
    assert len(above) <= 4, above
