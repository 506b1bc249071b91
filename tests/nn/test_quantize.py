"""Power-of-two quantisation against torch's fake quantisation, Python integers and the definition's search."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

import snnlib
from snnlib.functional.quantize import (
    power_of_two_exponent,
    quantize_power_of_two,
    quantize_to_int,
    round_ste,
)
from snnlib.nn.weights.quantize import Quantizer, RangeObserver

ROUNDINGS = ["trunc", "nearest"]
# Also far outside the range, and exact halves of a step.
finite = st.floats(-300, 300, width=32) | st.integers(-600, 600).map(lambda n: n / 2)


def exponent_by_search(max_abs: float, bits: int, low: int, high: int) -> int:
    """The definition, with Python's exact scaling and its round, halves to even."""
    fitting = [i for i in range(low, high + 1) if round(max_abs * 2.0**i) < 2 ** (bits - 1)]
    return max(fitting, default=low)


def calibrated(bits: int, values: list[float], **options: object) -> Quantizer:
    quantizer = Quantizer(bits, **options)
    quantizer(torch.tensor(values))
    return quantizer.eval()


# --- the exponent ---


@given(st.floats(0, 2.0**30, width=32), st.integers(2, 24), st.sampled_from([(-31, 31), (0, 31), (-3, 5)]))
def test_exponent_is_the_one_the_search_finds(max_abs: float, bits: int, limits: tuple[int, int]) -> None:
    got = power_of_two_exponent(torch.tensor(max_abs), bits, limits)
    assert got.dtype == torch.int32
    assert got.item() == exponent_by_search(max_abs, bits, *limits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [2, 3, 8, 16, 24])
def test_exponent_at_the_limit(bits: int, dtype: torch.dtype) -> None:
    # R 2^i = 2^(bits-1) - 1/2 rounds to the even 2^(bits-1), which no longer fits.
    limit = torch.tensor(2.0 ** (bits - 1) - 0.5, dtype=dtype)
    below = torch.nextafter(limit, torch.zeros((), dtype=dtype))
    assert power_of_two_exponent(torch.stack([below, limit]), bits).tolist() == [0, -1]


def test_exponent_of_values_without_magnitude() -> None:
    values = torch.tensor([torch.inf, torch.nan, 1e-45])
    assert power_of_two_exponent(values, 8, (-20, 20)).tolist() == [-20, -20, 20]
    assert power_of_two_exponent(torch.empty(0), 8).shape == (0,)


def test_power_of_two_scales_are_exact_over_the_whole_range() -> None:
    exponents = torch.arange(-126, 127)
    # A step of each grid is a fixed point of its quantisation and stands for the integer 1.
    steps = torch.tensor([2.0**-e for e in exponents.tolist()])
    assert torch.equal(quantize_power_of_two(steps, exponents, 2), steps)
    assert quantize_to_int(steps, exponents, 2).eq(1).all()


# --- values and gradients ---

VECTOR = [-0.9, -0.3, -0.004, 0.0, 0.002, 0.0079, 0.5, 0.99]


@pytest.mark.parametrize("value", [1.2, -1.2, 1e12, -1e12, torch.inf, -torch.inf])
def test_values_outside_the_range_saturate_without_gradient(value: float) -> None:
    x = torch.tensor([value], requires_grad=True)
    y = calibrated(8, VECTOR)(x)
    y.sum().backward()
    assert y.item() == (127 / 128 if value > 0 else -127 / 128)
    assert x.grad.item() == 0


@pytest.mark.parametrize(("rounding", "expected"), [("trunc", [1, 1, 0, 1, 0]), ("nearest", [1, 0, 0, 0, 0])])
def test_gradient_vector(rounding: str, expected: list[int]) -> None:
    x = (torch.tensor([12.8, 127.9, 128, -127.9, -129], dtype=torch.float64) / 128).requires_grad_()
    quantize_power_of_two(x, 7, 8, rounding).sum().backward()
    assert x.grad.tolist() == expected


