"""SRM layers as modules: options, printing, saving, copying, moving, layouts, default weights."""

import copy
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_gradient
from torch import Tensor, nn
from torch.nn.utils import parametrize

import snnlib


def _layers() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    events = torch.rand(9, 3, 4, 6, 6, 6, generator=torch.Generator().manual_seed(1))
    events = (events < 0.4).float()
    options: dict[str, Any] = {"tau_m": 8.0, "tau_s": 4.0, "threshold": 0.3, "grad_clamp": None}
    return {
        "linear": (snnlib.SRMLinear(6, 5, **options), events[:, :, 0, 0, 0]),
        "conv1d": (snnlib.SRMConv1d(4, 6, 3, groups=2, **options), events[:, :, :, 0, 0]),
        "conv2d": (
            snnlib.SRMConv2d(4, 6, (2, 3), dilation=(2, 1), padding="same", **options),
            events[:, :, :, 0],
        ),
        "conv3d": (snnlib.SRMConv3d(4, 6, 2, stride=2, **options), events),
        "per channel": (
            snnlib.SRMConv2d(4, 6, 3, **{**options, "threshold": torch.linspace(0.1, 0.6, 6)}),
            events[:, :, :, 0],
        ),
    }


each_layer = pytest.mark.parametrize("name", list(_layers()))


@each_layer
def test_to_float64_and_half(name: str) -> None:
    layer, x = _layers()[name]
    wide = copy.deepcopy(layer).to(torch.float64)
    assert wide(x.double()).dtype == wide.threshold.dtype == torch.float64
    # Spikes may differ in rounding only.
    assert (wide(x.double()) != layer(x)).float().mean() < 0.01
    half = copy.deepcopy(layer).to(torch.bfloat16)
    assert half(x.bfloat16()).dtype == torch.bfloat16
    assert half(x.bfloat16()).isfinite().all()


