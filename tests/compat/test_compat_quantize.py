"""The published quantiser's names: worked numbers, and state that survives."""

import torch

from snnlib import Quantizer, compat


def test_the_quantizer_is_the_librarys_own() -> None:
    assert compat.Quantizer is Quantizer


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