@given(st.lists(finite, min_size=1, max_size=20), st.integers(2, 16), st.integers(-4, 12))
def test_nearest_is_torchs_fake_quantisation(values: list[float], bits: int, exponent: int) -> None:
    x, z = (torch.tensor(values, requires_grad=True) for _ in range(2))
    largest = 2 ** (bits - 1) - 1
    expected = torch.fake_quantize_per_tensor_affine(z, 2.0**-exponent, 0, -largest, largest)
    got = quantize_power_of_two(x, exponent, bits, "nearest")
    assert torch.equal(got, expected)
    grad = torch.arange(1.0, len(values) + 1)
    got.backward(grad)
    expected.backward(grad)
    assert torch.equal(x.grad, z.grad)


@given(st.lists(finite, min_size=1, max_size=20), st.integers(2, 24), st.integers(-4, 12))
def test_trunc_is_integer_arithmetic(values: list[float], bits: int, exponent: int) -> None:
    largest = 2 ** (bits - 1) - 1
    unclamped = [int(value * 2.0**exponent) for value in values]
    integers = [max(-largest, min(largest, n)) for n in unclamped]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y = quantize_power_of_two(x, exponent, bits)
    y.sum().backward()
    assert quantize_to_int(x, exponent, bits).tolist() == integers
    assert y.tolist() == [n * 2.0**-exponent for n in integers]
    assert x.grad.tolist() == [float(abs(n) <= largest) for n in unclamped]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept_and_half_is_as_exact_as_float32(
    dtype: torch.dtype, rounding: str, rng: torch.Generator
) -> None:
    # Steps of 2^-20: the scale itself has no float16.
    x = (torch.randn(200, generator=rng) * 1e-4).to(dtype)
    quantizer = Quantizer(8, rounding=rounding)
    y = quantizer(x)
    assert quantizer.exponent.item() > 16
    assert y.dtype == dtype
    assert torch.equal(y.double(), quantizer.eval()(x.double()))
    assert torch.equal(quantizer(y), y)


@pytest.mark.parametrize(("rounding", "expected"), [("trunc", [2, -2, 0]), ("nearest", [2, -4, 0])])
def test_round_ste(rounding: str, expected: list[int]) -> None:
    x = torch.tensor([2.5, -2.5 if rounding == "trunc" else -3.5, 0.5], requires_grad=True)
    y = round_ste(x, rounding)
    assert y.tolist() == expected
    y.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [1, 2, 3]
    special = torch.tensor([torch.inf, -torch.inf, torch.nan])
    assert torch.equal(round_ste(special, rounding).nan_to_num(5, 6, 7), torch.tensor([6.0, 7.0, 5.0]))


# --- the range ---


def test_nan_and_infinities_pass_but_never_enter_the_range() -> None:
    quantizer = Quantizer(8)
    y = quantizer(torch.tensor([torch.nan, torch.inf, -torch.inf, 0.5, -0.25]))
    assert y[0].isnan()
    assert y[1:].tolist() == [127 / 128, -127 / 128, 0.5, -0.25]
    assert (quantizer.range.fmin.item(), quantizer.range.fmax.item()) == (-0.25, 0.5)
    quantizer(torch.tensor([torch.nan]))
    assert (quantizer.range.fmin.item(), quantizer.range.fmax.item()) == (-0.25, 0.5)


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("empty", [torch.empty(0), torch.empty(3, 0), torch.tensor([torch.nan])])
def test_a_tensor_without_finite_values_is_no_observation(empty: Tensor, share: float | None) -> None:
    observer = RangeObserver(averaging_constant=share)
    assert observer(empty) is empty
    assert not observer.initialised.item()
    assert observer.max_abs.item() == 0
    observer(torch.tensor([2.0, 3.0]))
    observer(empty)
    # Had it counted, fmin would be 0.
    assert (observer.fmin.item(), observer.fmax.item()) == (2.0, 3.0)
    quantizer = calibrated(8, [1.0])
    assert quantizer(torch.empty(3, 0)).shape == (3, 0)


