"""Wrong arguments of layers and neuron functions: the type, and a message that names the argument and the value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import snnlib
from snnlib import functional as F

TRAIN = torch.zeros(4, 2, 3)
FRAMES = torch.zeros(4, 2, 3, 6, 6)

NEURON_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"tau_m": 0.5}, r"tau_m: expected a finite number of time steps >= 1, got 0\.5"),
    ({"tau_m": float("nan")}, r"tau_m: .*got nan"),
    ({"tau_m": float("inf")}, r"tau_m: .*got inf"),
    ({"tau_s": 0.999}, r"tau_s: .*got 0\.999"),
    ({"tau_grad": 1.0}, r"tau_grad: expected a finite number of time steps > 1, got 1\.0"),
    ({"tau_grad": -2.0}, r"tau_grad: .*got -2\.0"),
    ({"tau_s": 1.0}, r"tau_grad: expected a number of time steps > 1 beside tau_s = 1"),
    ({"grad_clamp": 0.0}, r"grad_clamp: expected a number > 0 or None, got 0\.0"),
    ({"threshold": 0.0}, r"threshold: expected .* > 0, got 0\.0"),
    ({"threshold": -1.0}, r"threshold: expected .* > 0, got -1\.0"),
    ({"threshold": float("nan")}, r"threshold: expected .* > 0, got nan"),
    ({"threshold": torch.ones(4)}, r"threshold: expected a scalar or shape \(3,\).*got shape \(4,\)"),
    ({"threshold": torch.ones(1, 3)}, r"threshold: .*got shape \(1, 3\)"),
]
each_option = pytest.mark.parametrize(("options", "message"), NEURON_OPTIONS, ids=str)


@each_option
def test_neuron_function(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        F.srm_neuron(TRAIN, **options)


@each_option
def test_layer(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.SRMLinear(5, 3, **options)


def test_one_bad_threshold_of_many() -> None:
    with pytest.raises(ValueError, match=r"threshold: expected numbers > 0"):
        snnlib.SRMLinear(5, 3, threshold=torch.tensor([1.0, 0.0, 1.0]))


NEURON_CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "srm_neuron": F.srm_neuron,
    "srm_trace": F.srm_trace,
    "srm_backward": lambda x: F.srm_backward(x, x),
}


@pytest.mark.parametrize("call", NEURON_CALLS.values(), ids=list(NEURON_CALLS))
def test_currents(call: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(ValueError, match=r"current: expected \[T, N, \.\.\.\], got shape \(4,\)"):
        call(torch.zeros(4))
    with pytest.raises(TypeError, match=r"current: expected a floating dtype, got torch\.int64"):
        call(torch.zeros(4, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"current: expected a torch\.Tensor, got list"):
        call([[0.0]])  # type: ignore[arg-type]


def test_gradient_shape() -> None:
    message = r"grad_value: expected the output's shape \(4, 2, 3\), got \(4, 2, 1\)"
    with pytest.raises(ValueError, match=message):
        F.srm_backward(TRAIN[..., :1], TRAIN)


@pytest.mark.parametrize("shape", [(3, 2), (2, 2, 3), (3, 4, 3), (3, 2, 1)])
def test_state_shape(shape: tuple[int, ...], path: str) -> None:
    with pytest.raises(ValueError, match=r"state: expected shape \(3, 2, 3\) for u, s and g"):
        snnlib.neurons.SRM().run(TRAIN, (torch.zeros(shape),))


def test_devices() -> None:
    meta = torch.zeros(3, 2, 3, device="meta")
    with pytest.raises(ValueError, match="state: expected a tensor on cpu, got one on meta"):
        snnlib.neurons.SRM().run(TRAIN, (meta,))
    with pytest.raises(ValueError, match="threshold: expected a tensor on cpu, got one on meta"):
        F.srm_neuron(TRAIN, threshold=torch.ones(3, device="meta"))
    with pytest.raises(ValueError, match="weight: expected a tensor on cpu, got one on meta"):
        F.srm_linear(TRAIN, torch.zeros(5, 3, device="meta"))
    with pytest.raises(ValueError, match="weight: expected a tensor on meta, got one on cpu"):
        F.srm_linear(TRAIN.to("meta"), torch.zeros(5, 3))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (
            torch.zeros(4, 2),
            ValueError,
            r"x: expected \[T, N, inputs\] or \[T, N, C, \.\.\.\], got shape \(4, 2\)",
        ),
        (torch.zeros(4, 2, 5), ValueError, r"x: expected 3 inputs in dimension 2, got shape \(4, 2, 5\)"),
        (torch.zeros(4, 2, 2, 2), ValueError, r"x: expected 3 inputs in a frame, got shape \(4, 2, 2, 2\)"),
        (TRAIN.bool(), TypeError, r"x: expected a floating dtype, got torch\.bool"),
        (TRAIN.double(), TypeError, r"x, weight: expected one dtype, got torch\.float64 and torch\.float32"),
    ],
    ids=["rank", "inputs", "frame", "integers", "dtype"],
)
def test_linear_input(x: torch.Tensor, error: type[Exception], message: str) -> None:
    for make in (snnlib.SRMLinear, snnlib.SRMReadout):
        with pytest.raises(error, match=message):
            make(3, 5)(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4, 3, 6, 6), r"x: expected \[T, N, C, H, W\], got shape \(4, 3, 6, 6\)"),
        (torch.zeros(4, 2, 5, 6, 6), r"x: expected 3 channels in dimension 2"),
        (torch.zeros(4, 2, 3, 6, 1), r"x: expected at least 5 cells on space axis 1 .*, got 3 with"),
    ],
    ids=["rank", "channels", "size"],
)
def test_convolution_input(x: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.SRMConv2d(3, 4, 3, padding=1, dilation=2)(x)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 4, 3), {}, r"in_channels: expected a positive multiple of groups=1, got 0"),
        ((2.0, 4, 3), {}, r"in_channels: expected a positive multiple of groups=1, got 2\.0"),
        ((3, 4, 3), {"groups": 2}, r"in_channels: expected a positive multiple of groups=2, got 3"),
        ((4, 3, 3), {"groups": 2}, r"out_channels: expected a positive multiple of groups=2, got 3"),
        ((4, 4, 3), {"groups": 0}, r"groups: expected an integer >= 1, got 0"),
        ((4, 4, 3), {"groups": 1.5}, r"groups: expected an integer >= 1, got 1\.5"),
        ((4, 4, 0), {}, r"kernel_size: expected an integer >= 1 or 2 of them, got 0"),
        ((4, 4, (3,)), {}, r"kernel_size: .*got \(3,\)"),
        ((4, 4, 3), {"stride": 0}, r"stride: .*got 0"),
        ((4, 4, 3), {"dilation": (1, 0)}, r"dilation: .*got \(1, 0\)"),
        ((4, 4, 3), {"padding": -1}, r"padding: .*got -1"),
        ((4, 4, 3), {"padding": "full"}, r"padding: expected integers, 'same' or 'valid', got 'full'"),
        ((4, 4, 3), {"padding": "same", "stride": 2}, r"padding: 'same' needs stride 1, got stride 2"),
    ],
    ids=str,
)
def test_convolution_options(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snnlib.SRMConv2d(*arguments, **options)


@pytest.mark.parametrize("layer", [snnlib.SRMLinear, snnlib.SRMReadout])
@pytest.mark.parametrize("features", [0, 2.5])
def test_linear_options(layer: Callable[[Any, Any], object], features: float) -> None:
    message = rf"_features: expected an integer >= 1, got {features}"
    with pytest.raises(ValueError, match="in" + message):
        layer(features, 3)
    with pytest.raises(ValueError, match="out" + message):
        layer(3, features)


def test_integers_of_numpy_are_integers() -> None:
    features = np.prod((2, 3))
    assert snnlib.SRMLinear(features, 3).weight.shape == (3, 6)
    assert snnlib.SRMConv1d(features, features, 3).weight.shape == (6, 6, 3)


def test_groups_of_the_function() -> None:
    with pytest.raises(ValueError, match=r"groups: expected a divisor of the 3 output channels, got 2"):
        F.srm_conv2d(torch.zeros(4, 2, 4, 6, 6), torch.zeros(3, 2, 3, 3), groups=2)
    with pytest.raises(
        ValueError, match=r"weight: expected \[C_out, C / groups, kh, kw\], got shape \(3, 3\)"
    ):
        F.srm_conv2d(FRAMES, torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"weight: expected at least one tap on each axis, .*\(3, 3, 0, 1\)"):
        F.srm_conv2d(FRAMES, torch.zeros(3, 3, 0, 1))


def test_window_of_a_fused_pool_that_does_not_fit(path: str) -> None:
    net = snnlib.fuse_(torch.nn.Sequential(snnlib.SRMConv2d(3, 4, 3), snnlib.SpikeAvgPool2d((2, 5))))
    with pytest.raises(
        ValueError, match=r"kernel_size: expected windows that fit into \(4, 4\), got \(2, 5\)"
    ):
        net(FRAMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": True}, r"bias: expected an option of SRMConv2d, .*no bias"),
        ({"beta": 0.9}, r"beta: .*tau_m = 1 / \(1 - beta\)"),
        ({"taum": 5.0}, r"taum: .*did you mean tau_m\?"),
        ({"treshold": 1.0}, r"treshold: .*did you mean threshold\?"),
        ({"colour": 1}, r"colour: .*it has batch_first, delays, device"),
        ({"tau_m": nn.Parameter(torch.tensor(5.0))}, r"tau_m: expected a number, .*got a nn\.Parameter"),
        ({"tau_s": torch.full((4,), 3.0)}, r"tau_s: expected a number, .*got a tensor; pass float"),
        ({"tau_grad": "slow"}, r"tau_grad: expected a number, got str"),
        ({"threshold": nn.Parameter(torch.ones(4))}, r"threshold: .*this model learns no constants"),
        ({"threshold": "high"}, r"threshold: expected a number or a tensor, got 'high'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_of_another_kind(options: dict[str, Any], message: str) -> None:
    """Not one of them was refused with its name; a parameter was taken and never trained."""
    with pytest.raises(TypeError, match=message):
        snnlib.SRMConv2d(2, 4, 3, **options)
    with pytest.raises(TypeError, match=message.replace("SRMConv2d", "SRMLinear")):
        snnlib.SRMLinear(2, 4, **options)


def test_flags_and_scale() -> None:
    with pytest.raises(TypeError, match=r"batch_first: expected True or False, got \(1, 0\)"):
        snnlib.SRMLinear(3, 4, batch_first=(1, 0))(TRAIN)
    with pytest.raises(ValueError, match=r"input_grad_scale: expected a finite number, got nan"):
        snnlib.SRMLinear(3, 4, input_grad_scale=float("nan"))(TRAIN)
    with pytest.raises(ValueError, match=r"x: expected at least one cell on each space axis"):
        snnlib.SRMConv2d(3, 4, 1, padding=1)(torch.zeros(4, 2, 3, 0, 5))
    with pytest.raises(TypeError, match=r"scale: expected a number or a tensor, got str"):
        snnlib.GradScale("half")
    with pytest.raises(ValueError, match=r"tau_m: expected a finite number of time steps >= 1, got 1e\+30"):
        snnlib.SRMLinear(3, 4, tau_m=1e30)


MODULES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "SpikingLinear": (lambda: snnlib.SpikingLinear(3, 4), TRAIN),
    "SRMLinear": (lambda: snnlib.SRMLinear(3, 4), TRAIN),
    "SRMReadout": (lambda: snnlib.SRMReadout(3, 4), TRAIN),
    "SpikingRNN": (lambda: snnlib.SpikingRNN(3, 4), TRAIN),
    "delays": (lambda: snnlib.SpikingLinear(3, 4, delays=snnlib.Delays(2)), TRAIN),
    "LIF": (snnlib.neurons.LIF, TRAIN),
    "SRM": (snnlib.neurons.SRM, TRAIN),
    "Integrator": (snnlib.neurons.Integrator, TRAIN),
    "SpikeDropout": (snnlib.SpikeDropout, TRAIN),
    "PerStep": (lambda: snnlib.PerStep(nn.Linear(3, 4)), TRAIN),
    "BatchNorm1d": (lambda: snnlib.BatchNorm1d(3), TRAIN),
    "SpikingConv2d": (lambda: snnlib.SpikingConv2d(3, 4, 3), FRAMES),
    "SpikeAvgPool2d": (lambda: snnlib.SpikeAvgPool2d(2), FRAMES),
    "AvgPool2d": (lambda: snnlib.AvgPool2d(2), FRAMES),
    "MaxPool1d": (lambda: snnlib.MaxPool1d(2), FRAMES),
    "MaxPool2d": (lambda: snnlib.MaxPool2d(2), FRAMES),
    "SpikeMaxPool2d": (lambda: snnlib.SpikeMaxPool2d(2), FRAMES),
}


@pytest.mark.parametrize("name", MODULES)
def test_sparse_input(name: str) -> None:
    make, x = MODULES[name]
    with pytest.raises(TypeError, match=r"(x|current): expected a dense tensor, got torch\.sparse_coo"):
        make()(x.to_sparse())
