"""Random public layers and neurons with random options on random events, forward and backward; half with a mistake."""

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from fuzz import HUGE, Case, changed_tensor, generator_of, other_layout
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate


def _events(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """Small whole numbers, mostly 0."""
    x = torch.randint(-3, 4, shape, generator=generator_of(rng)).float()
    x = x.abs() if rng.random() < 0.8 else x
    return (x - 1).clamp(min=0) if rng.random() < 0.7 else x


def _size(rng: random.Random, least: int = 1, most: int = 4) -> int:
    return rng.randint(least, most)


def _sizes(rng: random.Random, axes: int, least: int, most: int) -> int | tuple[int, ...]:
    if rng.random() < 0.5:
        return _size(rng, least, most)
    return tuple(_size(rng, least, most) for _ in range(axes))


def _neuron(rng: random.Random, channels: int) -> dict[str, Any]:
    options: dict[str, Any] = {"tau_m": rng.choice([1, 2.0, 4.0]), "tau_s": rng.choice([2.0, 4.0])}
    if rng.random() < 0.3:
        options["tau_grad"] = rng.choice([1.5, 2.0, 8.0])
    if rng.random() < 0.3:
        options["grad_clamp"] = rng.choice([None, 1.0])
    if rng.random() < 0.4:
        options["threshold"] = rng.choice([0.5, 2.0, torch.linspace(0.5, 2, channels)])
    options["batch_first"] = rng.random() < 0.3
    options["input_grad_scale"] = rng.choice([1.0, 0.5])
    return options


def _dyadic(rng: random.Random, net: nn.Module) -> None:
    """Weights in eighths: with whole numbers for events every sum is exact, so all paths have the same currents."""
    for parameter in net.parameters():
        values = torch.randint(-4, 9, parameter.shape, generator=generator_of(rng)) / 8
        parameter.data.copy_(values)


def _conv(rng: random.Random, axes: int) -> tuple[Callable[..., nn.Module], dict[str, Any], int]:
    groups = rng.choice([1, 1, 1, 2])
    channels, outputs = groups * _size(rng), groups * rng.choice([1, 2, 3, 17, 40])
    options = {
        "in_channels": channels,
        "out_channels": outputs,
        "kernel_size": _sizes(rng, axes, 1, 3),
        "stride": _sizes(rng, axes, 1, 3),
        "padding": _sizes(rng, axes, 0, 3),
        "dilation": _sizes(rng, axes, 1, 2),
        "groups": groups,
        **_neuron(rng, outputs),
    }
    if rng.random() < 0.2:
        options |= {"padding": rng.choice(["same", "valid"]), "stride": 1}
    return (snnlib.SRMConv1d, snnlib.SRMConv2d, snnlib.SRMConv3d)[axes - 1], options, channels


def _pool(rng: random.Random, axes: int) -> tuple[Callable[..., nn.Module], dict[str, Any]]:
    options: dict[str, Any] = {"kernel_size": _sizes(rng, axes, 1, 4), "padding": _sizes(rng, axes, 0, 2)}
    options |= {"stride": rng.choice([None, _sizes(rng, axes, 1, 3)]), "ceil_mode": rng.random() < 0.5}
    if axes == 2 and rng.random() < 0.4:
        return snnlib.SpikeMaxPool2d, {**options, "dilation": _sizes(rng, axes, 1, 2)}
    options |= {"count_include_pad": rng.random() < 0.5, "divisor_override": rng.choice([None, None, 3])}
    return (snnlib.SpikeAvgPool1d, snnlib.SpikeAvgPool2d, snnlib.SpikeAvgPool3d)[axes - 1], options


# As tables and kernels have them, by `step` alone, and with learnable constants.
NEURONS: tuple[Callable[..., neurons.Neuron], ...] = (
    neurons.IF,
    neurons.LIF,
    neurons.PLIF,
    neurons.CubaLIF,
    neurons.ALIF,
    neurons.KLIF,
    neurons.BRF,
    lambda **options: neurons.CubaLIF(gradient="event", input_gradient="time"),
    lambda **options: neurons.LIF(dialect="snntorch", **options),
    lambda **options: neurons.LIF(
        threshold=1.25, levels=4, surrogate=surrogate.StraightThrough(options["surrogate"])
    ),
    lambda **options: neurons.IF(
        levels=3, level_rounding="floor", surrogate=surrogate.EveryThreshold(options["surrogate"])
    ),
    lambda **options: neurons.CubaLIF(levels=2, reset="zero", **options),
    lambda **options: neurons.LIF(reset="subtract", detach_reset=False, learnable=("tau",), **options),
)
# Peaks below 1, which a recurrent layer takes without a warning.
SURROGATES = (
    surrogate.Triangle(0.5, 0.4),
    surrogate.Rectangle(1.0, 0.3),
    # Narrower than half a threshold, where graded neurons that round have their first level.
    surrogate.Triangle(0.1, 0.4),
    surrogate.Rectangle(0.2, 0.3),
    surrogate.ATan(1.5),
    surrogate.Sigmoid(2.0),
)


def _spiking(
    rng: random.Random, axes: int
) -> tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]:
    """(class, options, shape of a step of a sample): a layer with any neuron, or a recurrent one."""
    neuron = rng.choice(NEURONS)(surrogate=rng.choice(SURROGATES))
    options: dict[str, Any] = {"neuron": neuron, "batch_first": rng.random() < 0.3}
    features, outputs = _size(rng, 1, 40), rng.choice([1, 5, 17, 40])
    kind = rng.choice(["conv", "conv", "linear", "recurrent"])
    if kind == "linear":
        return (
            snnlib.SpikingLinear,
            {"in_features": features, "out_features": outputs, **options},
            (features,),
        )
    if kind == "recurrent":
        sizes = {"input_size": features, "hidden_size": outputs, "num_layers": rng.choice([1, 1, 2])}
        late = rng.choice([None, None, "channel", "connection"])
        delays = None if late is None else snnlib.Delays(rng.choice([1, 2, 3]), per=late)
        return snnlib.SpikingRNN, {**sizes, **options, "recurrent_delays": delays}, (features,)
    _, conv, channels = _conv(rng, axes)
    shape = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
    make = (snnlib.SpikingConv1d, snnlib.SpikingConv2d, snnlib.SpikingConv3d)[axes - 1]
    space = tuple(_size(rng, 0 if rng.random() < 0.05 else 1, 9 if axes < 3 else 5) for _ in range(axes))
    return make, {**{name: conv[name] for name in shape}, **options}, (channels, *space)