@given(st.lists(st.lists(finite, min_size=1, max_size=5), min_size=1, max_size=6))
def test_running_range_is_that_of_all_batches(batches: list[list[float]]) -> None:
    observer = RangeObserver(dtype=torch.float64)
    for batch in batches:
        observer(torch.tensor(batch, dtype=torch.float64))
    everything = [value for batch in batches for value in batch]
    assert (observer.fmin.item(), observer.fmax.item()) == (min(everything), max(everything))
    assert observer.max_abs.item() == max(map(abs, everything))


def test_moving_average_forgets_an_outlier_and_the_running_range_does_not() -> None:
    running, moving = Quantizer(8), Quantizer(8, averaging_constant=0.1)
    assert moving.range.averaging_constant == 0.1
    for quantizer in (running, moving):
        quantizer(torch.tensor([-50.0, 50.0]))
        quantizer(torch.tensor([-1.0, 0.5]))
    assert moving.range.fmin.item() == pytest.approx(-45.1)
    assert moving.range.fmax.item() == pytest.approx(45.05)
    for quantizer in (running, moving):
        for _ in range(200):
            quantizer(torch.tensor([-0.5, 0.9]))
    assert running.exponent.item() == exponent_by_search(50, 8, -31, 31) == 1
    assert moving.exponent.item() == 7


def test_eval_leaves_range_and_exponent_alone() -> None:
    quantizer = calibrated(8, VECTOR)
    before = copy.deepcopy(quantizer.state_dict())
    quantizer(torch.tensor([1000.0]))
    assert all(torch.equal(before[name], value) for name, value in quantizer.state_dict().items())
    observer = RangeObserver().eval()
    observer(torch.tensor([1.0]))
    assert not observer.initialised.item()


def test_eval_before_any_observation_is_an_error() -> None:
    quantizer = Quantizer(8).eval()
    for use in (quantizer, quantizer.int_repr):
        with pytest.raises(RuntimeError, match=r"no range observed yet.*training mode.*state_dict"):
            use(torch.tensor([0.5]))


def test_values_beyond_the_buffers_dtype_stay_finite() -> None:
    observer = RangeObserver()
    observer(torch.tensor([-1e300, 1.0], dtype=torch.float64))
    assert observer.fmin.item() == torch.finfo(torch.float32).min


def test_zeros_only_then_ones() -> None:
    # The finest scale of an all-zero batch must not wrap around when a one comes.
    y = calibrated(8, [0.0])(torch.tensor([1.0]))
    assert y.item() == 127 * 2.0**-31


# --- channels ---


def test_channels_are_quantised_apart(rng: torch.Generator) -> None:
    x = torch.randn(4, 3, 5, generator=rng) * torch.tensor([0.01, 1.0, 100.0]).reshape(3, 1)
    quantizer = Quantizer(6, channels=3, channel_dim=1)
    y = quantizer(x)
    for channel in range(3):
        alone = Quantizer(6)
        assert torch.equal(y[:, channel], alone(x[:, channel]))
        assert quantizer.exponent[channel] == alone.exponent
    assert len(set(quantizer.exponent.tolist())) == 3
    assert torch.equal(
        quantizer.int_repr(x) * torch.exp2(-quantizer.exponent.double()).reshape(3, 1), y.double()
    )


def test_a_channel_without_finite_values_stays_unobserved() -> None:
    observer = RangeObserver(channels=2)
    observer(torch.tensor([1.0, torch.nan]))
    assert observer.initialised.tolist() == [True, False]
    observer(torch.tensor([2.0, 5.0]))
    assert observer.fmin.tolist() == [1.0, 5.0]
    assert observer.fmax.tolist() == [2.0, 5.0]


