"""`tet_loss` where there are as many steps as samples: axes that are exchanged are told by the values."""

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.learning.losses import tet

SIZE = 12


@pytest.fixture(autouse=True)
def _looks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tet, "_looks", iter(range(10)))


def _per_step_integrator() -> nn.Module:
    return nn.Sequential(snnlib.PerStep(nn.Linear(40, 4)), snnlib.neurons.Integrator(4.0))


READOUTS: dict[str, Callable[[], nn.Module]] = {
    "SRMReadout": lambda: snnlib.SRMReadout(40, 4, tau_m=8.0, tau_s=4.0),
    "Integrator": _per_step_integrator,
    "integrating layer": lambda: snnlib.SpikingLinear(40, 4, neuron=snnlib.neurons.Integrator(6.0)),
}


def _potentials(name: str, seed: int, order: str = "random") -> tuple[Tensor, Tensor]:
    """Potentials `[T, N, classes]` with T = N, and labels: a quarter of the inputs fires for each class."""
    torch.manual_seed(seed)
    labels = torch.randint(4, (SIZE,))
    labels = labels.sort().values if order == "sorted" else labels
    fires = nn.functional.one_hot(labels, 4).repeat_interleave(10, 1)
    x = (torch.rand(SIZE, SIZE, 40) < 0.05 + 0.3 * fires).float()
    return READOUTS[name]()(x), labels


def _said(potential: Tensor, labels: Tensor, **options: bool) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        snnlib.losses.tet_loss(potential, labels, **options)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", READOUTS)
def test_exchanged_axes_are_named_and_right_ones_are_not(name: str, seed: int) -> None:
    potential, labels = _potentials(name, seed)
    assert _said(potential, labels) == []
    (said,) = _said(potential.transpose(0, 1), labels)
    assert said.startswith(
        "potential: expected [T, N, classes], got a batch of shape (12, 12, 4) that looks like [N,"
    )
    assert "batch_first=True" in said
    # The advice, followed.
    assert _said(potential.transpose(0, 1), labels, batch_first=True) == []
    (said,) = _said(potential, labels, batch_first=True)
    assert "looks like [T, N, classes]" in said and "batch_first=False" in said


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", READOUTS)
def test_samples_sorted_by_class_are_not_steps(name: str, seed: int) -> None:
    assert _said(*_potentials(name, seed, "sorted")) == []


@pytest.mark.parametrize("seed", range(8))
def test_potentials_without_memory_tell_nothing(seed: int) -> None:
    torch.manual_seed(seed)
    assert _said(torch.randn(SIZE, SIZE, 4), torch.randint(4, (SIZE,))) == []
    assert _said((torch.rand(SIZE, SIZE, 4) < 0.3).float(), torch.randint(4, (SIZE,))) == []
    assert _said(torch.zeros(SIZE, SIZE, 4), torch.randint(4, (SIZE,))) == []


def test_only_the_first_batches_are_looked_at() -> None:
    potential, labels = _potentials("SRMReadout", 0)
    for _ in range(10):
        _said(potential, labels)
    assert _said(potential.transpose(0, 1), labels) == []
    assert list(itertools.islice(tet._looks, 1)) == []
