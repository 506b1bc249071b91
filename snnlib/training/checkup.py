"""A line on the terminal for whatever the doctor finds in an epoch of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from snnlib.spike_doctor import SpikeDoctor


class Checkup(pl.Callback):
    """Watches the net in training passes, from the start of each epoch to its test.

    Args:
        net: the net, with SRM layers.
        show: called with a line of text per finding.
    """

    def __init__(self, net: nn.Module, show: Callable[[str], None]) -> None:
        self.doctor, self.show = SpikeDoctor(net), show

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start to watch."""
        self.doctor.reset()
        self.doctor.attach()

    def on_validation_start(self, *_: Any) -> None:
        """The test is not watched."""
        self.doctor.detach()

    @rank_zero_only
    def on_train_epoch_end(self, *_: Any) -> None:
        """Say what was found."""
        for finding in self.doctor.findings():
            self.show(f"  {finding}")