@pytest.mark.parametrize("shape", [(2, 4), (3,), ()])
def test_wrong_number_of_channels(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x: expected 3 channels in dimension 1, got shape"):
        Quantizer(8, channels=3, channel_dim=1)(torch.zeros(shape))


# --- state ---


@pytest.mark.parametrize("options", [{}, {"channels": 2}])
def test_state_dict_deepcopy_and_pickle_keep_range_and_exponent(options: dict[str, int]) -> None:
    quantizer = Quantizer(8, **options)
    quantizer(torch.tensor([[-0.9, 0.3], [0.2, 7.0]]))
    quantizer.eval()
    loaded = Quantizer(8, **options).eval()
    loaded.load_state_dict(quantizer.state_dict())
    assert set(loaded.state_dict()) == {"exponent", "range.fmin", "range.fmax", "range.initialised"}
    probe = torch.linspace(-8, 8, 50).reshape(2, 25)
    for other in (loaded, copy.deepcopy(quantizer), pickle.loads(pickle.dumps(quantizer))):
        assert torch.equal(other(probe), quantizer(probe))
        # Training goes on from the same range.
        other.train()(torch.zeros(2, 1))
        assert torch.equal(other.exponent, quantizer.exponent)


def test_to_moves_the_buffers() -> None:
    quantizer = calibrated(8, VECTOR).to(torch.float64)
    assert quantizer.range.fmin.dtype == torch.float64
    assert quantizer.exponent.dtype == torch.int32
    assert quantizer(torch.tensor(VECTOR)).dtype == torch.float32
    assert all(buffer.is_meta for buffer in quantizer.to("meta").buffers())
    assert all(buffer.is_meta for buffer in Quantizer(8, "meta", channels=2).buffers())


# --- as a parametrization ---


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(2, 4, 3)], ids=["linear", "conv"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_gradient_is_that_of_the_quantised_weight(
    layer: nn.Module, per_channel: bool, rng: torch.Generator
) -> None:
    layer = copy.deepcopy(layer)
    # Gradients are compared with those of a layer that simply holds the quantised weight.
    plain = copy.deepcopy(layer)
    quantizer = Quantizer(5, channels=4 if per_channel else None)
    parametrize.register_parametrization(layer, "weight", quantizer)
    original = layer.parametrizations.weight.original
    assert quantizer.range.initialised.all()
    x = torch.randn((8, 6) if isinstance(layer, nn.Linear) else (8, 2, 5, 5), generator=rng)
    with torch.no_grad():
        plain.weight.copy_(layer.weight)
    for net in (layer, plain):
        (net(x) - 1).square().mean().backward()
    torch.testing.assert_close(original.grad, plain.weight.grad)
    layer.eval()
    assert torch.equal(quantizer(layer.weight), layer.weight)
    assert not torch.equal(original, layer.weight)


def test_exported_integers_with_a_scaled_threshold_give_the_same_spikes(rng: torch.Generator) -> None:
    layer = snnlib.SRMLinear(20, 5, threshold=0.75)
    parametrize.register_parametrization(layer, "weight", Quantizer(6))
    quantizer = layer.eval().parametrizations.weight[0]
    x = (torch.rand(30, 4, 20, generator=rng) < 0.2).float()
    spikes = layer(x)
    integers = quantizer.int_repr(layer.parametrizations.weight.original)
    threshold = 0.75 * 2.0 ** quantizer.exponent.item()
    assert 0 < spikes.mean() < 1
    assert torch.equal(snnlib.functional.srm_linear(x, integers.float(), threshold=threshold), spikes)


# --- torch's transformations ---


@pytest.mark.parametrize("training", [True, False])
def test_compiles_in_one_graph(training: bool, rng: torch.Generator) -> None:
    x = torch.randn(10, generator=rng)
    eager = calibrated(4, [-1.0, 1.0]).train(training)
    compiled = torch.compile(copy.deepcopy(eager), backend="aot_eager", fullgraph=True)
    grads, outputs = [], []
    for quantizer in (eager, compiled):
        leaf = x.clone().requires_grad_()
        outputs.append(quantizer(leaf))
        outputs[-1].sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(*outputs)
    assert torch.equal(*grads)
    assert torch.equal(eager.exponent, compiled.exponent)


def test_gradient_can_be_differentiated_again() -> None:
    x = torch.tensor([0.3, 0.4], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(quantize_power_of_two(x, 3, 4).square().sum(), x, create_graph=True)
    assert grad.tolist() == [0.5, 0.75]
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert second.tolist() == [2, 2]


# --- errors ---


@pytest.mark.parametrize("bits", [-1, 0, 1, 25, 33, 8.0])
def test_bits_out_of_range(bits: int) -> None:
    with pytest.raises(ValueError, match=r"bits: expected an integer from 2 to 24, got"):
        Quantizer(bits)
    with pytest.raises(ValueError, match=r"bits: expected an integer from 2 to 24, got"):
        power_of_two_exponent(torch.ones(1), bits)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float16, 11), (torch.bfloat16, 8)])
