"""Functions and modules without kernels of their own trace into one graph: eager values and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib import functional as F
from snnlib.learning import decoding, losses
from snnlib.vision import segment

TARGET = torch.tensor([0, 2])
SEGMENTS = torch.tensor([0, 4, 0, 2, 1, 4])
LABELS = torch.tensor([[0, 1, 3], [4, 3, 0]]).expand(6, 2, 3)
POINTS = torch.linspace(-1, 4, 18).reshape(6, 3)
WANTED = (torch.arange(36).reshape(6, 2, 3) % 4 == 0).float()
superpixels = snnlib.SuperpixelAvgPool2d(5, ignore_index=3)


def _count_loss(loss: Callable[..., Tensor], **options: float) -> Callable[[Tensor], Tensor]:
    return lambda x: loss(x.sum(0), TARGET, **options)


def _channels() -> Callable[[Tensor], Tensor]:
    affine = snnlib.ChannelAffine(3, bias=True)
    torch.nn.init.constant_(affine.weight, 1.5)
    return affine


# Functions of events [6, 2, 3].
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "spike count": decoding.spike_count,
    "firing rate": decoding.firing_rate,
    "time-weighted count": decoding.time_weighted_count,
    "first spike time": decoding.first_spike_time,
    "spike times": decoding.spike_times,
    "count loss": _count_loss(losses.spike_count_loss, desired=6, undesired=1),
    "count plus loss": _count_loss(losses.spike_count_plus_loss, desired=6, undesired=1),
    "count cross-entropy": _count_loss(losses.count_cross_entropy),
    "count cross-entropy plus": _count_loss(losses.count_cross_entropy_plus),
    "spike time loss": lambda x: losses.spike_time_loss(x, WANTED),
    "van Rossum loss": lambda x: losses.van_rossum_loss(x, WANTED),
    "spike add": lambda x: F.spike_add(x, x.detach().flip(0)),
    "channel affine": _channels(),
    "scaled gradient": lambda x: F.grad_scale(x, 0.85),
    "standardisation": snnlib.WeightStandardization(6, bias=True),
    "segments": lambda x: segment.segment_sum_dense(x, SEGMENTS, 6),
    "superpixels": lambda x: F.superpixel_unpool(superpixels(x.unsqueeze(1), LABELS), LABELS, ignore_index=3),
    "voxels": lambda x: F.voxel_pool(x.flatten(1), POINTS, [(0, 3, 1)] * 3, SEGMENTS, 5, reduce="mean"),
    "readout": snnlib.SRMReadout(3, 2, tau_m=6.0),
}


# torch's compiler calls functions that torch deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name: str, rng: torch.Generator) -> None:
    torch._dynamo.reset()
    function, results = FUNCTIONS[name], []
    x = (torch.rand(6, 2, 3, generator=rng) < 0.4).float()
    for call in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        leaf = x.clone().requires_grad_()
        out = call(leaf)
        q = torch.linspace(-1, 2, out.numel()).reshape(out.shape)
        results.append((out, *torch.autograd.grad(out, leaf, q)))
    assert results[0][1].any()
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-6, atol=1e-7)
