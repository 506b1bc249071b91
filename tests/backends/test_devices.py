"""Every public computation runs on any device and never makes the host wait for it.

Without a GPU two stand-ins show that: the device "meta", in any torch, and fake CUDA tensors, where torch is built with
CUDA (no driver needed). Both refuse tensors of mixed devices and every `.item()`, `int()` or `bool()` of a value. A
dispatch mode on top counts copies from the host, which wait for a GPU just the same and which no graph can capture.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from no_copies import NoCopies
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import snnlib
from snnlib import functional as F
from snnlib import losses, readout
from snnlib.backends import reference
from snnlib.backends.arguments import LinearKernel, SpikeTimeKernel, Windows
from snnlib.backends.flags import Flags
from snnlib.backends.spike_time import SRM_FLAGS, SpikeCredit
from snnlib.functional import operators
from snnlib.neurons import MODELS
from snnlib.neurons.dynamics import pack

T, N, CLASSES = 6, 2, 4
TAUS = (5.0, 3.0, 3.0, 4.0)


Case = Callable[[torch.device], Any]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[name] = function
        return function

    return add


def events(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(T, N, *shape, device=device, dtype=dtype)


def labels(device: torch.device) -> Tensor:
    return torch.zeros(N, dtype=torch.long, device=device)


def on(device: torch.device, make: Callable[[], nn.Module]) -> nn.Module:
    """The module with tensors on the device; how it gets there is no part of a training step."""
    with unset_fake_temporarily():
        module = make()
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                there = torch.ones(value.shape, dtype=value.dtype, device=device)
                part._parameters[name] = nn.Parameter(there, value.requires_grad)
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = torch.ones(value.shape, dtype=value.dtype, device=device)
    return module


def _layer(make: Callable[[], nn.Module], *shape: int) -> Case:
    def run(device: torch.device) -> Any:
        return on(device, make)(events(device, *shape))

    return run


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SRMConv1d": (lambda: snnlib.SRMConv1d(3, 8, 3), (3, 9)),
    "SRMConv2d": (lambda: snnlib.SRMConv2d(3, 8, 3), (3, 9, 9)),
    "SRMConv3d": (lambda: snnlib.SRMConv3d(3, 8, 3), (3, 5, 5, 5)),
    "SRMLinear": (lambda: snnlib.SRMLinear(12, CLASSES, threshold=torch.ones(CLASSES)), (3, 2, 2)),
    "SRMReadout": (lambda: snnlib.SRMReadout(12, CLASSES), (3, 2, 2)),
    "SpikingRNN": (lambda: snnlib.SpikingRNN(12, CLASSES), (12,)),
    "SpikeAvgPool2d": (lambda: snnlib.SpikeAvgPool2d(2), (3, 8, 8)),
    "SpikeMaxPool2d": (lambda: snnlib.SpikeMaxPool2d(2), (3, 8, 8)),
    "AvgPool2d": (lambda: snnlib.AvgPool2d(2), (3, 8, 8)),
    "MaxPool2d": (lambda: snnlib.MaxPool2d(2), (3, 8, 8)),
    "SpikeDropout": (lambda: snnlib.SpikeDropout(0.2), (3, 8, 8)),
    "BicubicResize2d": (lambda: snnlib.BicubicResize2d((4, 4)), (3, 8, 8)),
    "GradScale": (lambda: snnlib.GradScale(0.85), (3,)),
    "ChannelAffine": (lambda: snnlib.ChannelAffine(3), (3, 8, 8)),
    "PerStep": (lambda: snnlib.PerStep(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), (3, 8, 8)),
    "standardised": (
        lambda: snnlib.nn.standardize_weights_(
            nn.Sequential(snnlib.SRMConv2d(3, 8, 9), snnlib.SRMLinear(8, 4))
        ), (3, 9, 9),
    ),
    "SpikeAvgPool3d": (lambda: snnlib.SpikeAvgPool3d(2), (3, 5, 5, 5)),
    "threshold per channel": (lambda: snnlib.SRMConv2d(3, 8, 3, threshold=torch.ones(8)), (3, 9, 9)),
}  # fmt: skip
LAYERS |= {
    "fused": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.SRMConv2d(3, 8, 3), snnlib.SpikeAvgPool2d(2))),
        (3, 9, 9),
    ),
    "fused, surrogate neurons": (
        lambda: snnlib.fuse_(
            nn.Sequential(
                snnlib.PerStep(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)),
                snnlib.neurons.LIF(),
                snnlib.PerStep(nn.Conv2d(8, 8, 2)),
                snnlib.BatchNorm2d(8),
                snnlib.neurons.LIF(),
                snnlib.AvgPool2d(2),
                snnlib.PerStep(nn.Conv2d(8, 4, 2)),
                snnlib.neurons.LIF(),
                snnlib.AvgPool2d(2),
            )
        ),
        (3, 9, 9),
    ),
    "fused, evaluation mode": (
        lambda: snnlib.fuse_(
            nn.Sequential(snnlib.PerStep(nn.Linear(27, 8), nn.BatchNorm1d(8)), snnlib.neurons.LIF()).eval()
        ),
        (27,),
    ),
    "event-driven map": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.PerStep(nn.Conv2d(3, 4, 3)), snnlib.MaxPool2d(2))),
        (3, 9, 9),
    ),
    **{
        f"recurrent delays per {per}, training {training}": (
            lambda per=per, training=training: snnlib.SpikingRNN(
                27, 8, recurrent_delays=snnlib.Delays(2, per)
            ).train(training),
            (27,),
        )
        for per in ("channel", "connection")
        for training in (True, False)
    },
}
CASES |= {f"layer {name}": _layer(make, *shape) for name, (make, shape) in LAYERS.items()}
for _name, _model in MODELS.items():
    CASES[f"SpikingConv2d, {_name}"] = _layer(
        lambda model=_model: snnlib.SpikingConv2d(3, 4, 3, neuron=model()), 3, 8, 8
    )
    CASES[f"neuron {_name}"] = _layer(lambda model=_model: model(), 3, 4)


@case("srm_neuron")
def _(device: torch.device) -> Any:
    current = events(device, 3, 4)
    return F.srm_neuron(current), F.srm_trace(current), F.srm_backward(current, current)


@case("srm_potential")
def _(device: torch.device) -> Any:
    return F.srm_potential(events(device, 3))


@case("functional layers with thresholds of one's own")
def _(device: torch.device) -> Any:
    weight = torch.ones(4, 3, 3, 3, device=device)
    return F.srm_conv2d(events(device, 3, 8, 8), weight, threshold=0.5)


@case("grad_scale backward")
def _(device: torch.device) -> Any:
    return [F.gradient._GradScale.backward(_Saved(scale, device), events(device, 3)) for scale in (0.0, None)]


class _Saved:
    """Context of a backward pass without autograd's engine, which needs a real device."""

    def __init__(self, number: float | None, device: torch.device) -> None:
        self.number, self.saved_tensors = number, (torch.ones((), device=device),)


