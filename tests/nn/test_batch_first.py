"""Modules with `batch_first`: results of time first, in the memory order of their input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons

SHAPES = {"rows": (3, 9, 4), "planes": (3, 5, 16, 6, 4), "channels-last": (3, 5, 16, 6, 4)}
NEURONS: dict[str, Callable[..., neurons.Neuron]] = {
    "LIF": neurons.LIF,
    "CubaLIF": neurons.CubaLIF,
    "event": lambda **options: neurons.CubaLIF(gradient="event", input_gradient="time", **options),
    "SRM": neurons.SRM,
    "ALIF": neurons.ALIF,
    "Izhikevich, a program": neurons.Izhikevich,
    "learned": lambda **options: neurons.LIF(learnable=("tau",), **options),
}


def _frames(**options: Any) -> nn.Module:
    return snnlib.SpikingConv2d(2, 8, 3, padding=1, **options)


LAYERS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...]]] = {
    "convolution": (_frames, (2, 6, 6)),
    "delayed convolution": (lambda **options: _frames(delays=snnlib.Delays(3), **options), (2, 6, 6)),
    "1-D": (lambda **options: snnlib.SpikingConv1d(2, 8, 3, **options), (2, 9)),
    "3-D": (lambda **options: snnlib.SpikingConv3d(2, 4, 2, **options), (2, 4, 4, 4)),
    "linear": (lambda **options: snnlib.SpikingLinear(20, 8, **options), (20,)),
    "delays per connection": (
        lambda **options: snnlib.SpikingLinear(20, 8, delays=snnlib.Delays(3, per="connection"), **options),
        (20,),
    ),
    "sparse": (
        lambda **options: snnlib.SpikingLinear(20, 8, connections=snnlib.Sparse(fan_out=3), **options),
        (20,),
    ),
}


def _in_memory(sequence: Tensor) -> bool:
    """True where samples are outermost, and their steps next, as in a contiguous tensor or channels-last frames."""
    return sequence.is_contiguous() or sequence.movedim(2, -1).is_contiguous()


def _gradients(out: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype)
    return torch.autograd.grad((out * weight).square().sum() + (out * weight).sum(), leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NEURONS)
def test_neurons(name: str, shape: str, dtype: torch.dtype) -> None:
    x = torch.rand(SHAPES[shape], generator=torch.Generator().manual_seed(1)) * 6
    if shape == "channels-last":
        x = x.movedim(2, -1).contiguous().movedim(-1, 2)
    x = x.to(dtype).requires_grad_()
    first = x.detach().transpose(0, 1).contiguous().requires_grad_()
    one, other = NEURONS[name](batch_first=True), NEURONS[name]()
    (value, state), (expected, last) = one.run(x), other.run(first)
    assert value.any() and torch.equal(value, expected.transpose(0, 1))
    assert all(torch.equal(*pair) for pair in zip(state, last, strict=True))
    assert _in_memory(value)
    (grad,), (wanted,) = _gradients(value, x), _gradients(expected, first)
    assert torch.equal(grad, wanted.transpose(0, 1)) and _in_memory(grad)
    sliced = one(x[:, ::2])
    assert torch.equal(sliced, other(first[::2]).transpose(0, 1)) and _in_memory(sliced)


@pytest.mark.parametrize("path", ["native", "reference"])
@pytest.mark.parametrize("neuron", ["LIF", "CubaLIF", "event", "SRM"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, neuron: str, path: Any) -> None:
    if name == "sparse" and neuron == "SRM":
        pytest.skip("sparse connections have no SRM neurons")
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    one = make(neuron=NEURONS[neuron](), batch_first=True)
    torch.manual_seed(0)
    other = make(neuron=NEURONS[neuron]())
    other.load_state_dict(one.state_dict())
    x = (torch.rand(3, 6, *shape, generator=torch.Generator().manual_seed(2)) < 0.5).float().requires_grad_()
    first = x.detach().transpose(0, 1).contiguous().requires_grad_()
    with snnlib.use_path(path):
        value, expected = one(x), other(first)
        assert value.any() and torch.equal(value, expected.transpose(0, 1)) and _in_memory(value)
        found, wanted = _gradients(value, x, one.weight), _gradients(expected, first, other.weight)
        torch.testing.assert_close(found[0], wanted[0].transpose(0, 1))
        torch.testing.assert_close(found[1], wanted[1])
        start, state = one.run(x[:, :4])
        rest, _ = one.run(x[:, 4:], state)
        assert torch.equal(torch.cat((start, rest), 1), value) and _in_memory(start)
        lengths = torch.tensor([6, 0, 4])
        ragged, _ = one.run(x, lengths=lengths)
        assert torch.equal(ragged, other.run(first, lengths=lengths).value.transpose(0, 1)) and _in_memory(
            ragged
        )


@pytest.mark.parametrize("delays", [None, 3])
def test_recurrent_layers(delays: int | None) -> None:
    late = None if delays is None else snnlib.Delays(delays)
    torch.manual_seed(0)
    one = snnlib.SpikingRNN(7, 9, batch_first=True, recurrent_delays=late)
    other = snnlib.SpikingRNN(7, 9, recurrent_delays=None if delays is None else snnlib.Delays(delays))
    other.load_state_dict(one.state_dict())
    x = (torch.rand(3, 12, 7, generator=torch.Generator().manual_seed(3)) < 0.5).float().requires_grad_()
    first = x.detach().transpose(0, 1).contiguous().requires_grad_()
    value, expected = one(x), other(first)
    assert value.any() and torch.equal(value, expected.transpose(0, 1)) and value.is_contiguous()
    (grad,), (wanted,) = _gradients(value, x), _gradients(expected, first)
    torch.testing.assert_close(grad, wanted.transpose(0, 1))


def test_time_first_modules_read_batch_first_memory_in_place() -> None:
    """A transposed batch is walked as it lies, and results lie likewise."""
    x = (torch.rand(4, 9, 2, 6, 6, generator=torch.Generator().manual_seed(4)) < 0.3).float()
    conv = snnlib.SpikingConv2d(2, 8, 3)
    for module, sequence in (
        (neurons.LIF(), x * 3),
        (conv, x),
        (nn.Sequential(conv, snnlib.AvgPool2d(2)), x),
    ):
        value = module(sequence.transpose(0, 1))
        assert value.any() and torch.equal(value, module(sequence.transpose(0, 1).contiguous()))
        assert _in_memory(value.transpose(0, 1))


def test_no_op_has_an_argument_for_the_dimension_of_time() -> None:
    schemas = [str(schema) for schema in torch._C._jit_get_all_schemas() if "snnlib::" in schema.name]
    assert len(schemas) > 9 and not [schema for schema in schemas if "time_dim" in schema]
