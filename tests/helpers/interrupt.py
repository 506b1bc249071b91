"""Interrupt a training run as Ctrl-C does."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from snnlib.app.training.classifier import SpikingClassifier


@contextmanager
def interrupted(epoch: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run that is started in the block stops where this epoch, counted from 0, begins."""
    start_of_epoch = SpikingClassifier.on_train_epoch_start

    def stop(module: SpikingClassifier) -> None:
        if module.current_epoch == epoch:
            raise KeyboardInterrupt
        start_of_epoch(module)

    with monkeypatch.context() as patch:
        patch.setattr(SpikingClassifier, "on_train_epoch_start", stop)
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            yield
        # Lightning ignores further interrupts from then on.
        signal.signal(signal.SIGINT, handler)
