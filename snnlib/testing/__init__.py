"""Regression tests of spike trains; `pytest` finds the fixture `spike_regression` by itself, see docs/testing.md."""

from snnlib.testing.golden import GoldenError, read_potentials, read_spikes
from snnlib.testing.regression import SpikeRegression

__all__ = ["GoldenError", "SpikeRegression", "read_potentials", "read_spikes"]
