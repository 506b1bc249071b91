"""Neurons of one state and their average pool in one kernel of a CPU: the bits of scan and pool apart."""

import math
from typing import Any

import op_calls
import pytest
import torch
from compare import assert_bits
from torch import Tensor

from snnlib import neurons, surrogate
from snnlib.backends import native
from snnlib.functional.normalized import after_affine
from snnlib.functional.pool import nonoverlapping_avg_pool2d
from snnlib.ops import scan, scan_pool

pytestmark = pytest.mark.usefixtures("isas")

# name: [T, N, C, H, W]; steps in and beyond groups of five, blocks of some windows and of some channels.
SHAPES = {
    "one window": (1, 1, 16, 2, 2),
    "samples": (7, 3, 32, 4, 6),
    "whole blocks": (12, 2, 128, 8, 8),
    "many channels": (5, 2, 1040, 2, 4),
    "long": (300, 1, 512, 2, 2),
    "no step": (0, 2, 16, 2, 2),
    "no sample": (3, 0, 16, 4, 4),
}
NEURONS = {
    "LIF": lambda: neurons.LIF(3.0, surrogate=surrogate.Triangle()),
    "LIF, subtracts, attached": lambda: neurons.LIF(3.0, reset="subtract", detach_reset=False),
    "IF": neurons.IF,
    "KLIF": neurons.KLIF,
}


def _channels_last(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.empty_permuted(shape, (0, 1, 3, 4, 2)).normal_(std=1.5, generator=generator)


@pytest.mark.parametrize("time_dim", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_are_those_of_scan_and_pool(shape: str, neuron: str, per_channel: bool, time_dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    steps, batch, channels, height, width = SHAPES[shape]
    leading = (batch, steps) if time_dim else (steps, batch)
    current = _channels_last(*leading, channels, height, width, generator=generator)
    module = NEURONS[neuron]()
    dynamics = module.dynamics(module.constants())
    assert dynamics is not None
    if per_channel:
        scale, shift = torch.randn(2, channels, dtype=torch.float64, generator=generator)
        dynamics = after_affine(dynamics, scale, shift)
    kernel = dynamics.kernel(current.dtype, current.device)
    assert scan_pool.can_fuse(current, kernel, (2, 2)) == bool(current.numel())
    coefficients = kernel.constants.detach()
    state = torch.randn(1, batch, channels, height, width, generator=generator) if per_channel else None
    call = (current, coefficients, state, kernel.flags, time_dim)
    _compare(call, (2, 2), per_channel, generator)


@pytest.mark.parametrize("neuron", ["LIF", "KLIF"])
@pytest.mark.parametrize("window", [(3, 3), (4, 4), (1, 3), (5, 1), (2, 4), (8, 8)])
def test_windows_of_any_size(window: tuple[int, int], neuron: str) -> None:
    """Samples of windows of 9, 3 and 5 cells, by which a division rounds."""
    generator = torch.Generator().manual_seed(0)
    high, wide = window
    current = _channels_last(11, 2, 48, 2 * high, 3 * wide, generator=generator)
    module = NEURONS[neuron]()
    kernel = module.kernel(current)
    assert kernel is not None and scan_pool.can_fuse(current, kernel, window)
    assert not scan_pool.can_fuse(current, kernel, (2 * high + 1, wide))
    assert scan_pool.can_fuse(current, kernel, (2 * high, 3 * wide)) == (
        6 * high * wide <= scan_pool.MOST_CELLS
    )
    state = torch.randn(1, 2, 48, 2 * high, 3 * wide, generator=generator)
    coefficients = kernel.constants.detach()
    _compare((current, coefficients, state, kernel.flags, 0), window, True, generator)


def _compare(
    call: tuple[Any, ...], window: tuple[int, int], with_state: bool, generator: torch.Generator
) -> None:
    spikes, last = op_calls.scan_forward(*call)
    expected = nonoverlapping_avg_pool2d(spikes, window)
    grad_value = torch.randn(expected.shape, generator=generator)
    grad_state = torch.randn(last.shape, generator=generator) if with_state else None
    shares = (grad_value / math.prod(window)).repeat_interleave(window[0], 3).repeat_interleave(window[1], 4)
    grad, _, start = op_calls.scan_backward(shares, grad_state, *call, False)
    for isa in native._module.available_isas():
        native._module.select_isa(isa)
        for threads in (1, 3):
            torch.set_num_threads(threads)
            value, final = op_calls.scan_pool_forward(*call, *window)
            assert_bits(value, expected, "means")
            assert_bits(final, last, "state")
            found, before = op_calls.scan_pool_backward(grad_value, grad_state, *call, *window)
            assert_bits(found, grad, "dL/dcurrent")
            assert_bits(before, start, "dL/dstate")


@pytest.mark.parametrize("what", ["contiguous", "other channels", "odd size", "float64", "two states"])
def test_other_currents_go_through_scan_and_pool(what: str) -> None:
    generator = torch.Generator().manual_seed(0)
    size = 3 if what == "odd size" else 4
    current = _channels_last(4, 2, 12 if what == "other channels" else 16, size, 4, generator=generator)
    if what == "contiguous":
        current = current.contiguous()
    if what == "float64":
        current = current.double()
    module = neurons.CubaLIF() if what == "two states" else neurons.LIF()
    kernel = module.kernel(current)
    assert kernel is not None and not scan_pool.can_fuse(current, kernel, (2, 2))
    if what not in ("odd size", "two states"):
        value, _ = scan.run(current, kernel, (2, 2))
        expected = nonoverlapping_avg_pool2d(scan.run(current, kernel)[0], (2, 2))
        assert_bits(value, expected)