@case("supervised_spikes")
def _(device: torch.device) -> Any:
    layer = on(device, lambda: snnlib.SRMLinear(12, CLASSES))
    with snnlib.nn.supervised_spikes(layer, labels(device)) as teacher:
        return layer(events(device, 12)), teacher.taught


@case("save_packed")
def _(device: torch.device) -> Any:
    first = on(device, lambda: snnlib.SpikingConv2d(3, 32, 3, padding=1))
    second = on(device, lambda: snnlib.SpikingConv2d(32, 4, 3))
    x = events(device, 3, 16, 16)
    with snnlib.save_packed(besides=[x]) as saved:
        out = second(first(x))
    assert saved.kept <= 0.6 * saved.given
    return out


@case("chunks of delayed layers")
def _(device: torch.device) -> Any:
    layer = on(device, lambda: snnlib.SpikingLinear(12, CLASSES, delays=snnlib.Delays(max_delay=3)))
    with torch.no_grad():
        _, state = layer.run(events(device, 12))
        return layer.run(events(device, 12), state)


@case("lengths")
def _(device: torch.device) -> Any:
    layer = on(device, lambda: snnlib.SpikingRNN(12, CLASSES))
    return layer.run(events(device, 12), lengths=labels(device))


SCORES: dict[str, Callable[..., Tensor]] = {
    "spike_count_loss": functools.partial(losses.spike_count_loss, desired=3, undesired=1),
    "spike_count_plus_loss": functools.partial(losses.spike_count_plus_loss, desired=3, undesired=1),
    "count_cross_entropy": losses.count_cross_entropy,
    "count_cross_entropy_plus": losses.count_cross_entropy_plus,
    "first_spike_loss": functools.partial(losses.first_spike_loss, scale=0.5, deadline=4.0),
}


