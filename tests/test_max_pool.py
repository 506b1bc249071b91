"""Spike max pooling: a window fires when one of its inputs does; its gradient goes to the first largest event."""

import torch
import torch.nn.functional as torch_f

import snnlib
from snnlib import functional as F


def test_values_are_max_pool2d(rng: torch.Generator) -> None:
    x = torch.randint(-2, 3, (3, 2, 4, 9, 8), generator=rng).float()
    for options in ((2,), (3, 2), (3, 1, 1), ((2, 3), (2, 1), (1, 1), 2), (2, 2, 0, 1, True)):
        expected = torch_f.max_pool2d(x.flatten(0, 1), *options)
        assert torch.equal(F.spike_max_pool2d(x, *options).flatten(0, 1), expected)


def test_gradient_goes_to_the_first_of_equals() -> None:
    x = torch.tensor([[0.0, 1, 2, 0], [1, 0, 3, 3]]).reshape(1, 1, 1, 2, 4).requires_grad_()
    F.spike_max_pool2d(x, 2).backward(torch.tensor([5.0, 7.0]).reshape(1, 1, 1, 1, 2))
    assert x.grad.flatten().tolist() == [0, 5, 0, 0, 0, 0, 7, 0]


def test_silent_window_passes_nothing() -> None:
    x = torch.zeros(1, 1, 1, 2, 4)
    x[..., 3] = 1
    x.requires_grad_()
    out = F.spike_max_pool2d(x, 2)
    assert out.flatten().tolist() == [0, 1]
    out.sum().backward()
    assert x.grad.flatten().tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_sums_are_kept_over_firing_windows(rng: torch.Generator) -> None:
    x = (torch.rand(4, 3, 2, 8, 8, generator=rng) < 0.2).double().requires_grad_()
    out = F.spike_max_pool2d(x, 3, 2, 1)
    g = torch.randn(out.shape, generator=rng, dtype=torch.float64)
    out.backward(g)
    assert 0 < out.mean() < 1
    torch.testing.assert_close(x.grad.sum(), (g * out.detach()).sum())


def test_layer_is_the_function() -> None:
    x = torch.rand(2, 2, 3, 9, 9)
    layer = snnlib.SpikeMaxPool2d(3, 2, 1, 2, True)
    assert torch.equal(layer(x), F.spike_max_pool2d(x, 3, 2, 1, 2, True))
    assert "kernel_size=3, stride=2, padding=1" in repr(layer)


def test_frames_without_channels() -> None:
    x = torch.zeros(3, 2, 0, 5, 4, requires_grad=True)
    y = F.spike_max_pool2d(x, 2)
    y.sum().backward()
    assert y.shape == (3, 2, 0, 2, 2)
