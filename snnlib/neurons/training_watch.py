"""Warnings from a layer that cannot learn, or no longer can: no spikes, lost channels, no gradient, too large steps."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from snnlib.checks import in_transform, warn_caller
from snnlib.sequences.spike_count import channel_rates

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron
    from snnlib.nn.neuron_layer import NeuronLayer

    Watched: TypeAlias = NeuronLayer | Neuron

# One batch may be an odd one; three in a row are not.
_FIRST = 3
# Channels that the first updates lost are named before a slow net has made a hundred; one of the batches looked at.
_EARLY = 31
# Later windows: a tenth of the batches costs a layer less than half a percent of its step.
_BATCHES, _EVERY = 100, 10
# Of its own size: a weight that a step of an optimiser changes by more is lost. Steps that train change a tenth of it.
_LARGEST_STEP = 3.0
# A neuron that fires in more than half of all steps is reset before it has gathered much.
_SATURATED_RATE = 0.5
# Of the channels: more than this share is no longer the odd one.
_MANY = 0.5
# A few samples need not make every channel fire, least of all one output per class.
_FEWEST_SAMPLES = 30
# Of the samples: with losses that learn well on MNIST none of a layer's neurons fires in 0.5 %, with others in 8 %.
_MANY_SAMPLES = 0.05
_PREPARE = "call snnlib.prepare_(net, x) on a batch of training data before training"
_SLOWER = "lower the learning rate or clip gradients (torch.nn.utils.clip_grad_norm_)"
# Where neurons learn from their own spikes alone.
_ANEW = (
    "only homeostasis mends that: start anew, or from a checkpoint, with a lower learning rate, clipped gradients "
    "(torch.nn.utils.clip_grad_norm_) or snnlib.prepare_(net, x, standardize=True); outputs are woken by "
    "snnlib.nn.supervised_spikes"
)


@dataclass
class Window:
    """Rates and gradients of a layer in a row of training batches.

    Args:
        first: number of the first batch, from 1.
        last: number of the last batch.
        rate: spikes per neuron and time step, mean.
        silent: share of the channels in which no neuron fired.
        saturated: share of the channels that fired in more than half of all steps.
        without_gradient: whether the gradient of the weight was exactly 0 in each batch; None where batches had none.
    """

    first: int
    last: int
    rate: float
    silent: float
    saturated: float
    without_gradient: bool | None = None


class TrainingWatch:
    """Watches a layer, or neurons without one, in training batches: in the first three, then in every tenth.

    Sums stay on the layer's device and are read after the first three batches and after every hundred; for lost
    channels after batch 31 too. Passes in eval mode, without gradients, from a state, under `torch.compile`,
    `torch.export`, `torch.func` or CUDA graph capture do not count.

    Attributes:
        course: the windows so far.
        said: each warning so far by its kind; none comes twice.
        name: what to call the layer; None looks for its name in the net that calls it.
        warns: whether to issue warnings; with False they are only stored in `said`.
        stopped: whether it looks at nothing any more.
    """

    def __init__(self) -> None:
        self.course: list[Window] = []
        self.said: dict[str, str] = {}
        self.name: str | None = None
        self.warns = True
        # Whether neurons get a gradient where they do not fire, and what it is the gradient of.
        self._silent_learn, self._learned = False, "weight"
        self.stopped = False
        self._batches = 0
        self._channels: int | None = None
        self._sums = _Sums()
        # Rates of the channels in the first window in which one fired.
        self._began: Tensor | None = None
        self._weight: Tensor | None = None
        # The largest change of the weight from one batch to the next, of its own size.
        self._step: Tensor | None = None
        # What a standardised weight and its gain were in the batch before.
        self._parts: tuple[Tensor, Tensor] | None = None

    def anew(self) -> TrainingWatch:
        """Returns one that has seen nothing yet."""
        return TrainingWatch()

    def stop(self) -> None:
        """Say nothing from now on: the layer learns though it is silent."""
        self.stopped = True

    def watch(self, layer: Watched, x: Tensor, weight: Tensor | None, spikes: Tensor) -> None:
        """Take note of one forward pass of `layer`, and of the backward pass to come.

        Args:
            layer: the layer, or standalone neurons.
            x: its input, `[T, N, ...]`.
            weight: its effective weight; None of neurons that get currents.
            spikes: its output, `[T, N, C, ...]`.
        """
        learned = x if weight is None else weight
        if cannot_watch(x) or self.stopped:
            return
        if not (layer.training and learned.requires_grad and torch.is_grad_enabled() and spikes.numel()):
            return
        self._batches += 1
        batch, is_first = self._batches, self._batches <= _FIRST
        # Every tenth, each time at another place: batches may repeat in tens.
        if not is_first and batch % _EVERY != 7 * (batch // _EVERY) % _EVERY:
            return
        if self._channels not in (None, spikes.shape[2]):
            # Some were taken out or added.
            layer.training_watch = self.anew()
            return
        self._channels, self._silent_learn = spikes.shape[2], layer.learns_when_silent
        self._learned = "currents" if weight is None else "weight"
        sums = self._sums
        with torch.no_grad():
            sums.add(spikes, int(layer.batch_first))
            if not self._silent_learn:
                sums.add_silent_samples(x, spikes, int(layer.batch_first))
            if is_first:
                sums.got_spikes = _either(sums.got_spikes, (x != 0).any())
                sums.not_finite = _either(sums.not_finite, ~x.isfinite().all())
                if weight is not None:
                    self._watch_step(weight.detach())
            if batch == _EARLY:
                self._say_of_losses(layer, float(self._share_lost(sums.rates())), _between(_FIRST + 1, batch))
            if batch == _FIRST or batch % _BATCHES == 0:
                self._close(layer, x, spikes)
                self._sums = _Sums()
                spikes.register_hook(sums.add_signal)  # type: ignore[no-untyped-call]
        handles: list[Any] = []

        def on_gradient(gradient: Tensor) -> None:
            # A parameter would keep the hook; a product with the gain goes with its graph.
            handles.pop().remove()
            self._on_gradient(sums, gradient)

        handles.append(learned.register_hook(on_gradient))  # type: ignore[no-untyped-call]

    def watch_standardization(self, layer: Watched, original: Tensor, gain: Tensor) -> None:
        """Warn where the optimiser moves a standardised weight and not its gain, in the first batches."""
        before, self._parts = self._parts, None
        if self._batches > _FIRST:
            return
        self._parts = original.detach().clone(), gain.detach().clone()
        if before is not None and not torch.equal(before[0], original) and torch.equal(before[1], gain):
            self._say(
                layer,
                "optimizer",
                "the optimiser moves the weight and not its gain and bias, as it was made before they were; make it "
                "after snnlib.prepare_(net, x)",
            )

    def _watch_step(self, weight: Tensor) -> None:
        before, self._weight = self._weight, weight.clone()
        if before is not None and before.shape == weight.shape:
            size = before.norm().to(weight)
            # From a weight of 0 any step is large.
            step = ((weight - before.to(weight)).norm() / size).where(size > 0, 0.0)
            self._step = step if self._step is None else torch.maximum(self._step.to(step), step)

    def _close(self, layer: Watched, x: Tensor, spikes: Tensor) -> None:
        """End a window with its last batch."""
        if self._sums.has_gradient is None or not bool(self._sums.has_gradient):
            # The backward pass may warn, from where no caller is seen.
            self._find_name(layer)
        rates = self._sums.rates()
        began = rates if self._began is None else self._began.to(rates.device)
        silent, saturated = rates == 0, rates > _SATURATED_RATE
        # Outputs are prepared to fire in half of all steps: more than half of the way from there to all of them.
        risen = saturated & (rates > (1 + began) / 2)
        shares = [part.double().mean() for part in (silent, saturated, risen)]
        numbers = torch.stack([rates.mean(), *shares, self._share_lost(rates)])
        rate, silent_share, saturated_share, risen_share, lost_share = numbers.tolist()
        first = self.course[-1].last + 1 if self.course else 1
        window = Window(first, self._batches, rate, silent_share, saturated_share)
        self._sums.window = window
        self.course.append(window)
        if bool(self._sums.not_finite) and not x.requires_grad:
            self._say(layer, "finite", f"the input held NaN or infinity in {_span(window)}; check the data")
        if silent_share == 1:
            self._say_of_silence(layer, window, x)
        else:
            self._say_of_losses(layer, lost_share, _span(window))
            if "lost" not in self.said:
                self._say_of_samples(layer, window)
        # A layer that gives potentials, not spikes, has no bound.
        if risen_share > _MANY and float(spikes.amax()) <= 1:
            self._say(
                layer,
                "saturated",
                f"{risen_share:.0%} of the channels came to fire in more than half of all steps of {_span(window)}, "
                f"whatever they see; {_SLOWER}",
            )
        if self._began is None and silent_share < 1:
            self._began = rates
        if window.last == _FIRST:
            self._say_of_steps(layer)

    def _share_lost(self, rates: Tensor) -> Tensor:
        """Returns the share of the channels that fired at the beginning and have a rate of 0."""
        fired = (rates if self._began is None else self._began.to(rates.device)) > 0
        return (fired & (rates == 0)).sum() / fired.sum().clamp(min=1)

    def _say_of_losses(self, layer: Watched, share: float, where: str) -> None:
        if share > _MANY and self._sums.samples >= _FEWEST_SAMPLES:
            remedy = _SLOWER if self._silent_learn else _ANEW
            self._say(
                layer,
                "lost",
                f"{share:.0%} of the channels that fired at the beginning did not fire in {where}; {remedy}",
            )

    def _say_of_samples(self, layer: Watched, window: Window) -> None:
        share = float(self._sums.silent_samples) / self._sums.samples
        # In the first hundred batches outputs of nets that learned well were silent for up to 22 %.
        if window.first > _BATCHES and self._sums.samples >= _FEWEST_SAMPLES and share > _MANY_SAMPLES:
            self._say(
                layer,
                "samples",
                f"no neuron fired in {share:.0%} of the samples of {_span(window)}, which teach it nothing; take a "
                "loss that wants a few spikes of every output (snnlib.losses.spike_count_loss), clip gradients and "
                "lower the learning rate",
            )

    def _say_of_silence(self, layer: Watched, window: Window, x: Tensor) -> None:
        early = window.last == _FIRST
        got = self._sums.got_spikes if early else (x != 0).any()
        if not bool(got):
            # Behind a silent layer there is nothing to say: that one warns.
            if not x.requires_grad:
                where = _span(window) if early else f"training batch {window.last}"
                self._say(
                    layer,
                    "input",
                    f"the input had no spikes in {where}; check the data, their time unit and the length of a time "
                    "step",
                )
        elif not self._silent_learn:
            remedy = _PREPARE if early else _ANEW
            self._say(
                layer,
                "silent",
                f"no neuron fired in {_span(window)}, so neither this layer nor those before it learn; {remedy}",
            )
        elif self._began is not None:
            self._say(layer, "silent", f"no neuron fired in {_span(window)}, as some did before; {_SLOWER}")

    def _say_of_steps(self, layer: Watched) -> None:
        self._weight = None
        if self._step is not None and float(self._step) > _LARGEST_STEP:
            self._say(
                layer,
                "step",
                f"from one batch to the next the weights changed by {float(self._step):.2g} times their size; lower "
                "the learning rate. SGD feels a layer's gain squared: for it, prepare with "
                "snnlib.prepare_(net, x, gain=False)",
            )

    def _on_gradient(self, sums: _Sums, gradient: Tensor) -> None:
        window = sums.add_gradient(gradient.detach())
        if window is None:
            return
        window.without_gradient = not bool(sums.has_gradient)
        if window.without_gradient and (window.silent < 1 or self._silent_learn):
            near = "as no neuron fired or came near its threshold"
            if window.last == _FIRST:
                why = f"{near if window.silent == 1 else 'as nothing of its output reaches the loss'}; {_PREPARE}"
            elif sums.got_signal is not None and bool(sums.got_signal):
                why = f"{near if window.silent == 1 else 'as the loss asks nothing of neurons that fire'}; {_SLOWER}"
            else:
                # A loss that is met, a layer behind that warns by itself, or a gradient that is cut on purpose.
                return
            self._say(
                None,
                "gradient",
                f"the gradient of the {self._learned} was exactly 0 in {_span(window)}, {why}",
            )

    def _find_name(self, layer: Watched) -> None:
        # Only where there is something to say: looking at a frame's locals keeps its tensors until it ends.
        self.name = self.name or _path_of(layer)

    def _say(self, layer: Watched | None, kind: str, text: str) -> None:
        if kind not in self.said:
            if layer is not None:
                self._find_name(layer)
            self.said[kind] = f"{self.name}: {text}"
            if self.warns:
                warn_caller(self.said[kind])


class _Sums:
    """Sums over the batches of a window that were looked at, on the layer's device."""

    def __init__(self) -> None:
        self.samples = 0
        # Those that got spikes while no neuron fired.
        self.silent_samples: Tensor | int = 0
        self.got_spikes: Tensor | None = None
        self.not_finite: Tensor | None = None
        self.has_gradient: Tensor | None = None
        # Whether a gradient reached the output in the last batch.
        self.got_signal: Tensor | None = None
        # What it came to, once its last batch is there.
        self.window: Window | None = None
        self._batches = self._backwards = 0
        self._rates: Tensor | None = None

    def add(self, spikes: Tensor, time_dim: int) -> None:
        """Add the spikes `[T, N, C, ...]` of a batch, or `[N, T, C, ...]`."""
        rates = channel_rates(spikes.detach())
        self._rates = rates if self._rates is None else self._rates.to(rates.device) + rates
        self._batches += 1
        self.samples += spikes.shape[1 - time_dim]

    def add_silent_samples(self, x: Tensor, spikes: Tensor, time_dim: int) -> None:
        """Add the samples of a batch in which no neuron fired though there were input spikes, and in others one did."""
        rest = [dim for dim in range(x.dim()) if dim != 1 - time_dim]
        got = (x.amax(rest) != 0) | (x.amin(rest) != 0)
        rest = [dim for dim in range(spikes.dim()) if dim != 1 - time_dim]
        fired = spikes.detach().amax(rest) > 0
        self.silent_samples = self.silent_samples + (got & ~fired & fired.any()).sum()

    def rates(self) -> Tensor:
        """Returns spikes per neuron and step of each channel, `[C]`."""
        assert self._rates is not None
        return self._rates / self._batches

    def add_signal(self, gradient: Tensor) -> None:
        """Take note of the gradient of the last batch's spikes."""
        self.got_signal = _any(gradient.detach())

    def add_gradient(self, gradient: Tensor) -> Window | None:
        """Add the gradient of a batch; returns the window with the last one."""
        self._backwards += 1
        self.has_gradient = _either(self.has_gradient, _any(gradient))
        return self.window if self._backwards == self._batches else None


def _span(window: Window) -> str:
    if window.last == _FIRST:
        return f"the first {_FIRST} training batches"
    return _between(window.first, window.last)


def _between(first: int, last: int) -> str:
    return f"training batches {first} to {last} (every {_EVERY}th was looked at)"


def cannot_watch(x: Tensor) -> bool:
    """Returns whether a pass is compiled, captured, without values or part of a transform."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.is_meta or in_transform():
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _any(values: Tensor) -> Tensor:
    """Returns `(values != 0).any()` in a tenth of the time."""
    return (values.amax() != 0) | (values.amin() != 0)


def _either(before: Tensor | None, now: Tensor) -> Tensor:
    return now if before is None else before | now.to(before.device)


def _path_of(layer: nn.Module) -> str:
    """Returns the layer's name in the net that is calling it, found on the call stack; its repr where there is none."""
    name = ""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module) and caller is not layer:
            # The outermost caller has the longest path, which users write: net.features.conv1.
            name = next((path for path, module in caller.named_modules() if module is layer), name)
        frame = frame.f_back
    return name or repr(layer)
