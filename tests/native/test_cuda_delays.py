"""Kernels of delays per channel, run as loops on the CPU, give the bits of the CPU's: any length, layout and delay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_same_bits
from opdb import DTYPES
from torch import Tensor

import snnlib
from snnlib import ops

# Threads run in either order.
pytestmark = pytest.mark.parametrize("emulated", [False, True], ids=["forwards", "backwards"], indirect=True)
# A warp adds up the events of 32 steps and cells of a channel; a block has eight channels, here more and fewer.
SHAPES = {
    "flat": (2, 5),
    "frames": (1, 5, 2, 3),
    "packs": (1, 5, 2, 4),
    "channels-last": (1, 5, 3, 2),
    "no cells": (2, 3, 0),
}


def _sequence(steps: int, name: str, time_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Events that are not all 1, and a signal without zeros, of one layout."""
    generator = torch.Generator().manual_seed(steps)
    batch, *rest = SHAPES[name]
    shape = (batch, steps, *rest) if time_dim else (steps, batch, *rest)
    amounts = torch.randn(shape, generator=generator)
    x, grad = (
        amounts * (torch.rand(shape, generator=generator) < 0.2),
        torch.randn(shape, generator=generator),
    )
    if name == "channels-last":
        x, grad = (part.movedim(2, -1).contiguous().movedim(-1, 2) for part in (x, grad))
    return x.to(dtype), grad.to(dtype)


def _delays(name: str, steps: int, dtype: torch.dtype) -> Tensor:
    """No delay, parts of a step, just within the sequence, its length and beyond, further than an index reaches."""
    values = torch.tensor([0.0, 0.3, steps - 0.6, float(steps), 1e6])
    return values[: SHAPES[name][1]].clamp(min=0).to(torch.promote_types(dtype, torch.float32))


def _run(x: Tensor, grad: Tensor, delay: Tensor, rounded: bool, time_dim: int) -> list[Tensor]:
    x, grad = x.transpose(0, time_dim), grad.transpose(0, time_dim)
    out = ops.delay.delay_forward(x, delay, rounded)
    return [out, *ops.delay.delay_backward(grad, x, delay, rounded, True, True)]


@pytest.mark.parametrize("rounded", [False, True], ids=["between", "rounded"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_any_number_of_steps(
    name: str, dtype: torch.dtype, rounded: bool, emulated: Callable[..., Any]
) -> None:
    for time_dim in (0, 1):
        for steps in ((1, 48), (2, 49))[time_dim]:
            x, grad = _sequence(steps, name, time_dim, dtype)
            arguments = (x, grad, _delays(name, steps, dtype), rounded, time_dim)
            expected = _run(*arguments)
            found = emulated(_run, *arguments)
            assert not x.numel() or steps < 48 or all(bool(out.any()) for out in expected)
            assert_same_bits(found, expected, f"{steps} steps", strides=True)


def test_addresses_that_are_no_whole_packs(emulated: Callable[..., Any]) -> None:
    x, grad = _sequence(9, "packs", 0, torch.float32)
    shifted = torch.cat((torch.zeros(1), x.flatten()))[1:].reshape(x.shape)
    assert shifted.data_ptr() % 16
    arguments = (grad, _delays("packs", 9, torch.float32), False, 0)
    assert_same_bits(emulated(_run, shifted, *arguments), _run(x, *arguments))


def test_numbers_that_are_none(emulated: Callable[..., Any]) -> None:
    """An infinite event or signal meets the taps that it meets on the CPU, where one of 0 is left out."""
    x, grad = _sequence(20, "flat", 0, torch.float32)
    x[3, 0, 0], x[4, 1, 1], x[5, 1, 0] = torch.inf, torch.nan, -0.0
    grad[6, 0, 1], grad[7, 1, 0] = torch.nan, -torch.inf
    arguments = (x, grad, torch.tensor([2.0, 0.3, 5.5, 0.0, 1.0]), False, 0)
    assert_same_bits(emulated(_run, *arguments), _run(*arguments))


def test_chunks_of_a_layer(emulated: Callable[..., Any]) -> None:
    """The past that a delayed layer hands on: in chunks it has the bits of the whole sequence and of the CPU."""
    torch.manual_seed(1)
    delays = snnlib.Delays(6, per="channel")
    layer = snnlib.SpikingConv2d(3, 4, 3, neuron=snnlib.neurons.LIF(), delays=delays)
    x = (torch.rand(23, 2, 3, 5, 5) < 0.4).float()

    def chunks() -> list[Tensor]:
        values, state = [], None
        for part in x.split((1, 4, 11, 7)):
            value, state = layer.run(part, state)
            values.append(value)
        return [layer(x).detach(), torch.cat(values).detach()]

    with snnlib.use_path("auto"):
        expected = chunks()
        found = emulated(chunks)
    assert expected[0].any()
    for out in found:
        assert_bits(out, expected[0])