def _batch_norm(rng: random.Random, channels: int, frames: int) -> dict[str, Any]:
    return {
        "channels": channels,
        "eps": rng.choice([1e-5, 0.1]),
        "momentum": rng.choice([None, 0.1]),
        "affine": rng.random() < 0.7,
        "track_running_stats": rng.random() < 0.7,
        "time_steps": rng.choice([None, None, frames]),
        "threshold": rng.choice([None, 0.5]),
        "batch_first": rng.random() < 0.3,
    }


def normalised_block(in_channels: int, out_channels: int, bias: bool, window: int, **norm: Any) -> nn.Module:
    """Convolution, batch norm, neurons and pooling as one block.

    The statistics of native and reference differ by rounding, which may let a neuron at its threshold fire in one of
    them alone. So the threshold is out of reach, and the surrogate has its height at every step.
    """
    conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=bias)
    lif = neurons.LIF(threshold=64.0, surrogate=surrogate.Rectangle(width=2.0))
    layers = [snnlib.PerStep(conv), snnlib.BatchNorm2d(out_channels, **norm), lif, snnlib.AvgPool2d(window)]
    return snnlib.fuse_(nn.Sequential(*layers))


def _normalised(
    rng: random.Random, axes: int, frames: tuple[int, int]
) -> tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]:
    channels = _size(rng)
    options = _batch_norm(rng, channels, frames[0])
    if rng.random() < 0.5:
        space = [_size(rng, 1, 6) for _ in range(axes if axes > 1 else rng.choice([0, 1]))]
        make = (snnlib.BatchNorm1d, snnlib.BatchNorm2d, snnlib.BatchNorm3d)[axes - 1]
        return make, options, (channels, *space)
    norm = {name: options[name] for name in ("eps", "momentum", "affine", "track_running_stats")}
    sizes = {"in_channels": channels, "out_channels": rng.choice([1, 3, 17]), "bias": rng.random() < 0.5}
    shape = (channels, _size(rng, 2, 9), _size(rng, 2, 9))
    return normalised_block, {**sizes, "window": rng.choice([1, 2]), **norm}, shape


