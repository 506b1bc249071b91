"""The tests of an installation: it loads its kernels, equals the reference, learns, and keeps what it learned.

`gradients.json` holds a line per neuron and option: the model, its options, the size of the currents, and what
`gradients` gave; `tests/stored/make_gradients.py` of a checkout writes it.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate

STORED = json.loads((Path(__file__).parent / "gradients.json").read_text())


def events(*shape: int) -> Tensor:
    """Spikes `[T, N, ...]`, a tenth of the cells, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(*shape, generator=generator) < 0.1).float()


def lif() -> neurons.Neuron:
    """A neuron with a compact surrogate gradient."""
    return neurons.LIF(surrogate=surrogate.Triangle())


def srm_net() -> nn.Module:
    """Event-driven gradients."""
    return nn.Sequential(snnlib.SRMConv2d(2, 4, 3), snnlib.SpikeAvgPool2d(2), snnlib.SRMReadout(4 * 3 * 3, 3))


def lif_net() -> nn.Module:
    """Surrogate gradients."""
    return nn.Sequential(
        snnlib.SpikingConv2d(2, 4, 3, neuron=lif()),
        snnlib.AvgPool2d(2),
        snnlib.SpikingLinear(4 * 3 * 3, 3, neuron=lif()),
    )


def test_versions_agree() -> None:
    """The package is the one that was installed."""
    assert importlib.metadata.version("snnlib") == snnlib.__version__


def test_the_compiled_kernels_run() -> None:
    """Wheels have a compiled module, and it loads."""
    with snnlib.use_path("native"):
        assert snnlib.functional.srm_neuron(torch.full((4, 1, 1), 2.0)).flatten().tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("make", [srm_net, lif_net])
def test_kernels_give_the_bits_of_the_reference(make: Callable[[], nn.Module]) -> None:
    """Forward; event-driven sums have one order, so equal spikes are demanded."""
    torch.manual_seed(0)
    net, x = make(), events(12, 3, 2, 8, 8)
    snnlib.prepare_(net, x)
    with snnlib.use_convolution("events"):
        native = net(x)
        with snnlib.use_path("reference"):
            torch.testing.assert_close(net(x), native, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [srm_net, lif_net])
def test_a_net_learns(make: Callable[[], nn.Module]) -> None:
    """A few steps lower the loss."""
    torch.manual_seed(0)
    net, x, labels = make(), events(12, 6, 2, 8, 8), torch.arange(6) % 3
    report = snnlib.prepare_(net, x)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        # Spikes of one net, potentials of the other.
        loss = nn.functional.cross_entropy(report.logit_scale * net(x).sum(0), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", sorted(neurons.MODELS))
def test_every_neuron_runs_in_chunks(name: str) -> None:
    """A sequence in two chunks is the whole sequence."""
    neuron, x = neurons.MODELS[name](), 2 * events(10, 2, 4)
    whole = neuron(x)
    first, state = neuron.run(x[:4])
    second, _ = neuron.run(x[4:], state)
    assert torch.equal(torch.cat((first, second)), whole)


def gradients(run: Callable[..., neurons.Output], neuron: neurons.Neuron, size: float) -> tuple[Tensor, ...]:
    """Gradients of the currents `[10, 2, 3]` and of each constant, for a loss that weighs no two spikes alike."""
    # Whole numbers of either sign and zeros in turn: membranes come to lie on thresholds and floors.
    x = (size * (torch.arange(60.0, dtype=torch.float64) * 7 % 5 - 1)).reshape(10, 2, 3).requires_grad_()
    loss = (run(x).value * torch.linspace(1, 2, 60).reshape(10, 2, 3)).sum()
    return torch.autograd.grad(loss, [x, *neuron.parameters()], allow_unused=True, materialize_grads=True)


def weighed(found: tuple[Tensor, ...]) -> list[float]:
    """A number for each gradient, in which no element counts as another."""
    return [float((part.flatten() * torch.linspace(1, 2, part.numel())).sum()) for part in found]


@pytest.mark.parametrize("line", STORED, ids=lambda line: f"{line[0]} {line[1]}")
def test_gradients(line: list[Any]) -> None:
    """Gradients of every neuron and option equal those of `step`, and the stored ones."""
    name, options, size, stored = line
    neuron = neurons.MODELS[name](**options)
    found = gradients(neuron.run, neuron, size)
    torch.testing.assert_close(found, gradients(neuron.reference, neuron, size), rtol=1e-5, atol=1e-6)
    assert weighed(found) == pytest.approx(stored, rel=1e-5, abs=1e-5)


def test_what_was_learned_is_kept() -> None:
    """A `state_dict` goes through a file."""
    net, x, file = srm_net(), events(12, 3, 2, 8, 8), io.BytesIO()
    snnlib.prepare_(net, x)
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = srm_net()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(net(x), other(x))


def test_doctor_says_where_ops_run() -> None:
    """The command's first aid works without any extra."""
    assert "native" in snnlib.backends.native.explain_path("cpu")
