"""Calibration of firing rates under its public name; see `snnlib.learning.calibration`."""

from snnlib.learning.calibration import *  # noqa: F403
