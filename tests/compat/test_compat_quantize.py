"""The published quantiser's names: worked numbers, and state that survives."""

import pytest
import torch

from snnlib import Quantizer, compat


def test_the_quantizer_is_the_librarys_own() -> None:
    assert compat.Quantizer is Quantizer


@pytest.mark.parametrize(
    ("bits", "values", "expected"),
    [
        (
            8,
            [-0.9, -0.3, -0.004, 0, 0.002, 0.0079, 0.5, 0.99],
            [n / 128 for n in (-115, -38, 0, 0, 0, 1, 64, 126)],
        ),
        (4, [-0.75, -0.2, 0.2, 0.6, 0.75], [-0.75, -0.125, 0.125, 0.5, 0.75]),
        (3, [-0.75, -0.2, 0.2, 0.6, 0.75], [-0.75, 0, 0, 0.5, 0.75]),
    ],
)
def test_vectors(bits: int, values: list[float], expected: list[float]) -> None:
    assert compat.Quantizer(bits, "cpu")(torch.tensor(values)).tolist() == expected


def test_clipped_straight_through_gradient() -> None:
    """At scale 128 the integers beyond 127 are clipped and get none."""
    quantizer = compat.Quantizer(8, "cpu")
    quantizer(torch.tensor([0.99]))
    x = (torch.tensor([12.8, 127.9, 128, -127.9, -129]) / 128).requires_grad_()
    quantizer.eval()(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 1, 0]


def test_range_only_grows_and_is_saved() -> None:
    update = compat.UpdateRange("cpu")
    assert update.flag == 0
    update(torch.tensor([1.0, 3.0]))
    assert (update.fmin.item(), update.fmax.item(), update.flag) == (1, 3, 1)
    update.Update(torch.tensor(-2.0), torch.tensor([0.5]))
    assert (update.fmin.item(), update.fmax.item()) == (-2, 3)
    loaded = compat.UpdateRange("cpu")
    loaded.load_state_dict(update.state_dict())
    assert (loaded.fmin.item(), loaded.fmax.item(), loaded.flag) == (-2, 3, 1)


def test_round_truncates_and_passes_gradients() -> None:
    x = torch.tensor([2.7, -2.7, 0.3], requires_grad=True)
    y = compat.Round.apply(x)
    assert y.tolist() == [2, -2, 0]
    y.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [1, 2, 3]
