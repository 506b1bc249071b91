"""Lines on the terminal: at once for a layer that warns in training, after an epoch for what else the doctor finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from snnlib.learning.health import SpikeDoctor
from snnlib.neurons import training_words as words
from snnlib.structure.layers import spiking_modules

# Advice of the library as options of the command, which has called `prepare_`.
_OPTIONS = {
    words.ANEW: "only homeostasis mends that: train again with --weight-scheme standardized, a lower --lr or "
    "--clip-norm 1",
    words.SCALED: "train again with the default of --logit-scale, or a lower --lr",
    words.GRADED: "graded neurons learn behind batch norm: train again with --batch-norm",
}


class Checkup(pl.Callback):
    """Watches the net in training passes, from the start of each epoch to its test.

    Args:
        net: the net; one without neurons that fire, such as a single readout, is not watched.
        show: called with a line of text per warning of a layer and per finding.

    Attributes:
        warned: how many warnings each layer gave in this epoch, by its name.
    """

    def __init__(self, net: nn.Module, show: Callable[[str], None]) -> None:
        self._layers: dict[str, Any] = dict(spiking_modules(net))
        self.doctor, self.show = SpikeDoctor(net) if self._layers else None, show
        # Advice that was shown: names of layers, and kinds of what is wrong with them.
        self._shown: set[tuple[str, str]] = set()
        self.warned = dict.fromkeys(self._layers, 0)
        self._counted = dict(self.warned)

    def on_train_start(self, *_: Any) -> None:
        """Ask the layers to leave their warnings to this object."""
        for layer in self._layers.values():
            layer.training_watch.warns = False

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start to watch."""
        self.warned = dict.fromkeys(self._layers, 0)
        if self.doctor is not None:
            self.doctor.reset()
            self.doctor.attach()

    @rank_zero_only
    def on_train_batch_end(self, *_: Any) -> None:
        """Show warnings that are new."""
        for name, layer in self._layers.items():
            said = layer.training_watch.said
            self.warned[name] += len(said) - self._counted[name]
            self._counted[name] = len(said)
            for kind, text in said.items():
                self._show(name, kind, text)

    def on_validation_start(self, *_: Any) -> None:
        """The test is not watched."""
        if self.doctor is not None:
            self.doctor.detach()

    @rank_zero_only
    def on_train_epoch_end(self, *_: Any) -> None:
        """Say, once in a run, what was found in layers that have not warned by themselves."""
        for (name, kind), text in {} if self.doctor is None else self.doctor.found().items():
            watch = self._layers[name].training_watch if name else None
            # Homeostasis wakes channels; layers whose channels stay silent warn by themselves.
            if watch is None or not (watch.said or (watch.wakes and kind in ("dead", "samples"))):
                self._show(name, kind, text)

    def _show(self, name: str, kind: str, text: str) -> None:
        if (name, kind) not in self._shown:
            self._shown.add((name, kind))
            for said, options in _OPTIONS.items():
                text = text.replace(said, options)
            self.show(f"  {text}")
