"""Warnings of a cross-entropy that stays at that of guessing, and of training data sorted by class."""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor

from snnlib.checks import warn_caller
from snnlib.neurons.training_watch import cannot_watch

# Calls in a window, and windows in a row, of which every mean is at least this share of ln(classes): nets of six layers
# that learn are below it in the second (docs/measurements/first-loss.md).
_CALLS, _WINDOWS, _SHARE = 50, 2, 0.99
# Shares that say too slow, once each class has had so many samples. In batches of 4, nets above it end below 30 % of 10
# classes, and nets that learn are at 0.85 and less; in larger ones six SRM layers that end below 20 % are at 0.95, and
# nets that learn at 0.78 and less.
_SHARE_OF_FEW, _SAMPLES_OF_FEW = 0.92, 20
_SHARE_OF_MANY, _SAMPLES_OF_MANY = 0.94, 100
# Share of the mean of the window before: a loss that falls further learns, as with outputs that have to wake first.
_FALLING = 0.9
# Batches and samples in each from which on an order of labels is none of chance: 1e-6 for two classes in equal numbers.
_FIRST, _SAMPLES = 3, 10


class _Watch:
    """Sums the losses of one net on their device, and reads the sum after each window."""

    def __init__(self) -> None:
        self._leaf: weakref.ref[Tensor] | None = None
        self._begin()

    def _begin(self) -> None:
        self._calls = self._windows = 0
        self._sum: Tensor | float = 0.0
        self._mean = 0.0
        self._labels: list[Tensor] = []

    def see(self, losses: Tensor, classes: int, labels: Tensor) -> None:
        """Adds a training batch of cross-entropies and the labels `[N]` of its samples; warns once for each problem."""
        if not losses.requires_grad or not losses.numel() or classes < 2 or cannot_watch(losses):
            return
        leaf = _first_leaf(losses)
        if leaf is None:
            return
        if self._leaf is None or self._leaf() is not leaf:
            self._begin()
            self._leaf = weakref.ref(leaf)
        self._calls, self._sum = self._calls + 1, self._sum + losses.detach().mean()
        if self._calls <= _FIRST:
            self._labels.append(labels.detach())
        if self._calls == _FIRST:
            _warn_of_order(self._labels)
            self._labels = []
        if self._calls % _CALLS:
            return
        before, self._mean = self._mean, float(self._sum) / _CALLS
        mean, self._sum, guess = self._mean, 0.0, math.log(classes)
        # Labels by step are `[T, N]`.
        samples = labels.shape[-1]
        share = _slow_share(samples, self._calls * samples / classes)
        # A net that warned has passed this number for good.
        stays = mean >= max(share * guess, _FALLING * before)
        self._windows = self._windows + 1 if stays or self._windows >= _WINDOWS else 0
        if self._windows != _WINDOWS:
            return
        guesses = mean >= _SHARE * guess
        bound = f"ln({classes}) = {guess:.2f}, that of guessing,"
        advice = (
            "; begin anew with report = snnlib.prepare_(net, x), train at report.learning_rate, counts with "
            "scale=report.logit_scale; if that is done, lower the learning rate, take fewer layers or batch norm "
            "between them, and check the labels (docs/does-not-learn.md)"
        )
        if not guesses:
            bound = f"{share:g} ln({classes}) = {share * guess:.2f}"
        if not guesses and samples < _SAMPLES:
            advice = (
                f": batches of {samples} samples learn slowly; take batches of 25, or Adam at report.learning_rate of "
                "report = snnlib.prepare_(net, x) in place of SGD"
            )
        warn_caller(
            f"loss: expected less than {bound} after {self._calls} batches, got a mean of {mean:.2f} in the last "
            f"{_CALLS}{advice}"
        )


def _slow_share(samples: int, of_each_class: float) -> float:
    """Returns the share of ln(classes) above which a loss stays too high, for batches of `samples`."""
    if samples < _SAMPLES and of_each_class >= _SAMPLES_OF_FEW:
        return _SHARE_OF_FEW
    return _SHARE_OF_MANY if of_each_class >= _SAMPLES_OF_MANY else _SHARE


def _warn_of_order(batches: list[Tensor]) -> None:
    """Warns if every batch holds one class, or if labels ascend through all batches."""
    if min(map(len, batches)) < _SAMPLES:
        return
    single = all(bool((labels == labels[0]).all()) for labels in batches)
    if single or bool((torch.cat(batches).diff() >= 0).all()):
        found = "one class each" if single else "labels in ascending order"
        warn_caller(
            f"target: expected shuffled training data, got {found} in the first {_FIRST} batches, from which a net "
            "learns the last class alone; shuffle the data, as DataLoader(..., shuffle=True) does, and call "
            "snnlib.prepare_(net, x) with a shuffled batch"
        )


def _first_leaf(tensor: Tensor) -> Tensor | None:
    """Returns a tensor without history that a result depends on: the same parameter in every call of a net."""
    node = tensor.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return getattr(node, "variable", None)


watch_loss = _Watch().see
