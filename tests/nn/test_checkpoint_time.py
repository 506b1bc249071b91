"""Long sequences in chunks: the gradient of the whole, the memory of a part; input as events."""

import mmap
import sys
from types import SimpleNamespace

import pytest
import torch
from compare import assert_close
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.backends import cpu_memory
from snnlib.nn.memory import freed as freed_memory

NARROW = surrogate.Triangle(0.5, 0.4)


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=neurons.LIF(3.0, surrogate=NARROW)),
        snnlib.SpikeDropout(0.2),
        nn.Flatten(2),
        snnlib.SpikingRNN(4 * 6 * 6, 12),
        nn.Linear(12, 3),
        neurons.Integrator(5.0, learnable=("tau",)),
    ).eval()


@pytest.mark.parametrize("steps", [1, 7, 100, None])
def test_gradient_of_the_whole(steps: int | None) -> None:
    net, x = _net(), (torch.rand(40, 3, 2, 8, 8, generator=torch.Generator().manual_seed(3)) < 0.1).float()
    batch = SimpleNamespace(time_steps=40, frames=lambda first, end: x[first:end])
    weights = torch.linspace(-1, 2, 40 * 9).reshape(40, 3, 3)
    results = []
    for way in ("whole", "chunks", "events", "reduced"):
        events = x.clone().requires_grad_()
        if way == "whole":
            out = net(events)
        elif way == "reduced":
            loss = snnlib.checkpoint_time(
                net, events, steps=steps, reduce=lambda part, t: (part * weights[t : t + len(part)]).sum()
            )
        else:
            out = snnlib.checkpoint_time(net, events if way == "chunks" else batch, steps=steps)
        net.zero_grad()
        loss = loss if way == "reduced" else (out * weights).sum()
        loss.backward()
        results.append((out, events.grad, [p.grad.clone() for p in net.parameters()]))
    (whole, grad, of_weights), *others = results
    assert net[3](net[2](net[0](x))).sum() > 0
    for number, (out, by_input, by_weights) in enumerate(others):
        # The read-out is torch's product, whose sums follow the number of its rows.
        assert_close(out, whole.double(), 1e-6)
        if number != 1:
            assert (by_input - grad).abs().max() <= 1e-6 * grad.abs().max()
        for a, b in zip(by_weights, of_weights, strict=True):
            assert b.abs().max() > 0
            assert (a - b).abs().max() <= 5e-6 * b.abs().max()


def _kept_bytes(run: object) -> int:
    """Bytes of different tensors that autograd keeps for the backward pass of `run()`."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()  # type: ignore[operator]
    return sum(kept.values())


def test_memory_does_not_follow_the_length() -> None:
    torch.manual_seed(0)
    rnn = snnlib.SpikingRNN(20, 64)
    net = nn.Sequential(rnn, nn.Linear(64, 3))
    kept = {}
    for steps in (100, 400):
        x = (torch.rand(steps, 4, 20) < 0.1).float()
        own = x.nbytes
        kept[steps] = _kept_bytes(lambda: net(x).sum()) - own  # noqa: B023
        reduce = lambda out, first: out.sum()  # noqa: E731
        kept[-steps] = (
            _kept_bytes(lambda: snnlib.checkpoint_time(net, x, steps=20, reduce=reduce)) - own  # noqa: B023
        )
    assert kept[400] > 3.5 * kept[100]
    # The states at the borders are all that is kept beyond the input.
    assert kept[-400] < kept[400] / 8


@pytest.mark.parametrize("replayed", [False, True])
def test_freed_memory_is_seen_to_before_each_chunk(replayed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(freed_memory.FreedMemory, "begin_chunk", lambda _: calls.append(1))
    # Noise cannot be packed and takes more than the states of 4 neurons, which are kept in its place.
    x = torch.randn(40, 8, 300) if replayed else torch.zeros(40, 8, 300)
    neuron = neurons.LIF(surrogate=surrogate.Triangle(0.5))
    layer = snnlib.SpikingLinear(300, 4 if replayed else 3000, neuron=neuron)
    out = snnlib.checkpoint_time(layer, x.requires_grad_(), steps=10)
    forward = len(calls)
    out.sum().backward()
    # Four chunks forward; backward before all but the last, and before each that runs once more.
    assert len(calls) - forward == (3 + 4 if replayed else 3)
    assert forward == (5 if replayed else 4)


def test_freed_memory_goes_back_where_the_process_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int | None] = []
    calls: list[int] = []
    monkeypatch.setattr(cpu_memory, "hand_back_freed_memory", lambda: calls.append(1))
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: sizes[-1])
    monkeypatch.setattr(freed_memory.FreedMemory, "_left_behind", 0)
    # Before the first chunk; the second shows what a chunk leaves behind; others grow up to the bound and beyond. A
    # second pass, and a third, continue where the pass before them ended.
    passes = (
        ((3000, 0), (150, 0), (150, 0), (165, 0), (167, 1), (120, 1), (130, 1)),
        ((140, 1), (130, 1), (136, 1)),
        ((3000, 1), (136, 1), (137, 2)),
    )
    for chunks in passes:
        memory = freed_memory.FreedMemory()
        for megabytes, handed_back in chunks:
            sizes.append(megabytes << 20)
            memory.begin_chunk()
            assert len(calls) == handed_back, megabytes
    # A system that does not say how large the process is.
    sizes.append(None)
    memory.begin_chunk()
    memory.begin_chunk()
    assert len(calls) == 4


def test_the_size_of_the_process() -> None:
    size = freed_memory.resident_bytes()
    if not sys.platform.startswith("linux"):
        assert size is None
        return
    assert size is not None
    # Memory of its own, which nothing freed before can stand for.
    ballast = mmap.mmap(-1, 1 << 25)
    for page in range(0, len(ballast), mmap.PAGESIZE):
        ballast[page] = 1
    grown = freed_memory.resident_bytes()
    assert grown is not None
    assert grown - size > len(ballast) / 2
    ballast.close()


def test_nets_that_cannot_be_cut() -> None:
    x = torch.rand(6, 2, 4)
    with pytest.raises(ValueError, match=r"net: module .*\(BatchNorm2d\) mixes time steps"):
        snnlib.checkpoint_time(snnlib.BatchNorm2d(4), x, steps=2)
    with pytest.raises(ValueError, match="steps: expected an integer >= 1"):
        snnlib.checkpoint_time(nn.Linear(4, 3), x, steps=0)
    with pytest.raises(ValueError, match="x: expected at least one time step"):
        snnlib.checkpoint_time(nn.Linear(4, 3), x[:0], steps=1)
