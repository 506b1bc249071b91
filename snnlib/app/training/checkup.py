"""A line on the terminal for whatever the doctor finds in an epoch of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from snnlib.inspect.activity import spiking_modules
from snnlib.learning.health import SpikeDoctor


class Checkup(pl.Callback):
    """Watches the net in training passes, from the start of each epoch to its test.

    Args:
        net: the net; one without neurons that fire, such as a single readout, is not watched.
        show: called with a line of text per finding.
    """

    def __init__(self, net: nn.Module, show: Callable[[str], None]) -> None:
        watched = bool(spiking_modules(net))
        self.doctor, self.show = SpikeDoctor(net) if watched else None, show

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start to watch."""
        if self.doctor is not None:
            self.doctor.reset()
            self.doctor.attach()

    def on_validation_start(self, *_: Any) -> None:
        """The test is not watched."""
        if self.doctor is not None:
            self.doctor.detach()

    @rank_zero_only
    def on_train_epoch_end(self, *_: Any) -> None:
        """Say what was found."""
        for finding in [] if self.doctor is None else self.doctor.findings():
            self.show(f"  {finding}")
