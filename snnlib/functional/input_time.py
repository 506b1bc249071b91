"""Gradients of input events by time, for `spiking.py`; see `snnlib.sequences.input_time`."""

from snnlib.sequences.input_time import by_time

__all__ = ["by_time"]