for _name, _loss in SCORES.items():
    CASES[f"loss {_name}"] = lambda device, loss=_loss: [
        loss(torch.ones(N, CLASSES, device=device), labels(device), **options)
        for options in ({}, {"sample_weight": torch.ones(N, device=device)})
    ]


@case("loss spike_count_loss, wanted counts per class")
def _(device: torch.device) -> Any:
    wanted = torch.ones(CLASSES, device=device)
    counts = torch.ones(N, CLASSES, device=device)
    return losses.spike_count_loss(counts, labels(device), desired=2 * wanted, undesired=wanted)


@case("loss tet_loss")
def _(device: torch.device) -> Any:
    return losses.tet_loss(events(device, CLASSES), labels(device))


@case("losses of spike trains")
def _(device: torch.device) -> Any:
    wanted = losses.target_spike_train(labels(device), T, CLASSES, desired=3, undesired=1)
    spikes = events(device, CLASSES)
    return losses.van_rossum_loss(spikes, wanted), losses.spike_time_loss(spikes, wanted)


@case("readout")
def _(device: torch.device) -> Any:
    spikes = events(device, CLASSES)
    return (
        readout.spike_count(spikes),
        readout.first_spike_time(spikes),
        readout.time_weighted_count(spikes),
        readout.spike_times(spikes),
    )


def srm_neurons(threshold: Tensor) -> SpikeTimeKernel:
    credit = SpikeCredit(*TAUS)
    rows = pack(credit.rows(threshold), threshold.dtype, threshold.device)
    return SpikeTimeKernel(rows, SRM_FLAGS, alike=True, credit=credit)


@case("reference of SRM neurons")
def _(device: torch.device) -> Any:
    current, limit = events(device, 3, 4), torch.ones(3, device=device)
    neuron = srm_neurons(limit)
    reference.exact.forward(current, neuron)
    return reference.exact.backward(current, None, current, neuron)


@case("reference of pools")
def _(device: torch.device) -> Any:
    x = events(device, 3, 7, 7).flatten(0, 1)
    windows = Windows([3, 3], [2, 2], [1, 1], ceil_mode=True, count_include_pad=False)
    return reference.pool.avg_pool_backward(reference.pool.avg_pool_forward(x, windows), x, windows)


@case("reference of convolutions")
def _(device: torch.device) -> Any:
    x, weight = events(device, 3, 7, 7), torch.ones(4, 3, 3, 3, device=device)
    current = reference.srm_conv.convolve(x, weight, ([2, 2], [1, 1], [1, 1], 1))
    return reference.srm_conv.pool_spikes(current, (2, 2))


