"""The count loss: definition, gradients, checks, and training in the right direction through a spiking layer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snnlib.learning.losses import spike_count_loss

COUNTS = torch.tensor([[12.0, 2.0, 5.0], [0.0, 1.0, 20.0]])
LABELS = torch.tensor([0, 2])


def test_vector() -> None:
    # Differences: -3, 0, 3 and -2, -1, 5.
    options = {"desired": 15, "undesired": 2}
    assert spike_count_loss(COUNTS, LABELS, **options, reduction="none").tolist() == [9.0, 15.0]
    assert spike_count_loss(COUNTS, LABELS, **options, reduction="sum").item() == 24
    assert spike_count_loss(COUNTS, LABELS, **options).item() == 12
    # One-sided: 12 of 15 and 5 of 2 cost, 0 and 1 of 2 and 20 of 15 do not.
    one_sided = spike_count_loss(COUNTS, LABELS, **options, one_sided=True, reduction="none")
    assert one_sided.tolist() == [9.0, 0.0]


@given(st.integers(0, 4), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_definition_and_gradient(samples: int, classes: int, seed: int, one_sided: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 31, (samples, classes), generator=generator).double().requires_grad_()
    target = torch.randint(0, classes, (samples,), generator=generator)
    excess = torch.zeros(samples, classes, dtype=torch.float64)
    for sample in range(samples):
        for label in range(classes):
            right = label == target[sample]
            difference = counts[sample, label].item() - (10.3 if right else 2.7)
            idle = difference > 0 if right else difference < 0
            excess[sample, label] = 0 if one_sided and idle else difference
    loss = spike_count_loss(counts, target, desired=10.3, undesired=2.7, one_sided=one_sided, reduction="sum")
    assert loss.item() == pytest.approx(0.5 * excess.square().sum().item())
    loss.backward()
    torch.testing.assert_close(counts.grad, excess)
    mean = spike_count_loss(counts, target, desired=10.3, undesired=2.7, one_sided=one_sided)
    # An empty batch has loss 0, not NaN.
    assert mean.item() == pytest.approx(loss.item() / max(samples, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_squared_in_float32(dtype: torch.dtype) -> None:
    counts = torch.full((1, 2), 512, dtype=dtype, requires_grad=True)
    loss = spike_count_loss(counts, torch.tensor([0]), desired=10, undesired=0)
    # 502^2 / 2 + 512^2 / 2 has no float16.
    assert loss.item() == (502**2 + 512**2) / 2
    assert loss.dtype == torch.float32
    loss.backward()
    assert counts.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_of_any_integer_dtype(dtype: torch.dtype) -> None:
    assert spike_count_loss(COUNTS, LABELS.to(dtype), desired=15, undesired=2).item() == 12


def test_other_errors_name_the_argument() -> None:
    wanted = {"desired": 15.0, "undesired": 2.0}
    with pytest.raises(ValueError, match=r"undesired: expected a count >= 0, got -1"):
        spike_count_loss(COUNTS, LABELS, desired=15, undesired=-1)
    for desired in (2.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"desired: expected a count > undesired = 2.0, got"):
            spike_count_loss(COUNTS, LABELS, desired=desired, undesired=2.0)
    with pytest.raises(ValueError, match=r"target: expected a tensor on cpu, got one on meta"):
        spike_count_loss(COUNTS, LABELS.to("meta"), **wanted)


def test_wanted_counts_per_class() -> None:
    desired, undesired = torch.tensor([10.0, 5.0, 20.0]), torch.tensor([0.0, 2.0, 4.0])
    loss = spike_count_loss(COUNTS, LABELS, desired=desired, undesired=undesired, reduction="none")
    # (12 - 10, 2 - 2, 5 - 4) and (0 - 0, 1 - 2, 20 - 20).
    assert loss.tolist() == [2.5, 0.5]
    loss = spike_count_loss(COUNTS, LABELS, desired=desired, undesired=0.0, reduction="none")
    assert loss.tolist() == [(4 + 4 + 25) / 2, 0.5]
    with pytest.raises(
        ValueError, match=r"undesired: expected a number or shape \(3,\), one count per class"
    ):
        spike_count_loss(COUNTS, LABELS, desired=15, undesired=undesired[:2])
    with pytest.raises(ValueError, match=r"desired: expected a count > undesired = \[0.0, 2.0, 4.0\], got 4"):
        spike_count_loss(COUNTS, LABELS, desired=4, undesired=undesired)
    with pytest.raises(ValueError, match=r"undesired: expected a count >= 0, got \[-5.0, -3.0, -1.0\]"):
        spike_count_loss(COUNTS, LABELS, desired=desired, undesired=undesired - 5)
    with pytest.raises(ValueError, match=r"desired: expected a tensor on cpu, got one on meta"):
        spike_count_loss(COUNTS, LABELS, desired=desired.to("meta"), undesired=0)


def test_labels_of_many_classes_in_small_integers() -> None:
    """256 as uint8 would be 0."""
    counts = torch.zeros(2, 300)
    target = torch.tensor([3, 250], dtype=torch.uint8)
    assert spike_count_loss(counts, target, desired=1, undesired=0).item() == 0.5
