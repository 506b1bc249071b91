"""All algorithms of the event-driven backward pass give the gradients of the reference; the choice follows the data."""

from typing import Any

import op_calls
import pytest
import torch
from compare import assert_bits, assert_same_bits
from op_samples import SRM_CONVS, Sample, srm_conv_backward_sample
from opdb_exact import EXACT_LAYERS_BACKWARD
from rates import set_rates_
from torch import Tensor

import snnlib
from snnlib.backends import algorithm
from snnlib.backends.algorithm import BackwardAlgorithms
from snnlib.backends.geometry import ConvOptions, Geometry, geometry

pytestmark = pytest.mark.skipif(snnlib.backends.native._module is None, reason="needs the compiled module")

EVENTS = [BackwardAlgorithms("inputs", "spikes"), BackwardAlgorithms("spikes", "spikes")]
CHOICES = [
    *EVENTS,
    BackwardAlgorithms("dense", "spikes"),
    BackwardAlgorithms("spikes", "dense"),
    BackwardAlgorithms("dense", "dense"),
]
SAMPLES = [
    *(srm_conv_backward_sample(name) for name in SRM_CONVS),
    srm_conv_backward_sample("scatter", (True, False), (2, 2)),
    srm_conv_backward_sample("gather back", (False, True), (2, 4)),
    srm_conv_backward_sample("gather, many channels", pool=(3, 2)),
    srm_conv_backward_sample("stride", pool=(2, 1)),
    *EXACT_LAYERS_BACKWARD,
]


def _output(arguments: tuple[Any, ...]) -> int:
    """The place of the output, before which neurons with exact times have their coefficients."""
    return 3 + arguments[4].is_floating_point()


def _run(arguments: tuple[Any, ...]) -> list[Tensor]:
    case = (op_calls.srm_conv_backward, op_calls.exact_layer_backward)[_output(arguments) - 3]
    return list(case(*arguments))


def _geometry(arguments: tuple[Any, ...]) -> Geometry:
    options = _output(arguments) + 4
    time_dim = arguments[16 if options == 7 else 14]
    x, weight = arguments[1:3]
    return geometry(x.transpose(0, time_dim), weight, ConvOptions(*arguments[options : options + 4]))


@pytest.fixture
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BackwardAlgorithms:
    for decide in ("decide_backward", "decide_for_entries"):
        monkeypatch.setattr(algorithm, decide, lambda *_: request.param)
    return request.param


def _possible(sample: Sample, chosen: BackwardAlgorithms) -> bool:
    g = _geometry(sample.arguments(torch.float32))
    if g.unsupported:
        return chosen == ("dense", "dense")
    return chosen.weight != "inputs" or algorithm.windows_are_rows(g)


CALLS = [
    pytest.param(sample, chosen, id=f"{sample.name}: {chosen.weight}, {chosen.input}")
    for sample in SAMPLES
    for chosen in CHOICES
    if _possible(sample, chosen)
]


@pytest.mark.parametrize(("sample", "chosen"), CALLS, indirect=["chosen"])
def test_equals_reference(sample: Sample, chosen: BackwardAlgorithms) -> None:
    arguments = sample.arguments(torch.float32)
    with snnlib.use_path("reference"):
        expected = _run(arguments)
    for gradient, answer in zip(_run(arguments), expected, strict=True):
        assert gradient.shape == answer.shape
        if answer.numel():
            assert (gradient - answer).abs().max() <= 1e-5 * answer.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("sample", "chosen"), CALLS, indirect=["chosen"])
def test_half_precision_is_float32_rounded_once(
    sample: Sample, chosen: BackwardAlgorithms, dtype: torch.dtype
) -> None:
    """Gradients of inputs and weights are rounded as they are written; rounded means of windows cost nothing."""
    arguments = sample.arguments(dtype)
    wide = [x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in arguments]
    wide[_output(arguments)] = sample.arguments(torch.float32)[_output(arguments)]
    # The state has no gradient.
    answers = [answer.to(dtype) for answer in _run(tuple(wide))[:2]]
    assert_same_bits(_run(arguments)[:2], answers)


