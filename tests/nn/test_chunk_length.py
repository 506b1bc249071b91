"""Chunks whose length `checkpoint_time` chooses by the memory that steps save and the memory that is free."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.nn.memory import chunks, free

CPU = torch.device("cpu")
_STEPS = 200


def _net() -> nn.Module:
    torch.manual_seed(0)
    # Slopes of a surrogate without bounds are real numbers, which do not pack.
    return nn.Sequential(
        snnlib.SpikingLinear(600, 800, neuron=neurons.LIF(surrogate=surrogate.ATan())), nn.Linear(800, 3)
    )


@pytest.fixture
def lengths() -> Iterator[SimpleNamespace]:
    """Input of a net, and the lengths of the chunks that are read, forward and backward."""
    x = (torch.rand(_STEPS, 4, 600, generator=torch.Generator().manual_seed(1)) < 0.1).float()
    read: list[int] = []

    def frames(first: int, end: int) -> Tensor:
        read.append(end - first)
        return x[first:end]

    yield SimpleNamespace(x=x, read=read, frames=frames, time_steps=_STEPS)


def test_the_report_has_the_length_of_a_chunk(
    lengths: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 1 << 20)
    net = _net()
    snnlib.checkpoint_time(net, lengths)
    first, second, *others, last = lengths.read
    assert first == 16
    assert set(others) <= {second}
    assert sum(lengths.read) == _STEPS
    assert last <= second
    # A step of four samples saves the input, spikes and a slope of each neuron: 4 (600 + 2 * 800) floats and records.
    report = snnlib.memory_report(net, lengths.x)
    assert report.chunk_steps == pytest.approx((1 << 20) / (4 * 4 * (600 + 2 * 800)), rel=0.4)
    assert second == pytest.approx(report.chunk_steps, rel=0.4)
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 64 << 20)
    assert report.chunk_steps == pytest.approx(64 * second, rel=0.4)


def test_memory_that_is_scarce(lengths: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    net = _net()
    read, gradients = {}, {}
    for name, free_memory in (("much", 1e9), ("little", 8e6)):
        monkeypatch.setattr(chunks, "free_bytes", lambda _, size=free_memory: size)
        net.zero_grad()
        lengths.read.clear()
        out = snnlib.checkpoint_time(net, lengths, reduce=lambda out, first: out.sum())
        forward = len(lengths.read)
        out.backward()
        read[name] = (max(lengths.read), len(lengths.read) - forward)
        gradients[name] = net[0].weight.grad.clone()
    # Little memory makes chunks shorter, and those that no longer fit run once more.
    assert read["much"] == (_STEPS - 16, 0)
    assert read["little"][0] < 100
    assert read["little"][1] > 0
    scale = gradients["much"].abs().max()
    assert (gradients["little"] - gradients["much"]).abs().max() <= 1e-5 * scale


def test_a_step_that_does_not_fit_is_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "free_bytes", lambda _: 0.0)
    assert chunks.chunk_steps(1e9, CPU) == 1
    monkeypatch.setattr(chunks, "free_bytes", lambda _: 1e12)
    # A GPU holds as much as fits, a CPU what is fast.
    assert chunks.chunk_steps(1e6, torch.device("cuda")) == 250_000
    assert chunks.chunk_steps(1e6, CPU) == (64 << 20) // 10**6


def test_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < free.free_bytes(CPU) < 1e15
    meminfo, own, groups = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    for name, path in (("_MEMORY", meminfo), ("_OWN_GROUP", own), ("_GROUPS", groups)):
        monkeypatch.setattr(free, name, path)
    # A system without these files tells its size at most.
    assert free.free_bytes(CPU) > 0
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:  5000 kB\nHugePages_Total:  0\n", encoding="ascii")
    assert free.free_bytes(CPU) == 5000 * 1024
    # Limits of the groups around the process count, the tightest of them, and cached files give way.
    own.write_text("0::/jobs/mine\n", encoding="ascii")
    for group, limit in (("jobs", "4000000"), ("jobs/mine", "max")):
        (groups / group).mkdir(parents=True)
        (groups / group / "memory.max").write_text(f"{limit}\n", encoding="ascii")
        (groups / group / "memory.current").write_text("3000000\n", encoding="ascii")
        (groups / group / "memory.stat").write_text("anon 100\ninactive_file 500000\n", encoding="ascii")
    assert free.free_bytes(CPU) == 1_500_000
    own.write_text("12:memory:/other\n", encoding="ascii")
    assert free.free_bytes(CPU) == 5000 * 1024
