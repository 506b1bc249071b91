"""The block of a state-space model: its equation, chunks, preparation, and what it refuses."""

import copy

import pytest
import torch
from compare import assert_close
from torch import nn

import snnlib
from snnlib.neurons import LRU
from snnlib.nn import StateSpaceBlock


def made(threshold: float | None = None, batch_first: bool = False) -> StateSpaceBlock:
    torch.manual_seed(0)
    neuron = LRU.ring(12, 0.5, 0.9, 1.0, threshold=threshold)
    block = StateSpaceBlock(8, 12, neuron=neuron, batch_first=batch_first)
    with torch.no_grad():
        block.skip.copy_(torch.linspace(-1, 1, 8))
    return block


@pytest.mark.parametrize("threshold", [None, 0.25])
def test_equation(threshold: float | None) -> None:
    block, x = made(threshold), torch.randn(9, 3, 8)
    h = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    units = block.neuron.reference(h @ block.enter.weight.T + block.enter.bias).value
    y = units @ block.leave.weight.T + block.leave.bias + block.skip * h
    # The distribution function of the normal distribution.
    y = y * (1 + torch.erf(y / 2**0.5)) / 2
    a, b = (y @ block.gate.weight.T + block.gate.bias).chunk(2, -1)
    assert_close(block(x).detach(), (x + a * torch.sigmoid(b)).detach(), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("batch_first", [False, True])
def test_chunks_are_the_whole(dtype: torch.dtype, batch_first: bool) -> None:
    net = nn.Sequential(made(batch_first=batch_first), made(0.25, batch_first)).to(dtype)
    time_dim = int(batch_first)
    x = torch.randn(12, 3, 8).transpose(0, time_dim).to(dtype)
    stream = snnlib.Stream(net)
    chunks = [stream(chunk) for chunk in x.split(5, time_dim)]
    # Linear maps of torch round by the number of rows.
    bound = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.05}[dtype]
    assert_close(torch.cat(chunks, time_dim).detach(), net(x).detach(), bound)
    block = made(batch_first=batch_first)
    x = x.float()
    lengths = torch.tensor([12, 4, 7])
    whole, ragged = block(x), block.run(x, lengths=lengths).value
    for n, length in enumerate(lengths.tolist()):
        one, other = (part.transpose(0, time_dim)[:length, n].detach() for part in (ragged, whole))
        assert_close(one, other, 1e-5)
    short = snnlib.run_ragged(nn.Sequential(block), x, lengths, batch_first=batch_first)
    assert_close(
        short.transpose(0, time_dim)[:4, 1].detach(), whole.transpose(0, time_dim)[:4, 1].detach(), 1e-5
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_is_prepared_compiled_and_saved() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(
        snnlib.PerStep(nn.Linear(1, 8)),
        StateSpaceBlock(8),
        StateSpaceBlock(8),
        snnlib.PerStep(nn.Linear(8, 2)),
    )
    x = torch.randn(60, 32, 1)
    snnlib.prepare_(net, x)
    net(x).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in net.parameters())
    other = copy.deepcopy(net)
    other.load_state_dict(net.state_dict())
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x).detach(), net(x).detach(), 1e-5)
    checkpointed = snnlib.checkpoint_time(net, x, steps=20)
    assert_close(checkpointed.detach(), net(x).detach(), 1e-5)
    assert "LRU" in str(snnlib.profile(net, x))


def test_refused() -> None:
    block = StateSpaceBlock(8)
    with pytest.raises(
        ValueError, match=r"^x: expected a sequence \[T, N, C\] with C = 8, got shape \(4, 2, 6\)$"
    ):
        block(torch.zeros(4, 2, 6))
    with pytest.raises(
        TypeError, match=r"^neuron: expected an instance of snnlib.neurons.Neuron, got 'LRU'$"
    ):
        StateSpaceBlock(8, neuron="LRU")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^units: expected an integer >= 1, got 0$"):
        StateSpaceBlock(8, 0)
