"""Fused nets with channels-last weights: same results, gradients in the weights' layout, and tools of torch."""

import copy

import pytest
import torch
from compare import assert_gradient
from torch import Tensor, nn

import snnlib

LAST, PLAIN = torch.channels_last, torch.contiguous_format


def _net() -> nn.Sequential:
    layers: list[nn.Module] = []
    # Images of 8x8, 4x4, 2x2 and 1x1 pixels, whose passes run by different algorithms.
    for before, after, stride in [(8, 64, 1), (64, 128, 2), (128, 128, 2), (128, 64, 2), (64, 64, 1)]:
        conv = snnlib.PerStep(nn.Conv2d(before, after, 3, stride, padding=1, bias=False))
        fire = snnlib.neurons.LIF(2.0, surrogate=snnlib.surrogate.ATan())
        layers += [conv, snnlib.PerStep(nn.BatchNorm2d(after)), fire]
    return nn.Sequential(*layers, nn.Flatten(2), snnlib.PerStep(nn.Linear(64, 4)))


def _input() -> Tensor:
    return (torch.rand(4, 8, 8, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def _pair() -> tuple[nn.Module, nn.Module]:
    """Returns a fused net in both layouts."""
    torch.manual_seed(0)
    net = snnlib.fuse_(_net())
    return net, copy.deepcopy(net).to(memory_format=LAST)


def _gradients(net: nn.Module) -> list[Tensor]:
    net.zero_grad()
    (net(_input()) * torch.linspace(-1, 2, 4)).sum().backward()
    return [parameter.grad for parameter in net.parameters()]


@pytest.mark.parametrize("choice", ["auto", "events", "dense"])
def test_gradients_are_the_same_in_the_layout_of_the_weight(choice: str) -> None:
    net, last = _pair()
    with snnlib.use_convolution(choice):  # type: ignore[arg-type]
        expected, found = _gradients(net), _gradients(last)
    assert last[0][0].weight.is_contiguous(memory_format=LAST) and not last[0][0].weight.is_contiguous()
    for one, other, parameter in zip(found, expected, last.parameters(), strict=True):
        assert one.stride() == parameter.stride()
        assert_gradient(one, other, 1e-3)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}], ids=str)
def test_optimisers_take_the_same_steps(make: type[torch.optim.Optimizer], options: dict[str, bool]) -> None:
    """Both kinds read weights in the order of memory."""
    net, last = _pair()
    pairs = list(zip(net.parameters(), last.parameters(), strict=True))
    optimisers = [make([pair[place] for pair in pairs], lr=1e-2, **options) for place in (0, 1)]
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        for one, other in pairs:
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = torch.empty_like(other).copy_(one.grad)
        for optimiser in optimisers:
            optimiser.step()
    for one, other in pairs:
        assert torch.equal(one, other)


def test_files_copies_and_norms_do_not_depend_on_the_layout() -> None:
    net, last = _pair()
    other = copy.deepcopy(last)
    with torch.no_grad():
        other[0][0].weight.zero_()
    other.load_state_dict(net.state_dict())
    assert other[0][0].weight.stride() == last[0][0].weight.stride()
    net.load_state_dict(other.state_dict())
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    norms = [
        torch.nn.utils.clip_grad_norm_((_gradients(one), one.parameters())[1], 0.1) for one in (net, other)
    ]
    torch.testing.assert_close(*norms, rtol=1e-3, atol=0)


def test_what_flattens_weights_takes_them_again_once_they_are_contiguous() -> None:
    """The advice of docs/performance.md."""
    net, last = _pair()
    with pytest.raises(RuntimeError, match="view"):
        nn.utils.parameters_to_vector(last.parameters())
    last.to(memory_format=PLAIN)
    found, expected = (nn.utils.parameters_to_vector(one.parameters()) for one in (last, net))
    assert torch.equal(found, expected)
