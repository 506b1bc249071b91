"""Sound as a net hears it: the spikes of a cochlea in time steps."""

from __future__ import annotations

from torch import Tensor

from snnlib.data.channels import ToChannels
from snnlib.data.cochlea import Cochlea


class SoundToSpikes:
    """Sound `[samples]` to spikes `[T, channels]`; a class, so that processes that read data can be sent it.

    Args:
        cochlea: makes events of the sound.
        bins: makes time steps of the events.
    """

    def __init__(self, cochlea: Cochlea, bins: ToChannels) -> None:
        self.cochlea, self.bins = cochlea, bins

    def __call__(self, waveform: Tensor) -> Tensor:
        return self.bins(self.cochlea(waveform))