def _layer(rng: random.Random) -> tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]:
    """(class, options, shape of its input), without a mistake but where sizes do not fit by chance."""
    axes = rng.choice([1, 2, 2, 2, 3])
    frames = tuple(_size(rng, 0 if rng.random() < 0.1 else 1, 4) for _ in range(2))
    space = tuple(_size(rng, 0 if rng.random() < 0.05 else 1, 9 if axes < 3 else 5) for _ in range(axes))
    kind = rng.choice(
        ["conv", "conv", "conv", "pool", "linear", "readout", "other", *["spiking", "norm"] * 2]
    )
    if kind in ("spiking", "norm"):
        make, options, shape = _spiking(rng, axes) if kind == "spiking" else _normalised(rng, axes, frames)
        return make, options, (*frames, *shape)
    if kind == "conv":
        make, options, channels = _conv(rng, axes)
        return make, options, (*frames, channels, *space)
    if kind == "pool":
        make, options = _pool(rng, axes)
        return make, options, (*frames, _size(rng, 0), *space)
    features, outputs = _size(rng, 1, 40), _size(rng, 1, 20)
    if kind == "linear":
        options = {"in_features": features, "out_features": outputs, **_neuron(rng, outputs)}
        return snnlib.SRMLinear, options, (*frames, features)
    if kind == "readout":
        options = {"in_features": features, "out_features": outputs, "batch_first": rng.random() < 0.3}
        return snnlib.SRMReadout, options, (*frames, features)
    other = rng.choice(
        [
            (snnlib.GradScale, {"scale": rng.choice([0.5, -1.0])}),
            (snnlib.ChannelAffine, {"channels": 3}),
            (snnlib.BicubicResize2d, {"size": _size(rng, 1, 6), "antialias": rng.random() < 0.5}),
        ]
    )
    return *other, (*frames, 3, _size(rng, 1, 6), _size(rng, 1, 6))


def _wrong_option(rng: random.Random) -> Any:
    wrong = [0, -1, -2.5, 1.5, float("nan"), HUGE, "full", None, (), (1,), (1, 0), (1, 2, 3, 4), [2, 2]]
    wrong += [torch.zeros(2), torch.tensor(-1.0), torch.ones(3, dtype=torch.int64), object()]
    return rng.choice(wrong)


def layer_case(seed: int) -> Case:
    """A layer with random options on random events, forward and backward; half of them with a mistake."""
    rng = random.Random(seed)
    make, options, shape = _layer(rng)
    x, changed = other_layout(rng, _events(rng, shape)), []
    # Torch checks the parts of a block that are torch's.
    if rng.random() < 0.3 and make is not normalised_block:
        # As many layers as are asked for are built, one after the other.
        changed.append(rng.choice([name for name in options if name != "num_layers"]))
        options[changed[-1]] = _wrong_option(rng)
    if rng.random() < 0.3:
        changed.append("x")
        x = changed_tensor(rng, x)
    weights, gradient = rng.getrandbits(32), rng.getrandbits(32)

    def call() -> list[Tensor]:
        torch.manual_seed(0)
        layer = make(**copy.deepcopy(options))
        _dyadic(random.Random(weights), layer)
        given = x
        if isinstance(given, Tensor) and given.is_floating_point():
            given = given.clone(memory_format=torch.preserve_format).requires_grad_()
        with snnlib.use_convolution("events"):
            out = layer(given)
            if not out.requires_grad:
                return [out]
            q = torch.randn(out.shape, generator=torch.Generator().manual_seed(gradient)).to(out.dtype)
            tensors = [given, *layer.parameters()]
            gradients = torch.autograd.grad(out, tensors, q, allow_unused=True)
        return [out.detach(), *(g for g in gradients if g is not None)]

    names = {*options, "x", "weight", "state", "size", "scale_factor", "channels", "in_channels", "current"}
    names |= {"bias", "input", "kernel"} if make is normalised_block else set()
    what = f"seed {seed}: {make.__name__}({options}) on {shape}, changed {changed}"
    return Case(what, call, frozenset(names), 1e-4)
