"""Calibration of firing rates under its public name; see `snnlib.learning.preparing.calibration`."""

from snnlib.learning.preparing.calibration import *  # noqa: F403
