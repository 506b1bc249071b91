"""Warnings from a layer that cannot learn, in its first training batches: no spike, no gradient, or too large steps."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.functional._check import in_transform
from snnlib.neurons.stored import warn_caller

# One batch may be an odd one; three in a row are not.
_BATCHES = 3
# Of its own size: a weight that a step of an optimiser changes by more is lost. Steps that train change a tenth of it.
_LARGEST_STEP = 3.0
_REMEDY = "call snnlib.prepare_(net, x) on a batch of training data before training"


class FirstBatches:
    """What a layer saw in its first training batches; after them it does nothing.

    Sums stay on the layer's device and are read once, with the last of these batches. Passes in eval mode, without
    gradients, from a state, under `torch.compile`, `torch.export`, `torch.func` or CUDA graph capture do not count.

    Args:
        silent_learn: whether neurons get a gradient where they do not fire, as with a surrogate gradient.
    """

    def __init__(self, silent_learn: bool = False) -> None:
        # Whether silent neurons get a gradient, as with a surrogate they do.
        self._silent_learn = silent_learn
        self._batches = self._backwards = 0
        self._fired: Tensor | None = None
        self._got_spikes: Tensor | None = None
        self._has_gradient: Tensor | None = None
        self._weight: Tensor | None = None
        # The largest change of the weight from one batch to the next, of its own size.
        self._step: Tensor | None = None
        self._name = ""

    def anew(self) -> FirstBatches:
        """One that has seen nothing yet."""
        return FirstBatches(self._silent_learn)

    def stop(self) -> None:
        """Say nothing from now on: the layer learns though it is silent."""
        self._batches = self._backwards = _BATCHES

    def watch(self, layer: nn.Module, x: Tensor, weight: Tensor, spikes: Tensor) -> None:
        """Take note of one forward pass of `layer` with its effective weight, and of the backward pass to come."""
        if _cannot_watch(x) or self._batches >= _BATCHES:
            return
        if not (layer.training and weight.requires_grad and torch.is_grad_enabled() and x.numel()):
            return
        self._batches += 1
        with torch.no_grad():
            self._got_spikes = _either(self._got_spikes, (x != 0).any())
            self._fired = _either(self._fired, (spikes != 0).any())
            self._watch_step(weight.detach())
        if self._batches == _BATCHES:
            self._name = _path_of(layer)
            self._report_spikes(x)
            self._report_step()
        handles: list[Any] = []

        def on_gradient(gradient: Tensor) -> None:
            # A parameter would keep the hook; a product with the gain goes with its graph.
            handles.pop().remove()
            self._on_gradient(gradient)

        handles.append(weight.register_hook(on_gradient))  # type: ignore[no-untyped-call]

    def _watch_step(self, weight: Tensor) -> None:
        before, self._weight = self._weight, weight.clone()
        if before is not None and before.shape == weight.shape:
            size = before.norm().to(weight)
            # From a weight of 0 any step is large.
            step = ((weight - before.to(weight)).norm() / size).where(size > 0, 0.0)
            self._step = step if self._step is None else torch.maximum(self._step.to(step), step)

    def _report_step(self) -> None:
        self._weight = None
        if self._step is not None and float(self._step) > _LARGEST_STEP:
            warn_caller(
                f"{self._name}: from one batch to the next the weights changed by {float(self._step):.2g} times their "
                "size; lower the learning rate. SGD feels a layer's gain squared: for it, prepare with "
                "snnlib.prepare_(net, x, gain=False)"
            )

    def _report_spikes(self, x: Tensor) -> None:
        assert self._fired is not None
        assert self._got_spikes is not None
        if bool(self._fired):
            return
        if bool(self._got_spikes) and not self._silent_learn:
            warn_caller(
                f"{self._name}: no neuron fired in the first {_BATCHES} training batches, so neither this layer nor "
                f"those before it learn; {_REMEDY}"
            )
        elif not bool(self._got_spikes) and not x.requires_grad:
            # Behind a silent layer there is nothing to say: that one warns.
            warn_caller(
                f"{self._name}: the input had no spikes in the first {_BATCHES} training batches; check the data, "
                "their time unit and the length of a time step"
            )

    def _on_gradient(self, gradient: Tensor) -> None:
        if self._backwards >= _BATCHES:
            return
        self._backwards += 1
        self._has_gradient = _either(self._has_gradient, (gradient.detach() != 0).any())
        if self._backwards == _BATCHES == self._batches:
            assert self._fired is not None
            learns = bool(self._fired) or self._silent_learn
            if learns and not bool(self._has_gradient):
                warn_caller(
                    f"{self._name}: the gradient of the weight was exactly 0 in the first {_BATCHES} training batches, "
                    f"as nothing of its output reaches the loss; {_REMEDY}"
                )


def _cannot_watch(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.is_meta or in_transform():
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _either(before: Tensor | None, now: Tensor) -> Tensor:
    return now if before is None else before | now.to(before.device)


def _path_of(layer: nn.Module) -> str:
    """The layer's name in the net that is calling it, found on the call stack; its repr where there is no net."""
    name = ""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module) and caller is not layer:
            # The outermost caller has the longest path, which users write: net.features.conv1.
            name = next((path for path, module in caller.named_modules() if module is layer), name)
        frame = frame.f_back
    return name or repr(layer)
