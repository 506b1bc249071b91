"""Warnings at the line of the caller."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside torch and this library that made the call."""
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("snnlib", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