def test_bits_that_a_half_dtype_cannot_hold(dtype: torch.dtype, most: int) -> None:
    x = torch.ones(1, dtype=dtype)
    assert torch.equal(quantize_power_of_two(x, 0, most), x)
    with pytest.raises(ValueError, match=rf"bits: expected at most {most} for {dtype}, got {most + 1}"):
        quantize_power_of_two(x, 0, most + 1)


@pytest.mark.parametrize("limits", [(1, 0), (-127, 0), (0, 127)])
def test_exponent_range_out_of_range(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"exponent_range: expected \(lowest, highest\) within -126..126"):
        Quantizer(8, exponent_range=limits)
    with pytest.raises(ValueError, match=r"exponent_range: expected \(lowest, highest\) within -126..126"):
        power_of_two_exponent(torch.ones(1), 8, limits)


def test_other_errors_name_the_argument() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match=r"rounding: expected one of trunc, nearest, got 'floor'"):
        Quantizer(8, rounding="floor")
    with pytest.raises(ValueError, match=r"rounding: expected one of trunc, nearest, got 'floor'"):
        round_ste(x, "floor")
    with pytest.raises(ValueError, match=r"exponent: expected an integer within -126..126, got 127"):
        quantize_power_of_two(x, 127, 8)
    with pytest.raises(TypeError, match=r"exponent: expected integers, got torch.float32"):
        quantize_power_of_two(x, torch.ones(()), 8)
    with pytest.raises(ValueError, match=r"x: expected numbers, got NaN"):
        quantize_to_int(x * torch.nan, 0, 8)
    with pytest.raises(TypeError, match=r"x: expected a floating dtype, got torch.int64"):
        Quantizer(8)(torch.ones(2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"channels: expected an integer >= 1 or None, got 0"):
        RangeObserver(channels=0)
    with pytest.raises(ValueError, match=r"channel_dim: expected a dimension counted from the front, got -1"):
        RangeObserver(channels=2, channel_dim=-1)
    for share in (0, 1.5):
        with pytest.raises(
            ValueError, match=r"averaging_constant: expected a share in \(0, 1\] or None, got"
        ):
            Quantizer(8, averaging_constant=share)


def test_repr_shows_the_options() -> None:
    quantizer = Quantizer(8, rounding="nearest", channels=3, averaging_constant=0.01, exponent_range=(0, 31))
    text = repr(quantizer)
    assert "bits=8, rounding='nearest', exponent_range=(0, 31)" in text
    assert "channels=3, channel_dim=0, averaging_constant=0.01" in text


def test_a_finished_net_is_quantised_without_training_mode() -> None:
    torch.manual_seed(0)
    trained, finished = snnlib.SRMLinear(6, 5), snnlib.SRMLinear(6, 5).eval()
    finished.load_state_dict(trained.state_dict())
    for layer in (trained, finished):
        parametrize.register_parametrization(layer, "weight", Quantizer(4))
    assert not finished.parametrizations.weight[0].training
    x = (torch.rand(10, 3, 6) < 0.5).float()
    assert torch.equal(finished(x), trained.eval()(x))
    assert torch.equal(finished.weight, trained.weight)
    assert len(finished.weight.unique()) <= 15
    # The range stays that of the weight, and is saved.
    again = snnlib.SRMLinear(6, 5).eval()
    parametrize.register_parametrization(again, "weight", Quantizer(4))
    again.load_state_dict(finished.state_dict())
    assert torch.equal(again.weight, finished.weight)
