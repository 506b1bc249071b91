"""Every way of the event-driven backward pass gives the gradients of the reference, and the choice follows the data."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from compare import assert_bits
from op_samples import SRM_CONVS, Sample, srm_conv_backward_sample
from torch import Tensor

import snnlib
from snnlib.ops import dispatch_backward
from snnlib.ops.dispatch_backward import BackwardPaths
from snnlib.ops.geometry import Geometry, geometry

pytestmark = pytest.mark.skipif(snnlib._native._module is None, reason="needs the compiled module")

EVENTS = [BackwardPaths("inputs", "spikes"), BackwardPaths("spikes", "spikes")]
WAYS = [
    *EVENTS,
    BackwardPaths("dense", "spikes"),
    BackwardPaths("spikes", "dense"),
    BackwardPaths("dense", "dense"),
]
SAMPLES = [
    *(srm_conv_backward_sample(name) for name in SRM_CONVS),
    srm_conv_backward_sample("scatter", (True, False), (2, 2)),
    srm_conv_backward_sample("gather back", (False, True), (2, 4)),
    srm_conv_backward_sample("gather, many channels", pool=(3, 2)),
    srm_conv_backward_sample("stride", pool=(2, 1)),
]


def _run(arguments: tuple[Any, ...]) -> list[Tensor]:
    return list(torch.ops.snnlib.srm_conv_backward(*arguments))


def _geometry(arguments: tuple[Any, ...]) -> Geometry:
    x, weight, stride, padding, time_dim = (arguments[i] for i in (1, 2, 7, 8, 14))
    return geometry(x, weight, stride, padding, time_dim)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BackwardPaths:
    monkeypatch.setattr(dispatch_backward, "decide", lambda *_: request.param)
    return request.param


@pytest.mark.parametrize("way", WAYS, ids=str, indirect=True)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_equals_reference(sample: Sample, way: BackwardPaths) -> None:
    arguments = sample.arguments(torch.float32)
    if way.weight == "inputs" and not dispatch_backward.windows_are_rows(_geometry(arguments)):
        pytest.skip("windows of this geometry are no rows")
    with snnlib.use_path("reference"):
        expected = _run(arguments)
    for gradient, answer in zip(_run(arguments), expected, strict=True):
        assert gradient.shape == answer.shape
        if answer.numel():
            assert (gradient - answer).abs().max() <= 1e-5 * answer.abs().max()


@pytest.fixture
def restored() -> Iterator[list[str]]:
    module, threads = snnlib._native._module, torch.get_num_threads()
    assert module is not None
    isa = module.isa()
    yield module.available_isas()
    module.select_isa(isa)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("way", EVENTS, ids=str, indirect=True)
@pytest.mark.parametrize(
    "name", ["scatter", "gather, whole vectors", "gather, many channels", "fully connected"]
)
def test_same_bits_on_any_instruction_set_with_any_threads(
    name: str, way: BackwardPaths, restored: list[str]
) -> None:
    arguments = srm_conv_backward_sample(name).arguments(torch.float32)
    expected = _run(arguments)
    for isa in restored:
        snnlib._native._module.select_isa(isa)
        for threads in (1, 3, 16):
            torch.set_num_threads(threads)
            for gradient, answer in zip(_run(arguments), expected, strict=True):
                assert_bits(gradient, answer, f"{isa}, {threads} threads, {way}")