CONVOLUTIONS = [
    pytest.param(
        dims, stride, padding, dilation, groups, id=f"{dims}-D, {stride}, {padding}, {dilation}, {groups}"
    )
    for dims, (stride, padding), dilation, groups in itertools.product(
        (1, 2, 3), ((1, 0), (1, 1), (1, "same"), (2, 0), (2, 1)), (1, 2), (1, 2, 4)
    )
]


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize(("dims", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_every_convolution_equals_convolution_then_neurons(
    dims: int, stride: int, padding: int | str, dilation: int, groups: int, batch_first: bool
) -> None:
    """Spikes, gradients, last states and chunks. Even kernels; weights in quarters, so that currents are exact."""
    generator = torch.Generator().manual_seed(5)
    kind = (snnlib.SRMConv1d, snnlib.SRMConv2d, snnlib.SRMConv3d)[dims - 1]
    layer = kind(4, 8, 2, stride, padding, dilation, groups, threshold=0.25, batch_first=batch_first)
    layer.weight.data = torch.randint(-2, 4, layer.weight.shape, generator=generator) / 4
    frames = (2, 6) if batch_first else (6, 2)
    x = (torch.rand(*frames, 4, *[6] * dims, generator=generator) < 0.3).float().requires_grad_()

    def results() -> tuple[Tensor, ...]:
        out = layer(x)
        q = torch.randn(out.shape, generator=torch.Generator().manual_seed(6))
        return out, *layer.run(x).state, *torch.autograd.grad(out, [x, layer.weight], q)

    spikes, state, *gradients = results()
    with snnlib.use_path("reference"):
        expected, expected_state, *expected_gradients = results()
    assert 0.01 < spikes.mean() < 0.7
    assert_bits(spikes, expected)
    assert_bits(state, expected_state)
    for gradient, answer in zip(gradients, expected_gradients, strict=True):
        assert_gradient(gradient, answer, 1e-5)
    stream, chunks = snnlib.Stream(layer), torch.tensor_split(x, [1, 3], int(batch_first))
    assert_bits(torch.cat([stream(chunk) for chunk in chunks], int(batch_first)), spikes)


@pytest.mark.parametrize(
    "make",
    [
        lambda **place: snnlib.SRMLinear(6, 5, **place),
        lambda **place: snnlib.SRMConv2d(4, 6, 3, threshold=torch.linspace(0.1, 0.6, 6, **place), **place),
        lambda **place: snnlib.SRMReadout(6, 5, **place),
    ],
    ids=["linear", "per channel", "readout"],
)
def test_layers_without_memory_take_a_state_dict(make: Callable[..., nn.Module]) -> None:
    layer, empty = make(), make(device="meta")
    assert empty.weight.is_meta
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    for tensor, expected in zip(empty.state_dict().values(), layer.state_dict().values(), strict=True):
        assert_bits(tensor, expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", "SRMLinear(6, 5, tau_m=8, tau_s=4, tau_grad=4, threshold=0.3, grad_clamp=None)"),
        (
            "conv1d",
            "SRMConv1d(4, 6, kernel_size=(3,), stride=(1,), padding=(0,), groups=2, "
            "tau_m=8, tau_s=4, tau_grad=4, threshold=0.3, grad_clamp=None)",
        ),
        (
            "conv2d",
            "SRMConv2d(4, 6, kernel_size=(2, 3), stride=(1, 1), padding='same', dilation=(2, 1), "
            "tau_m=8, tau_s=4, tau_grad=4, threshold=0.3, grad_clamp=None)",
        ),
    ],
)
def test_printing(name: str, expected: str) -> None:
    assert repr(_layers()[name][0]) == expected


def test_printing_of_other_options() -> None:
    layer = snnlib.SRMLinear(2, 3, threshold=torch.ones(3), input_grad_scale=0.85, tau_grad=2.5)
    text = "tau_m=5, tau_s=3, tau_grad=2.5, threshold=per channel, input_grad_scale=0.85"
    assert repr(layer) == f"SRMLinear(2, 3, {text})"
    assert "batch_first=True" in repr(snnlib.SRMLinear(2, 3, batch_first=True))


@pytest.mark.parametrize("inputs", [20, 100, 1000])
@pytest.mark.parametrize("threshold", [1.0, 5.0])
def test_default_weights_fire_at_a_sane_rate(inputs: int, threshold: float) -> None:
    """At the 5 % input rate that the initialisation assumes, whatever the fan-in and the threshold."""
    torch.manual_seed(2)
    layer = snnlib.SRMLinear(inputs, 200, threshold=threshold)
    rate = layer((torch.rand(30, 4, inputs) < 0.05).float()).mean().item()
    assert 0.005 < rate < 0.3, rate


class _Tripled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 3 * weight


@each_layer
def test_parametrized_weight_trains(name: str) -> None:
    layer, x = _layers()[name]
    with torch.no_grad():
        expected = copy.deepcopy(layer)
        expected.weight.mul_(3)
    parametrize.register_parametrization(layer, "weight", _Tripled())
    assert_bits(layer(x), expected(x))
    layer(x).sum().backward()
    expected(x).sum().backward()
    torch.testing.assert_close(layer.parametrizations.weight.original.grad, 3 * expected.weight.grad)


def test_threshold_is_a_buffer_that_belongs_to_the_layer() -> None:
    limit = torch.ones(3)
    layer = snnlib.SRMLinear(2, 3, threshold=limit)
    limit.fill_(7)
    assert layer.threshold.tolist() == [1, 1, 1]
    constants = {f"neuron.{name}" for name in ("tau_m", "tau_s", "tau_grad", "grad_clamp")}
    assert set(layer.state_dict()) == {"weight", "threshold", "gain", "input_grad_scale"} | constants
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_layers_have_torchs_attributes_and_show_their_options() -> None:
    for ours, theirs in ((snnlib.SRMConv2d, torch.nn.Conv2d), (snnlib.SpikingConv2d, torch.nn.Conv2d)):
        options = {"stride": (1, 2), "padding": 3, "dilation": 2, "groups": 2}
        layer, model = ours(4, 6, 3, **options), theirs(4, 6, 3, **options)
        for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
            assert getattr(layer, name) == getattr(model, name), name
        assert ours(4, 6, 3, padding="same").padding == "same"
    for kind in (snnlib.SRMConv2d, snnlib.SRMLinear):
        shown = inspect.signature(kind).parameters
        assert shown["tau_m"].default == 5.0 and shown["grad_clamp"].default == 4.0 and "threshold" in shown