@pytest.mark.parametrize("chosen", EVENTS, ids=str, indirect=True)
@pytest.mark.parametrize(
    "name", ["scatter", "gather, whole vectors", "gather, many channels", "fully connected"]
)
def test_same_bits_on_any_instruction_set_with_any_threads(
    name: str, chosen: BackwardAlgorithms, isas: list[str]
) -> None:
    arguments = srm_conv_backward_sample(name).arguments(torch.float32)
    expected = _run(arguments)
    for isa in isas:
        snnlib.backends.native._module.select_isa(isa)
        for threads in (1, 3, 16):
            torch.set_num_threads(threads)
            assert_same_bits(_run(arguments), expected, f"{isa}, {threads} threads, {chosen}")


def _chosen(density: float, rate: float, channels: int = 32, **others: int) -> BackwardAlgorithms:
    """For a 3x3 convolution of 32x32 pixels, 12 steps of 4 samples."""
    x = (torch.rand(12, 4, channels, 32, 32, generator=torch.Generator().manual_seed(6)) < density).float()
    weight, stride = torch.empty(64, channels, 3, 3), others.get("stride", 1)
    g = geometry(x, weight, ConvOptions((stride, stride), (1, 1), (1, 1), 1))
    return algorithm.decide_backward(x, g, int(rate * g.neuron_steps))


def test_choice_follows_the_rates() -> None:
    assert _chosen(0.05, 0.05) == ("inputs", "spikes")
    assert _chosen(0.4, 0.02) == ("spikes", "spikes")
    assert _chosen(0.9, 0.9) == ("dense", "dense")
    assert _chosen(0.1, 0.9) == ("inputs", "dense")
    assert _chosen(0.05, 0.05, stride=2) == ("spikes", "spikes")


def test_density_counts_where_most_windows_are() -> None:
    """Events in the middle of the image lie in more windows of a convolution without padding."""
    x = torch.zeros(4, 2, 1, 12, 12)
    x[..., 4:8, 4:8] = 1
    g = geometry(x, torch.empty(1, 1, 5, 5), ConvOptions((1, 1), (0, 0), (1, 1), 1))
    assert algorithm.inner(x, g).mean() == 1


def test_few_samples_keep_many_threads_busy(isas: list[str]) -> None:
    """More threads than samples, with bands of one image: gradients keep their bits."""
    torch.manual_seed(1)
    layer = snnlib.SRMConv2d(3, 16, 3, padding=1)
    x = (torch.rand(10, 1, 3, 40, 40) < 0.2).float().requires_grad_()
    set_rates_(layer, x.detach(), 0.1)
    assert geometry(x, layer.weight, ConvOptions((1, 1), (1, 1), (1, 1), 1)).bands(1)[1] > 1
    results = []
    for threads in (1, 5):
        torch.set_num_threads(threads)
        out = layer(x)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), [x, layer.weight])))
    for one, many in zip(*results, strict=True):
        assert one.abs().sum() > 0
        assert_bits(many, one)


def test_saved_state_is_a_bit_per_step_and_two_numbers_per_spike() -> None:
    torch.manual_seed(1)
    layer = snnlib.SRMConv2d(2, 16, 5, padding=1)
    x = (torch.rand(20, 8, 2, 20, 20) < 0.1).float()
    set_rates_(layer, x, 0.08)
    given = {x.untyped_storage().data_ptr(), layer.weight.untyped_storage().data_ptr()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x)
    state = sum(size for address, size in saved.items() if address not in given)
    rate = float(out.detach().mean())
    assert 0.05 < rate < 0.12
    assert 8 * rate < state / out.numel() <= 0.2 + 8 * rate


def test_large_input_gradient_past_the_caches(isas: list[str]) -> None:
    """From 32 MB on it is streamed: the same bits as sample by sample, which is not."""
    torch.manual_seed(2)
    layer = snnlib.SRMConv2d(16, 2, 1, threshold=0.5)
    x = (torch.rand(2, 2, 512, 256, 16) < 0.1).float().permute(0, 1, 4, 2, 3)
    assert x.numel() * 4 >= 32 << 20 > x[:, :1].numel() * 4

    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(layer(x).sum(), x)[0]

    for isa in isas:
        snnlib.backends.native._module.select_isa(isa)
        whole, parts = gradient(x), torch.cat([gradient(x[:, :1]), gradient(x[:, 1:])], 1)
        assert parts.abs().sum() > 0
        assert_bits(whole, parts, isa)