@case("reference of entries")
def _(device: torch.device) -> Any:
    bits = torch.zeros(T, N, 3, 1, dtype=torch.int16, device=device)
    starts, record = torch.zeros(N + 1, dtype=torch.long, device=device), torch.ones(2, 5, device=device)
    return reference.srm_conv.read_entries(bits, record, starts, (T, N, 2, 3, 4), 3)


@case("reference of linear neurons")
def _(device: torch.device) -> Any:
    current, rows = events(device, 3, 4), torch.ones(13, 3, device=device)
    flags = Flags(0, False, True, True, False, False, True, False, False)
    neuron = LinearKernel(rows, flags)
    reference.linear.forward(current, neuron)
    return reference.linear.backward(current, None, current, neuron)


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


@pytest.mark.parametrize("name", CASES)
def test_meta(name: str) -> None:
    device = torch.device("meta")
    with NoCopies():
        outputs = tensors_of(CASES[name](device))
    assert outputs
    assert {tensor.device.type for tensor in outputs} == {"meta"}


@pytest.mark.parametrize("name", LAYERS)
def test_shapes_of_layers_on_meta(name: str) -> None:
    """Forward and backward they are those of a CPU, without memory."""
    (make, shape), found = LAYERS[name], []
    for device in ("cpu", "meta"):
        layer = make().to(device)
        x = events(torch.device(device), *shape).requires_grad_()
        out = layer(x)
        out.sum().backward()
        found.append([out.shape, *(leaf.grad.shape for leaf in (x, *layer.parameters()))])
    assert found[0] == found[1]


@pytest.mark.skipif(torch.version.cuda is None, reason="fake CUDA tensors need a torch built with CUDA")
@pytest.mark.parametrize("name", CASES)
def test_fake_cuda(name: str) -> None:
    device = torch.device("cuda", 0)
    with FakeTensorMode(allow_non_fake_inputs=True), NoCopies():
        outputs = tensors_of(CASES[name](device))
    assert outputs
    assert {tensor.device.type for tensor in outputs} == {"cuda"}


@pytest.mark.skipif(torch.version.cuda is None, reason="fake CUDA tensors need a torch built with CUDA")
def test_convolutions_read_channels_last_frames() -> None:
    """Tensor cores read channels-last planes; float32 currents come so too, half precision needs a GPU."""
    device, convolution = torch.device("cuda", 0), operators.Convolution(2, padding=1)
    with FakeTensorMode():
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.ones(T * N, 2, 8, 8, device=device, dtype=dtype)
            weight = torch.ones(8, 2, 3, 3, device=device, dtype=dtype)
            assert convolution._frames(x, [0, 0]).is_contiguous(memory_format=torch.channels_last)
            currents = convolution.forward(x, weight)
            assert dtype != torch.float32 or currents.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("cuda", torch.float32, True),
        ("cuda", torch.bfloat16, True),
        ("cuda", torch.float64, False),
        ("cpu", torch.float64, True),
        ("mps", torch.float32, False),
        ("meta", torch.float32, False),
    ],
)
def test_where_convolutions_read_channels_last(device: str, dtype: torch.dtype, expected: bool) -> None:
    x = SimpleNamespace(device=torch.device(device), dtype=dtype)
    assert operators.convolved_channels_last(cast(Tensor, x)) == expected


@pytest.mark.skipif(torch.version.cuda is None, reason="fake CUDA tensors need a torch built with CUDA")
def test_entries_are_written_where_the_tensors_are() -> None:
    """As many values as there are entries: a number that fake tensors leave open."""
    device = torch.device("cuda", 0)
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), NoCopies():
        run = reference.exact.trace(events(device, 2, 3, 4), srm_neurons(torch.ones((), device=device)))
        bits = torch.zeros(T, N, 3, 1, dtype=torch.int16, device=device)
        starts = torch.zeros(N + 1, dtype=torch.long, device=device)
        assert (
            reference.srm_conv.write_entries(
                run.fired, [run.rise, run.passed], 3, 0, bits, starts
            ).device.type
            == "cuda"
        )
