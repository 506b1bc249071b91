"""16-bit floats of the kernels: every value read and written, and every kind of rounding, equal to torch's."""

import copy
from collections.abc import Sequence

import pytest
import torch
from compare import assert_bits, assert_same_bits
from half_values import HALVES, every_value
from op_samples import Sample
from opdb import OPS
from torch import Tensor

import snnlib


def _flushed(x: Tensor) -> Tensor:
    """Zeros of the same sign in the place of the denormal numbers of float32, as kernels of half types read them."""
    return torch.where(x.abs() < torch.finfo(torch.float32).tiny, 0 * x, x)


def _native_pool(x: Tensor, *args: object, **kwargs: object) -> Tensor:
    with snnlib.use_path("native"):
        return snnlib.functional.spike_avg_pool2d(x, *args, **kwargs)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_value_comes_back(dtype: torch.dtype) -> None:
    """A window of one cell reads a value into float32 and writes it: the same bits, NaN as a NaN."""
    x = every_value(dtype)
    out = _native_pool(x, 1)
    number = ~x.isnan()
    # A sum that starts from 0 makes +0 of -0.
    number &= x != 0
    number &= _flushed(x) != 0
    assert torch.equal(out.view(torch.int16)[number], x.view(torch.int16)[number])
    assert out[x.isnan()].isnan().all()
    assert (out[_flushed(x) == 0] == 0).all()


@pytest.mark.parametrize("divisor", [2, 3, 7, 1024, 65536, -3])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rounding_of_quotients(dtype: torch.dtype, divisor: int) -> None:
    """Powers of two drive values through ties of the subnormals to zero, odd numbers give all kinds of bits."""
    x = every_value(dtype)
    # A sum that starts from 0 makes +0 of -0.
    assert_bits(
        _native_pool(x, 1, divisor_override=divisor), _flushed((0 + _flushed(x.float())) / divisor).to(dtype)
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("steps", [0.5, -0.5, 0.49, 0.51, 1.5])
def test_rounding_of_sums(dtype: torch.dtype, steps: float) -> None:
    """x plus a share of its last place: ties to even, both sides of a tie, and overflow to infinity at the top."""
    x = every_value(dtype).flatten()
    x = x[x.isfinite()]
    exponent = torch.frexp(x.float()).exponent.float()
    digits = 8 if dtype == torch.bfloat16 else 11
    last_place = torch.exp2(exponent - digits)
    rest = (steps * last_place).to(dtype)
    pair = torch.stack((x, rest), -1).reshape(1, 1, 1, -1, 2)
    expected = _flushed(0 + _flushed(x.float()) + _flushed(rest.float())).to(dtype)
    out = _native_pool(pair, (1, 2), divisor_override=1).flatten()
    assert_bits(out, expected)
    if steps > 0:
        assert out.isinf().any() == (steps >= 0.5)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_neurons_readevery_value(dtype: torch.dtype) -> None:
    """A step with tau_s = 2 gives u = I / 2: spikes tell every value from the threshold."""
    current = every_value(dtype)
    with snnlib.use_path("native"):
        spikes = snnlib.functional.srm_neuron(current, tau_m=4.0, tau_s=2.0, threshold=0.75)
    # A sum with a potential of 0 makes +0 of -0.
    wide = 0 + _flushed(current.float())
    expected = torch.where(wide / 2 >= 0.75, 1.0, wide - wide)
    assert_bits(spikes, expected.to(dtype))


def _in_float32(arguments: Sequence[object]) -> list[object]:
    return [x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in arguments]


@pytest.mark.parametrize("convolution", ["events", "dense"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("sample", OPS["srm_conv_forward"].samples, ids=lambda sample: sample.name)
def test_layers_compute_in_float32(
    sample: Sample, dtype: torch.dtype, convolution: snnlib.backends.algorithm.Convolution, path: str
) -> None:
    """Spikes, state and record are equal; only the pooled spikes are rounded."""
    arguments = sample.arguments(dtype)
    with snnlib.use_convolution(convolution):
        out, *rest = OPS["srm_conv_forward"](*arguments)
        expected, *others = OPS["srm_conv_forward"](*_in_float32(arguments))
    assert_bits(out, expected.to(dtype))
    assert_same_bits(rest, others)


@pytest.mark.parametrize("convolution", ["events", "dense"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["convolution", "fully connected"])
def test_autocast_is_a_cast_of_trains_and_weights(
    name: str, dtype: torch.dtype, convolution: snnlib.backends.algorithm.Convolution, rng: torch.Generator
) -> None:
    """Nothing inside the layer is cast again, a dense convolution least of all."""
    torch.manual_seed(1)
    layer = snnlib.SRMConv2d(3, 8, 3) if name == "convolution" else snnlib.SRMLinear(40, 30)
    shape = (9, 2, 3, 7, 7) if name == "convolution" else (9, 8, 40)
    x = (torch.rand(shape, generator=rng) < 0.4).float()
    with snnlib.use_convolution(convolution):
        expected = copy.deepcopy(layer).to(dtype)(x.to(dtype))
        with torch.autocast("cpu", dtype=dtype):
            out = layer(x)
    assert out.any()
    assert_bits(out, expected)
