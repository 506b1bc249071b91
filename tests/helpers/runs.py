"""Runs of a layer on parts of its input: chunks of a sequence, and samples of different lengths."""

import torch
from compare import assert_bits, assert_close
from torch import Tensor, nn


def results_in_chunks(layer: nn.Module, x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Output, last states, and gradients of the input and the parameters, of a run on chunks of these sizes."""
    time_dim = int(getattr(layer, "batch_first", False))
    events = x.clone().requires_grad_()
    state, values = None, []
    for chunk in events.split(sizes, time_dim):
        value, state = layer.run(chunk, state)
        values.append(value)
    out = torch.cat(values, time_dim)
    loss = (out * torch.linspace(-1, 2, out.numel()).reshape(out.shape)).sum()
    loss = loss + sum(part.sum() for part in state)
    gradients = torch.autograd.grad(loss, [events, *layer.parameters()])
    return [part.detach() for part in (out, *state, *gradients)]


def assert_samples_as_alone(
    layer: nn.Module, x: Tensor, lengths: Tensor, tolerance: float | None = None
) -> None:
    """Values and last states of each sample of `x` `[T, N, ...]` are those of the sample alone, as is its gradient.

    To the last bit without a tolerance, gradients to 1e-5; beyond its length there are zeros.
    """

    def turned(tensor: Tensor) -> Tensor:
        return tensor.transpose(0, 1) if getattr(layer, "batch_first", False) else tensor

    def assert_same(part: Tensor, expected: Tensor) -> None:
        if tolerance is None:
            assert_bits(part, expected)
        else:
            assert_close(part, expected.double(), tolerance)

    batch = turned(x).clone().requires_grad_()
    value, state = layer.run(batch, lengths=lengths)
    value.square().sum().backward()
    value, grad = turned(value), turned(batch.grad)
    assert value.any()
    for sample, steps in enumerate(lengths.tolist()):
        leaf = turned(x[:steps, sample : sample + 1]).clone().requires_grad_()
        out, last = layer.run(leaf)
        out.square().sum().backward()
        assert_same(value[:steps, sample : sample + 1], turned(out))
        for part, expected in zip(state, last, strict=True):
            assert_same(part[:, sample : sample + 1], expected)
        assert_close(grad[:steps, sample : sample + 1], turned(leaf.grad).double(), 1e-5)
        assert not value[steps:, sample].any() and not grad[steps:, sample].any()


def results(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, and gradients of the input and the parameters, of a loss with weights of both signs."""
    leaf = x.clone().requires_grad_()
    out = net(leaf)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, [leaf, *net.parameters()], weights)]
