"""The option `--jitter` moves every sum of torch, repeats itself, and leaves exact sums alone."""

import threading
from collections.abc import Callable, Iterator

import jitter
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import snnlib


@pytest.fixture(autouse=True)
def jittered() -> Iterator[None]:
    installed = jitter.install()
    yield
    if installed:
        jitter.remove()


def _gradients(function: Callable[..., Tensor], *values: Tensor) -> list[Tensor]:
    leaves = [value.clone().requires_grad_() for value in values]
    return list(torch.autograd.grad(function(*leaves).square().sum(), leaves))


def _norm(x: Tensor) -> list[Tensor]:
    norm = nn.BatchNorm1d(x.shape[1]).to(x.dtype)
    return [norm(x).detach(), norm.running_mean, norm.running_var]


def _in_a_thread(x: Tensor, w: Tensor) -> Tensor:
    results: list[Tensor] = []
    thread = threading.Thread(target=lambda: results.append(x @ w))
    thread.start()
    thread.join()
    return results[0]


WEIGHT, KERNEL = (torch.linspace(-1, 1, n).sin() for n in (40 * 30, 2 * 4 * 9))
WEIGHT, KERNEL = WEIGHT.view(40, 30), KERNEL.view(2, 4, 3, 3)
CALLS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "matrix product": lambda x: [x @ WEIGHT.to(x), *_gradients(torch.matmul, x, WEIGHT.to(x))],
    "vector": lambda x: [x @ WEIGHT.to(x)[:, 0]],
    "linear": lambda x: [F.linear(x, WEIGHT.T.to(x), WEIGHT[0].to(x))],
    "memory given": lambda x: [torch.mm(x, WEIGHT.to(x), out=x.new_zeros(x.shape[0], 30))],
    "batches": lambda x: [torch.einsum("tnc,tcd->tnd", x.view(4, -1, 40), WEIGHT.to(x).expand(4, -1, -1))],
    "convolution": lambda x: [
        F.conv2d(x.view(-1, 4, 5, 8), KERNEL.to(x)),
        *_gradients(F.conv2d, x.view(-1, 4, 5, 8), KERNEL.to(x)),
    ],
    "sums": lambda x: [x.sum(0), x.sum().view(1), x.mean(1), F.mse_loss(x, x.sin()).view(1)],
    "variances": lambda x: [x.var(0), x.std(1), x.norm(dim=0)],
    "norms": lambda x: [*_norm(x), F.layer_norm(x, (40,)), F.group_norm(x, 4)],
    "softmax": lambda x: [x.softmax(1), x.log_softmax(0), x.logsumexp(1)],
    "thread": lambda x: [_in_a_thread(x, WEIGHT.to(x))],
}


def _x(dtype: torch.dtype) -> Tensor:
    return torch.randn(32, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_every_sum_moves_by_a_unit_and_repeats(name: str, dtype: torch.dtype) -> None:
    x = _x(dtype)
    moved = CALLS[name](x)
    with jitter.paused():
        plain = [value.clone() for value in CALLS[name](x)] if name != "thread" else [x @ WEIGHT.to(x)]
    for got, again, value in zip(moved, CALLS[name](x), plain, strict=True):
        assert torch.equal(got, again)
        assert not torch.equal(got, value) or value.numel() == 1
        # A backward pass starts from a sum that moved; sums that cancel lose more.
        off = (got - value).abs() / value.abs().max()
        assert off.max() <= 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sums_on_a_grid_stay(dtype: torch.dtype) -> None:
    spikes, weight = (_x(torch.float32) > 0).to(dtype), (WEIGHT * 64).round().to(dtype) / 64
    kernel = (KERNEL * 64).round().to(dtype) / 64

    def results() -> list[Tensor]:
        return [
            spikes @ weight,
            F.conv2d(spikes.view(-1, 4, 5, 8), kernel),
            *_gradients(torch.matmul, spikes, weight),
            spikes.mean(1),
            spikes.sum(0, dtype=torch.float32),
            # Nothing is added: one term, two terms, variances of equal numbers, norms that only halve.
            torch.eye(40, dtype=dtype) @ WEIGHT.to(dtype),
            _x(dtype)[:2].sum(0),
            torch.full((4, 5), 0.25, dtype=dtype).var(1),
            F.batch_norm(spikes, torch.zeros(40, dtype=dtype), torch.full((40,), 4.0, dtype=dtype), eps=0.0),
        ]

    with jitter.paused():
        expected = results()
    assert all(map(torch.equal, results(), expected))


def test_a_power_of_two_scales_every_bit() -> None:
    x = _x(torch.float32)
    assert torch.equal((x * 8) @ (WEIGHT / 32), x @ WEIGHT / 4)


def test_kernels_of_the_library_stay() -> None:
    layer, x = snnlib.SpikingLinear(40, 30), (_x(torch.float32).view(8, 4, 40) > 0).float()
    with jitter.paused():
        expected = layer.run(x)
    out = layer.run(x)
    assert torch.equal(out.value, expected.value) and torch.equal(out.state[0], expected.state[0])
