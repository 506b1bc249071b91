"""The margin loss: values, gradient, weights and what is refused."""

import pytest
import torch

from snnlib.losses import spike_margin_loss

COUNTS, LABELS = torch.tensor([[5.0, 4.0, 1.0], [0.0, 1.0, 6.0]]), torch.tensor([0, 2])


def test_values_and_gradient() -> None:
    counts = COUNTS.double().requires_grad_()
    loss = spike_margin_loss(counts, LABELS, reduction="none")
    assert loss.tolist() == [2.0, 0.0]
    loss.sum().backward()
    assert counts.grad is not None
    assert counts.grad.tolist() == [[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_weights_and_half_precision() -> None:
    weight = torch.tensor([3.0, 1.0])
    assert spike_margin_loss(COUNTS, LABELS, sample_weight=weight).item() == 1.5
    assert spike_margin_loss(COUNTS.bfloat16(), LABELS).dtype == torch.float32


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"^margin: expected a finite number > 0, got 0$"):
        spike_margin_loss(COUNTS, LABELS, margin=0)
