"""Any layout of the arguments gives the values of contiguous ones, on every op and path."""

from collections.abc import Callable

import op_calls
import pytest
import torch
from compare import assert_bits, assert_close, assert_same_bits
from layouts import LAYOUTS, expanded, misaligned, sliced, train_channels_last
from op_samples import Sample
from opdb import OPS, OpCase
from torch import Tensor, nn

import snnlib
from snnlib import functional
from snnlib.backends.geometry import ConvOptions
from snnlib.ops import conv_layout, torch_conv

NAMES = (
    "T = 0, batch first",
    "prime sizes",
    "more than a block",
    "state",
    "batch first",
    "1-D",
    "overlap and borders",
    "signed",
    "3-D",
    "groups of planes",
    "steps share their segments",
)
CALLS = [
    pytest.param(case, sample, id=f"{case.name}: {sample.name}")
    for case in OPS.values()
    for sample in case.samples
    if sample.name in NAMES
]


def _relaid(case: OpCase, args: tuple[object, ...], layout: Callable[[Tensor], Tensor]) -> list[object]:
    """Events and gradients in the layout; the layout must keep or knowingly replace their values."""
    train_like = range(case.events + 1)
    return [layout(x) if i in train_like and isinstance(x, Tensor) else x for i, x in enumerate(args)]


def _assert_same_bits(case: OpCase, args: tuple[object, ...], layout: Callable[[Tensor], Tensor]) -> None:
    relaid = _relaid(case, args, layout)
    plain = [x.contiguous() if isinstance(x, Tensor) else x for x in relaid]
    assert_same_bits(case(*relaid), case(*plain), f"{case.name}, {layout.__name__}")


@pytest.mark.parametrize(("case", "sample"), CALLS)
def test_layout_changes_no_bit(case: OpCase, sample: Sample, path: str) -> None:
    arguments = sample.arguments(torch.float32)
    for layout in LAYOUTS:
        _assert_same_bits(case, arguments, layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sample", ["scatter", "gather back", "fully connected"])
@pytest.mark.parametrize("name", ["srm_conv_forward", "srm_conv_backward"])
def test_layout_of_event_driven_trains(name: str, sample: str, dtype: torch.dtype) -> None:
    """On the native path; the reference's gradients are torch's, whose order of addition follows the layout."""
    case = OPS[name]
    arguments = next(s for s in case.samples if s.name == sample).arguments(dtype)
    for layout in LAYOUTS:
        # Dense gradients of weights are sums of torch over frames as they lie in memory.
        with snnlib.use_path("native"), snnlib.use_convolution("events"):
            _assert_same_bits(case, arguments, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["srm_backward", "spike_avg_pool_backward"])
def test_gradient_in_another_layout_than_the_events(
    name: str, layout: Callable[[Tensor], Tensor], path: str
) -> None:
    """Autograd hands over gradients in any layout: sums come expanded, permutations transposed."""
    case = OPS[name]
    sample = next(s for s in case.samples if s.name in ("more than a block", "overlap and borders"))
    gradient, *rest = sample.arguments(torch.float32)
    gradient = layout(gradient)
    assert_same_bits(case(gradient, *rest), case(gradient.contiguous(), *rest))


@pytest.mark.parametrize("name", ["srm_backward", "spike_avg_pool_backward"])
def test_gradient_in_another_dtype_than_the_events(name: str, path: str) -> None:
    case = OPS[name]
    sample = next(s for s in case.samples if s.name in ("more than a block", "overlap and borders"))
    gradient, *rest = sample.arguments(torch.float32)
    rounded = gradient.half()
    assert_same_bits(case(rounded, *rest), case(rounded.float(), *rest))


@pytest.mark.parametrize("space", [(), (1, 1), (3, 2)], ids=str)
@pytest.mark.parametrize("layout", [sliced, expanded, misaligned])
def test_layout_of_the_threshold(
    layout: Callable[[Tensor], Tensor], space: tuple[int, ...], rng: torch.Generator, path: str
) -> None:
    threshold = layout(torch.rand(7, generator=rng) + 0.3)
    current = torch.rand(20, 2, 7, *space, generator=rng)
    expected = functional.srm_neuron(current, threshold=threshold.contiguous())
    assert_bits(functional.srm_neuron(current, threshold=threshold), expected)


def test_walkable_layouts_are_kept(path: str) -> None:
    """Channels-last currents come out of convolutions: the neurons answer in their layout, without a copy."""
    current = train_channels_last(torch.randn(5, 2, 3, 4, 4))
    spikes, state = op_calls.srm_forward(current, torch.tensor(1.0), None, 5.0, 3.0, 3.0, 4.0, 0, True)
    assert spikes.stride() == current.stride()
    assert state.stride()[1:] == current.stride()[1:]


def test_strides_along_one_element_do_not_count() -> None:
    # [T, N, C, L]: channels are the last in memory.
    assert conv_layout.lies_in_order(torch.empty_strided((4, 1, 3, 2), (6, 99, 1, 3)))
    assert not conv_layout.lies_in_order(torch.empty(4, 1, 3, 2))


def _with_strange_strides(tensor: Tensor) -> Tensor:
    """Channels-last, with a stride along each axis of one element that no layout has."""
    last = tensor.contiguous(memory_format=torch.channels_last)
    stride = [9 if size == 1 else step for size, step in zip(last.shape, last.stride(), strict=True)]
    return torch.empty_strided(last.shape, stride, dtype=tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("which", ["weight", "frames", "signal"])
def test_grouped_convolutions_take_any_stride_along_one_element(which: str) -> None:
    """torch's own give other numbers there."""
    torch.manual_seed(0)
    # A single column of outputs, inputs or taps.
    width, taps = {"weight": (7, 1), "frames": (1, 1), "signal": (3, 3)}[which]
    x, weight = torch.randn(3, 2, 6, 8, width), torch.randn(10, 3, 3, taps)
    options = ConvOptions([1, 1], [1, 0], [1, 1], 2)
    exact_x, exact_weight = (tensor.double().requires_grad_() for tensor in (x.flatten(0, 1), weight))
    exact = nn.functional.conv2d(exact_x, exact_weight, None, *options)
    signal = torch.randn(exact.shape)
    exact.backward(signal.double())
    if which == "weight":
        weight = _with_strange_strides(weight)
    if which == "frames":
        x = _with_strange_strides(x.flatten(0, 1)).unflatten(0, (3, 2))
    if which == "signal":
        signal = _with_strange_strides(signal)
    signals = signal.unflatten(0, (3, 2))
    assert_close(torch_conv.currents(x, weight, options).flatten(), exact.detach().flatten(), 1e-5)
    assert exact_x.grad is not None
    field = torch_conv.field(signals, x, weight, options)
    assert_close(field.reshape(exact_x.shape), exact_x.grad, 1e-5)
    assert exact_weight.grad is not None
    assert_close(torch_conv.weight_gradient(signals, x, weight, options), exact_weight.grad, 1e-5)
