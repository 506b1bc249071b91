"""Exponential integrate-and-fire neurons against their equation, one number after another."""

import math

import pytest
import torch

from snnlib.neurons import EIF


def test_equals_its_equation() -> None:
    x = 2 * torch.rand(40, 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v, expected = 0.0, []
    for current in x.flatten().tolist():
        h = v + (-v + 0.2 * math.exp((v - 0.8) / 0.2) + current) / 2.0
        expected.append(float(h >= 1))
        v = 0.0 if h >= 1 else h
    assert 0 < sum(expected) < 40
    assert EIF()(x).flatten().tolist() == expected


def test_subtracting_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^reset: expected one of zero, got 'subtract'"):
        EIF(reset="subtract")
