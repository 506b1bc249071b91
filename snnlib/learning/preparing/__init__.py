"""A new net made ready to learn by one batch of its data: `prepare_` and what it is made of."""

from snnlib.learning.preparing.prepare import prepare_

__all__ = ["prepare_"]
