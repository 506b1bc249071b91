"""Random calls, right and wrong: arguments of the raw ops changed at random, and public layers with random options.

Everything follows from a seed. Tensors are small; a wrong size is either small as well or beyond any memory, so that no
call takes long.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from opdb import DTYPES, OPS
from torch import Tensor, nn

import snnlib

HUGE = 2**62
# Tensors of integers, flags and bytes are no sequences, and complex numbers nothing at all.
OTHER_DTYPES = (torch.int64, torch.int16, torch.bool, torch.uint8, torch.complex64)


@dataclass(frozen=True)
class Case:
    """A call, what it may name in an error, and whether native and reference may only differ by rounding."""

    name: str
    call: Callable[[], list[Tensor]]
    arguments: frozenset[str]
    tolerance: float


def _generator(rng: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(rng.getrandbits(32))


def _layout(rng: random.Random, x: Tensor) -> Tensor:
    """The same values at other places in memory."""
    if x.dim() < 2 or rng.random() < 0.4:
        return x
    a, b = rng.sample(range(x.dim()), 2)
    if rng.random() < 0.7:
        return x.transpose(a, b).contiguous().transpose(a, b)
    return torch.cat((x, x), a).narrow(a, x.shape[a], x.shape[a])


def _changed_tensor(rng: random.Random, x: Tensor) -> Tensor | None:
    """Another rank, size or dtype, or other numbers in the place of indices; rarely None."""
    dim = rng.randrange(x.dim()) if x.dim() else 0
    changes: list[Callable[[], Tensor | None]] = [
        lambda: x.unsqueeze(dim),
        lambda: x.to(rng.choice(DTYPES + OTHER_DTYPES)),
        lambda: x.new_empty(0),
        lambda: x.reshape(-1),
        lambda: None,
    ]
    if x.dim():
        changes += [
            lambda: x.narrow(dim, 0, max(x.shape[dim] - 1, 0)),
            lambda: x.narrow(dim, 0, 0),
            lambda: torch.cat((x, x[(slice(None),) * dim + (slice(0, 1),)]), dim),
            lambda: x.movedim(dim, 0),
            lambda: x.sum(dim) if x.is_floating_point() else x.amax(dim) if x.shape[dim] else x,
        ]
    if not x.is_floating_point():
        low = rng.choice([-(2**15), -1, 0])
        changes += [lambda: torch.randint(low, 2**15, x.shape, generator=_generator(rng)).to(x.dtype)] * 4
        changes += [lambda: x + rng.choice([-1, 1, 3]), lambda: x.flip(0) if x.dim() else x]
    return rng.choice(changes)()


def _changed_sizes(rng: random.Random, sizes: list[int]) -> list[int]:
    if rng.random() < 0.4 or not sizes:
        return rng.choice([[], sizes[:-1], [*sizes, 1]])
    sizes[rng.randrange(len(sizes))] = rng.choice([-3, -1, 0, 1, 2, 3, 9, HUGE])
    return sizes


def _changed(rng: random.Random, value: Any) -> Any:
    # bool before int, which it is as well.
    changes: dict[type, Callable[[], Any]] = {
        Tensor: lambda: _changed_tensor(rng, value),
        bool: lambda: not value,
        int: lambda: rng.choice([-2, -1, 0, 1, 2, 3, 5, HUGE, -HUGE]),
        float: lambda: rng.choice([float("nan"), float("inf"), -1.0, 0.0, 0.5, 1.0, 1e300]),
        list: lambda: _changed_sizes(rng, list(value)),
        type(None): lambda: rng.choice([torch.zeros(3), torch.zeros(()), 1]),
    }
    return next(change for kind, change in changes.items() if isinstance(value, kind))()


def op_case(seed: int) -> Case:
    """A sample of tests/opdb.py with none to two of its arguments changed."""
    rng = random.Random(seed)
    case = OPS[rng.choice(list(OPS))]
    sample = rng.choice(case.samples)
    dtype = rng.choice(DTYPES)
    arguments = [_layout(rng, x) if isinstance(x, Tensor) else x for x in sample.arguments(dtype)]
    names = [argument.name for argument in case.op.default._schema.arguments]
    # The window of a fused pool goes by the name that users gave it.
    aliases = {"kernel_size"} if "pool" in names else set()
    # `exact` only says whether unwritten numbers follow the record.
    free = [i for i, name in enumerate(names) if name != "exact"]
    changed = rng.sample(free, rng.choice([0, 1, 1, 1, 2]))
    for i in changed:
        arguments[i] = _changed(rng, arguments[i])
    what = f"seed {seed}: {case.name}, {sample.name}, {dtype}, changed {[names[i] for i in changed]}"
    return Case(what, lambda: case(*arguments), frozenset(names) | aliases, 4 * case.tolerance[dtype])


def _events(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """Small whole numbers, mostly 0."""
    x = torch.randint(-3, 4, shape, generator=_generator(rng)).float()
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
        values = torch.randint(-4, 9, parameter.shape, generator=_generator(rng)) / 8
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


def _layer(rng: random.Random) -> tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]:
    """(class, options, shape of its input), without a mistake but where sizes do not fit by chance."""
    axes = rng.choice([1, 2, 2, 2, 3])
    frames = tuple(_size(rng, 0 if rng.random() < 0.1 else 1, 4) for _ in range(2))
    space = tuple(_size(rng, 0 if rng.random() < 0.05 else 1, 9 if axes < 3 else 5) for _ in range(axes))
    kind = rng.choice(["conv", "conv", "conv", "pool", "linear", "readout", "other"])
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
    x, changed = _layout(rng, _events(rng, shape)), []
    if rng.random() < 0.3:
        changed.append(rng.choice(list(options)))
        options[changed[-1]] = _wrong_option(rng)
    if rng.random() < 0.3:
        changed.append("x")
        x = _changed_tensor(rng, x)
    weights, gradient = rng.getrandbits(32), rng.getrandbits(32)

    def call() -> list[Tensor]:
        torch.manual_seed(0)
        layer = make(**options)
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
    what = f"seed {seed}: {make.__name__}({options}) on {shape}, changed {changed}"
    return Case(what, call, frozenset(names), 1e-4)
