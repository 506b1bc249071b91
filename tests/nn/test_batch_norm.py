"""Batch norm over sequences: torch's own over folded frames, statistics of single steps, scale; its kernels."""

from typing import Any

import pytest
import torch
from compare import assert_gradient
from torch import Tensor, nn

import snnlib
from snnlib import ops
from snnlib.backends import reference


def _sequence(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 0.5


def _learn(norm: nn.Module) -> nn.Module:
    """Weight and bias that are not those of the start."""
    generator = torch.Generator().manual_seed(2)
    for parameter in norm.parameters():
        parameter.data.uniform_(0.5, 1.5, generator=generator)
    return norm


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (snnlib.BatchNorm1d, nn.BatchNorm1d, (4, 3, 5)),
        (snnlib.BatchNorm1d, nn.BatchNorm1d, (4, 3, 5, 6)),
        (snnlib.BatchNorm2d, nn.BatchNorm2d, (4, 3, 5, 2, 3)),
        (snnlib.BatchNorm3d, nn.BatchNorm3d, (4, 3, 5, 2, 3, 2)),
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}]
)
def test_shared_statistics_are_torchs_over_folded_frames(
    ours: Any, theirs: Any, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    # Frames lie in memory in another order, and so does the order of torch's sums.
    rounded = {"rtol": 1e-6, "atol": 1e-6}
    norm, frames = _learn(ours(5, **options)), _learn(theirs(5, **options))
    assert list(norm.state_dict()) == list(frames.state_dict())
    for seed in (1, 2):
        x = _sequence(*shape, seed=seed)
        torch.testing.assert_close(norm(x), frames(x.flatten(0, 1)).view(shape), **rounded)
    for a, b in zip(norm.buffers(), frames.buffers(), strict=True):
        torch.testing.assert_close(a, b, **rounded)
    torch.testing.assert_close(norm.eval()(x), frames.eval()(x.flatten(0, 1)).view(shape), **rounded)


@pytest.mark.parametrize("batch_first", [False, True])
def test_statistics_of_every_step(batch_first: bool) -> None:
    norm = _learn(snnlib.BatchNorm2d(5, time_steps=4, batch_first=batch_first))
    x = _sequence(4, 3, 5, 2, 3)
    out = norm(x.transpose(0, 1) if batch_first else x)
    out = out.transpose(0, 1) if batch_first else out
    for step in range(4):
        channels = slice(5 * step, 5 * (step + 1))
        expected = torch.nn.functional.batch_norm(
            x[step], None, None, norm.weight[channels], norm.bias[channels], training=True
        )
        torch.testing.assert_close(out[step], expected)
        torch.testing.assert_close(norm.running_mean[channels], 0.1 * x[step].mean((0, 2, 3)))


@pytest.mark.parametrize("affine", [True, False])
def test_scale_to_the_threshold(affine: bool) -> None:
    plain = _learn(snnlib.BatchNorm2d(5, affine=affine))
    scaled = _learn(snnlib.BatchNorm2d(5, affine=affine, threshold=0.5, alpha=0.5))
    x = _sequence(4, 3, 5, 2, 3)
    bias = plain.bias.view(-1, 1, 1) if affine else 0
    torch.testing.assert_close(scaled(x) - bias, (plain(x) - bias) / 4)


def test_errors_and_repr() -> None:
    norm = snnlib.BatchNorm2d(5, time_steps=4, threshold=2.0, alpha=0.5)
    assert "5, eps=1e-05" in repr(norm)
    assert "time_steps=4, threshold=2.0, alpha=0.5" in repr(norm)
    with pytest.raises(ValueError, match=r"x: expected 4 time steps, .* got shape \(3, 2, 5, 2, 2\)"):
        norm(torch.zeros(3, 2, 5, 2, 2))
    with pytest.raises(
        ValueError, match=r"x: expected \[T, N, C, H, W\] with C = 5, got shape \(4, 2, 3, 2, 2\)"
    ):
        norm(torch.zeros(4, 2, 3, 2, 2))
    with pytest.raises(ValueError, match=r"x: expected \[N, T, C\] or \[N, T, C, L\] with C = 3"):
        snnlib.BatchNorm1d(3, batch_first=True)(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"threshold: expected a number > 0, got 0"):
        snnlib.BatchNorm2d(5, threshold=0)
    for options in ({}, {"affine": False}):
        with pytest.raises(TypeError, match=r"x: expected torch\.float32, the dtype of .*got torch\.float64"):
            snnlib.BatchNorm1d(3, **options)(torch.zeros(4, 2, 3).double())


@pytest.mark.parametrize("affine", [True, False])
def test_half_precision_currents_with_parameters_of_float32(affine: bool) -> None:
    norm = snnlib.BatchNorm1d(3, affine=affine, threshold=2.0)
    x = _sequence(4, 2, 3)
    expected = snnlib.BatchNorm1d(3, affine=affine, threshold=2.0)(x)
    out = norm(x.bfloat16())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("channels", [1, 3, 12, 64, 300, 5000])
def test_kernels_equal_the_reference(channels: int) -> None:
    """Far from zero, where a sum of squares would lose its digits."""
    x = _sequence(7, 3, 5, 4, channels).permute(0, 1, 4, 2, 3) * 0.1 + 100
    found, expected = ops.batch_norm.moments(x), reference.batch_norm.moments(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    grad = _sequence(7, 3, 5, 4, channels, seed=3).permute(0, 1, 4, 2, 3)
    ours, answer = grad.clone(), grad.double()
    sums = ops.batch_norm.backward_(ours, x, found, 1e-5)
    expected_sums = reference.batch_norm.backward_(answer, x.double(), found, 1e-5)
    assert_gradient(sums.float(), expected_sums.float(), 1e-5)
    assert_gradient(ours, answer.float(), 1e-5)
    assert not torch.equal(ours, grad)


def test_kernels_give_the_same_bits_on_any_number_of_threads() -> None:
    x = _sequence(9, 5, 16, 16, 12).permute(0, 1, 4, 2, 3)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        grad = x.clone()
        moments = ops.batch_norm.moments(x)
        results.append((moments, ops.batch_norm.backward_(grad, x, moments, 1e-5), grad))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
