"""`tet_loss` where there are as many steps as samples: axes that are exchanged are told by the values."""

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.learning.losses import _common, tet

SIZE = 12


@pytest.fixture(autouse=True)
def _looks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tet, "_looks", iter(range(10)))
    monkeypatch.setattr(_common, "_looks", iter(range(10)))


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


def test_labels_beside_samples_in_the_place_of_steps_are_an_error() -> None:
    potential, labels = torch.rand(5, 7, 4), torch.zeros(5, dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"^potential: expected a dimension N of 5 labels, .* give batch_first=True$"
    ):
        snnlib.losses.tet_loss(potential, labels)
    snnlib.losses.tet_loss(potential, labels, batch_first=True)
    with pytest.raises(ValueError, match=r"give batch_first=False$"):
        snnlib.losses.tet_loss(potential.transpose(0, 1), labels, batch_first=True)


LABELS = torch.tensor([0, 1, 2, 0, 1])
# Scores of each loss that takes a softmax, from values [T, N, classes].
SOFTMAX_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "tet_loss": lambda scores: snnlib.losses.tet_loss(scores, LABELS),
    "count_cross_entropy": lambda scores: snnlib.losses.count_cross_entropy(scores[0], LABELS),
    "count_cross_entropy_plus": lambda scores: snnlib.losses.count_cross_entropy_plus(scores[0], LABELS),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("loss", SOFTMAX_LOSSES)
def test_a_softmax_before_the_loss_is_named(loss: str, dtype: torch.dtype) -> None:
    scores = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    with pytest.warns(
        UserWarning, match=r": expected scores, .* got probabilities that add up to 1; leave"
    ) as said:
        SOFTMAX_LOSSES[loss](scores.softmax(2))
    assert said[0].filename == __file__


@pytest.mark.parametrize("loss", SOFTMAX_LOSSES)
@pytest.mark.parametrize(
    "scores",
    [
        torch.zeros(6, 5, 3),
        nn.functional.one_hot(LABELS, 3).float().expand(6, 5, 3),
        torch.rand(6, 5, 3, generator=torch.Generator().manual_seed(0)),
        torch.full((6, 5, 3), 0.5),
    ],
    ids=["silent", "one spike", "random", "rates"],
)
def test_scores_that_no_softmax_gave_are_quiet(loss: str, scores: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SOFTMAX_LOSSES[loss](scores)
