"""`prepare_` and its parts: initialises a new net by one batch of its data."""

from snnlib.learning.preparing.prepare import prepare_

__all__ = ["prepare_"]
