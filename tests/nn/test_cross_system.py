"""Properties that hold between systems, and of the whole chain at once.

Those of two systems stand with one of them: square superpixels and larger voxels in `test_superpixel.py` and
`test_voxel_pool.py`, integer weights in `test_quantize.py`, gradient sums through layers in `test_conservation.py`.
"""

import pytest
import torch
from torch import Tensor, nn

import snnlib

TAUS = {"tau_m": 5.0, "tau_s": 3.0, "tau_grad": 2.5}


def _trains(rng: torch.Generator) -> Tensor:
    return (torch.rand(12, 3, 2, 12, 12, generator=rng, dtype=torch.float64) < 0.2).double()


class Chain(nn.Module):
    """A layer of every system: `[T, N, 2, 12, 12]` to spikes `[T, N, 5]`, by way of 6 superpixels."""

    def __init__(self, labels: Tensor) -> None:
        super().__init__()
        self.labels = labels
        double = {"dtype": torch.float64}
        self.shrink = snnlib.BicubicResize2d((10, 10), a=-0.5, antialias=True)
        self.conv = snnlib.SRMConv2d(2, 6, 3, **TAUS, **double)
        self.pool = snnlib.SpikeAvgPool2d(2)
        self.damp = snnlib.GradScale(0.85)
        self.affine = snnlib.ChannelAffine(6, bias=True, **double)
        self.regions = snnlib.SuperpixelAvgPool2d(6)
        self.out = snnlib.SRMLinear(36, 5, **TAUS, **double)
        self.conv.weight.data.abs_()
        self.out.weight.data.abs_().mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.pool(self.conv(self.shrink(x)))
        tokens = self.regions(self.affine(self.damp(spikes)), self.labels)
        return self.out(tokens.flatten(2))


@pytest.fixture
def chain(rng: torch.Generator) -> Chain:
    torch.manual_seed(3)
    return Chain(torch.randint(0, 6, (3, 4, 4), generator=rng))


def test_grad_scale_in_front_of_a_layer_is_its_input_grad_scale(rng: torch.Generator) -> None:
    """The published damping by 0.85 is one of two equal ways to write it."""
    weight = torch.rand(4, 2, 3, 3, generator=rng, dtype=torch.float64)
    grads = []
    for scale_before, scale_within in ((0.85, 1.0), (1.0, 0.85)):
        x, w = _trains(rng.manual_seed(1)).requires_grad_(), weight.clone().requires_grad_()
        spikes = snnlib.functional.srm_conv2d(
            snnlib.functional.grad_scale(x, scale_before), w, **TAUS, input_grad_scale=scale_within
        )
        assert spikes.sum() > 100
        grads.append(torch.autograd.grad(spikes.sum(), (x, w)))
    for before, within in zip(*grads, strict=True):
        torch.testing.assert_close(before, within, rtol=1e-14, atol=0)


def test_a_silent_input_gives_zeros_everywhere(chain: Chain) -> None:
    x = torch.zeros(12, 3, 2, 12, 12, dtype=torch.float64, requires_grad=True)
    spikes = chain(x)
    assert (spikes == 0).all()
    spikes.square().sum().backward()
    assert (x.grad == 0).all()
    for name, parameter in chain.named_parameters():
        assert (parameter.grad == 0).all(), name
    with snnlib.explain.GradCAM(chain, chain.conv) as cam:
        assert (cam(x.detach()) == 0).all()


def test_order_of_samples_changes_nothing_but_order(chain: Chain, rng: torch.Generator) -> None:
    x, order = _trains(rng), torch.tensor([2, 0, 1])
    spikes = chain(x)
    assert 0 < spikes.sum() < spikes.numel()
    chain.labels = chain.labels[order]
    assert torch.equal(chain(x[:, order]), spikes[:, order])


def test_names_of_superpixels_change_nothing_but_order(chain: Chain, rng: torch.Generator) -> None:
    x, order = _trains(rng), torch.tensor([3, 1, 5, 0, 2, 4])
    spikes = chain(x)
    # Superpixel k becomes order[k], and the read-out's inputs move with it.
    weight = chain.out.weight.data.unflatten(1, (6, 6))
    moved = torch.empty_like(weight)
    moved[:, :, order] = weight
    chain.out.weight.data = moved.flatten(1)
    chain.labels = order[chain.labels]
    assert torch.equal(chain(x), spikes)
