"""Warnings from layers that fail to learn: no spikes, lost channels, no gradient, too large steps.

`snnlib.SpikeDoctor` shares the limits, and the texts of `training_words`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

from snnlib.checks import is_batch, warn_caller
from snnlib.neurons.training_words import (
    ANEW,
    GRADED,
    NOTHING_REACHES_THE_LOSS,
    PREPARE,
    SCALED,
    SLOWER,
    always_firing,
    learns_when_silent,
    nothing_passes,
    remedy,
    silence,
    silent_samples,
    without_gradient,
)
from snnlib.sequences.spike_count import channel_rates, levels_of

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron
    from snnlib.nn.layers.readout import SRMReadout
    from snnlib.nn.layers.spiking_layer import SpikingLayer

    Watched: TypeAlias = SpikingLayer | Neuron

# A single batch may be an odd one; three in a row are not.
_FIRST = 3
# Channels that the first updates lost are named before a slow net has made a hundred; one of the batches looked at.
_EARLY = 31
# Later windows: a tenth of the batches costs a layer less than half a percent of its step.
_BATCHES, _EVERY = 100, 10
# Calls with one step each from which a loop over time is likely; more than the batches in which a net shows its shape.
_SINGLE_STEPS = 50
# Steps of a sequence up to which standardised layers learn at 1e-3; and how many times the rate of `count_rate` nets of
# fewer samples or more steps learned as well.
_FEW_STEPS, _TOO_FAST = 5, 3.0
# Share of its own size: a weight that a step of an optimiser changes by more is lost. Training steps change a tenth.
_LARGEST_STEP = 3.0
# A neuron that fires in more than half of all steps is reset before it has gathered much.
BUSY_RATE = 0.5
# A layer that fires in more than this share of all steps, in two batches looked at in a row, has left the slope of its
# surrogate gradient: healthy nets pass it for a few batches at most.
_DRIVEN_RATE, _DRIVEN_LOOKS = 0.8, 2
# Share of the channels: more than this is no longer the odd one.
_MANY = 0.5
# A few samples need not make every channel fire, least of all one output per class.
_FEWEST_SAMPLES = 30
# Share of the samples: with losses that learn well on MNIST no neuron of a layer fires in 0.5 %, with others in 8 %.
_MANY_SAMPLES = 0.05


def count_rate(samples: int, steps: int) -> float:
    """Returns the learning rate of Adam that fits a loss on spike counts of standardised layers.

    The rate is `1e-3 min(1, (N / 50)^0.5) min(1, (5 / T)^1.5)` for N samples and T steps. Gradients of small batches
    are noisy, and the step of Adam has the same size however noisy they are. With more time steps the same change of a
    weight moves more spikes. Measurements: docs/measurements/learning.md.
    """
    return 1e-3 * math.sqrt(min(1.0, samples / 50)) * math.pow(min(1.0, _FEW_STEPS / steps), 1.5)


def surrogate_rate(samples: int, steps: int, layers: int, adaptive: bool) -> float:
    """Returns the learning rate of Adam that fits a loss on spike counts of layers with a surrogate gradient.

    The rate is `7e-4 min(1, (N / 25)^0.5) min(1, (30 / T)^0.5) min(1, 3 / L)` for N samples, T steps and L layers, as
    every layer moves the spikes of all layers behind it; 0.3 of it with thresholds that adapt, since outputs of `ALIF`
    else jump to fire at every step. Measurements: docs/measurements/first-loss.md.
    """
    rate = 7e-4 * math.sqrt(min(1.0, samples / 25) * min(1.0, 30 / steps)) * min(1.0, 3 / layers)
    return 0.3 * rate if adaptive else rate


def spike_time_rate(samples: int) -> float:
    """Returns the learning rate of Adam that fits a loss on counts of outputs that learn from their own spikes.

    The rate is `1e-3 min(1, (N / 25)^0.5)` for N samples. Measurements: docs/measurements/first-loss.md.
    """
    return 1e-3 * math.sqrt(min(1.0, samples / 25))


@dataclass
class Window:
    """Rates and gradients of a layer over several consecutive training batches.

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

    @property
    def is_first(self) -> bool:
        """Returns whether the window begins with the first batch."""
        return self.first == 1

    def __str__(self) -> str:
        return f"the first {_FIRST} training batches" if self.is_first else _between(self.first, self.last)


class TrainingWatch:
    """Watches a layer, or standalone neurons, in the first three training batches and then in every tenth.

    Sums stay on the layer's device. The watch reads them after the first three batches, after batch 31 for lost
    channels, and after every hundred. It ignores passes in eval mode, without gradients, from a state, and under
    `torch.compile`, `torch.export`, `torch.func` or CUDA graph capture.

    Args:
        name: name of the layer in warnings; None: its repr.
        warns: whether to issue warnings; with False they are only stored in `said`.

    Attributes:
        rate: learning rate of Adam that `prepare_` reported; None if it knows none.
        course: the windows so far.
        said: the warnings so far, one per kind.
        stopped: whether the watch has ended.
    """

    # Class attributes for older pickles: the batches looked at in a row in which nearly all neurons fired, and the
    # largest step of Adam in the first batches.
    rate: float | None = None
    # Homeostasis wakes the layer's channels.
    wakes: bool = False
    _driven: Tensor | int = 0
    _moved: Tensor | None = None

    def __init__(self, name: str | None = None, warns: bool = True) -> None:
        self.name, self.warns, self.stopped = name, warns, False
        self.course: list[Window] = []
        self.said: dict[str, str] = {}
        self._batches = self._single_steps = 0
        # Batches since the optimiser made a step.
        self._gathered = 0
        # Number of channels and device.
        self._place: tuple[int, torch.device] | None = None
        self._sums = _Sums()
        # Shares of steps in which the channels fired, in the first window in which one did.
        self._began: Tensor | None = None
        self._weight: Tensor | None = None
        # The largest change of the weight from one batch to the next, of its own size.
        self._step: Tensor | None = None
        # Standardised weight and its gain in the batch before.
        self._parts: tuple[Tensor, Tensor] | None = None

    def anew(self) -> TrainingWatch:
        """Returns a new watch with the same name, `rate` and `warns`."""
        watch = TrainingWatch(self.name, self.warns)
        watch.rate = self.rate
        return watch

    def stop(self) -> None:
        """Ends the watch, for layers that learn although they are silent."""
        self.stopped = True

    def watch(self, layer: Watched, x: Tensor, weight: Tensor | None, spikes: Tensor) -> None:
        """Records a forward pass of `layer`, and its backward pass when it comes.

        Args:
            layer: the layer, or standalone neurons.
            x: its input, `[T, N, ...]`.
            weight: its effective weight; None for standalone neurons.
            spikes: its output, `[T, N, C, ...]`.
        """
        learned = x if weight is None else weight
        if cannot_watch(x):
            return
        self._single_steps = watch_single_steps(layer, x, self._single_steps)
        if self.stopped:
            return
        if not (layer.training and learned.requires_grad and torch.is_grad_enabled() and spikes.numel()):
            return
        self._batches += 1
        batch, is_first = self._batches, self._batches <= _FIRST
        # Every tenth, each time at another place: batches may repeat in tens.
        if not is_first and batch % _EVERY != 7 * (batch // _EVERY) % _EVERY:
            return
        place = spikes.shape[2], spikes.device
        if self._place not in (None, place):
            # Channels were taken out or added, or the net was moved.
            layer.training_watch = self.anew()
            return
        self._place, sums = place, self._sums
        closes = batch == _FIRST or batch % _BATCHES == 0
        with torch.no_grad():
            rates = sums.add(layer, x, spikes.detach(), looks_at_input=is_first or closes or batch == _EARLY)
            if is_first and weight is not None:
                self._watch_step(layer, weight.detach())
            if batch == _EARLY:
                self._say_early(layer, sums, _between(_FIRST + 1, batch))
            share = rates.mean() / levels_of(layer)
            self._driven = (self._driven + (batch >= _FIRST)) * (share > _DRIVEN_RATE)
            if _FIRST < batch <= _EARLY or closes:
                self._say_driven(layer, share, spikes)
            if closes:
                self._close(layer, x, spikes, sums)
                self._sums = _Sums()
                spikes.register_hook(sums.add_signal)  # type: ignore[no-untyped-call]
        handles: list[Any] = []

        def on_gradient(gradient: Tensor) -> None:
            # A parameter would keep the hook; a product with the gain goes with its graph.
            handles.pop().remove()
            if not is_batch(gradient) and sums.add_gradient(gradient.detach()):
                self._close_backward(layer, sums, "currents" if weight is None else "weight")

        handles.append(learned.register_hook(on_gradient))  # type: ignore[no-untyped-call]

    def watch_standardization(
        self, layer: Watched, original: Tensor, gain: Tensor, batch: Tensor | None
    ) -> None:
        """Warns if in the first batches the optimiser moves a standardised weight too far, or without its gain.

        Args:
            layer: the layer.
            original: its weight before it is standardised.
            gain: the gain of its channels.
            batch: a sequence `[T, N, ...]` of the training batch; None if no fitting learning rate is known.
        """
        before, self._parts = self._parts, None
        if self._batches > _FIRST:
            return
        self._parts = original.detach().clone(), gain.detach().clone()
        if before is None:
            return
        moved = (original.detach() - before[0]).double()
        self._gathered += 1
        if not bool(moved.any()):
            # Gradients of several batches are added up.
            return
        gathered, self._gathered = self._gathered, 0
        if torch.equal(before[1], gain):
            text = "the optimiser moves the weight and not its gain and bias, as it was made before they were; make it "
            self._say(layer, "optimizer", f"{text}after snnlib.prepare_(net, x)")
        if batch is not None:
            # Adam's first step moves each weight by the learning rate.
            rate = float(moved.square().sum() / (moved != 0).sum()) ** 0.5
            steps, samples = batch.shape[:2]
            fitting = count_rate(samples * gathered * _processes(), steps)
            if rate > _TOO_FAST * fitting:
                self._say(
                    layer,
                    "rate",
                    f"the optimiser moves the weights by {rate:.2g} in a step, and nets have unlearned so from batches "
                    f"of {samples} samples of {steps} steps; lower the learning rate to {fitting:.2g}, which "
                    "snnlib.prepare_(net, x) reports where x is as large as the batches of training",
                )

    def _watch_step(self, layer: Watched, weight: Tensor) -> None:
        before, self._weight = self._weight, weight.clone()
        if before is not None and before.shape == weight.shape:
            size, moved = before.norm(), weight - before
            # From a weight of 0 any step is large.
            step = (moved.norm() / size).where(size > 0, 0.0)
            self._step = step if self._step is None else torch.maximum(self._step, step)
            if self.rate is not None:
                # Adam's first steps move each weight by the learning rate.
                stored = (
                    moved.norm() / (moved != 0).sum().clamp(min=1).sqrt() / cast(Tensor, layer.gain).mean()
                )
                self._moved = stored if self._moved is None else torch.maximum(self._moved, stored)

    def _say_driven(self, layer: Watched, share: Tensor, spikes: Tensor) -> None:
        """Warns of a layer that fires in nearly all steps of several batches, with the cause."""
        levels = levels_of(layer)
        # A layer that gives potentials, not spikes, has no bound.
        if int(self._driven) >= _DRIVEN_LOOKS and float(spikes.detach().amax()) <= levels:
            often = "in" if levels == 1 else f"{levels:g} spikes in"
            text = f"fires {often} {float(share):.0%} of all steps in training batch {self._batches}"
            self._say(layer, "saturated", f"{text}; {self._cause(layer)}")

    def _cause(self, layer: Watched) -> str:
        """Returns what drives a layer to fire in most steps, as a remedy."""
        if layer.prepared is None:
            return PREPARE
        if self.rate is not None and self._moved is not None and float(self._moved) > _TOO_FAST * self.rate:
            return (
                f"the optimiser moves the weights by {float(self._moved):.2g} in a step: lower the learning rate to "
                f"report.learning_rate of snnlib.prepare_, {self.rate:.2g}"
            )
        return GRADED if levels_of(layer) > 1 and hasattr(layer, "neuron") else SCALED

    def _close(self, layer: Watched, x: Tensor, spikes: Tensor, sums: _Sums) -> None:
        """Ends a window with its last batch, and warns of problems in its forward passes."""
        rates, learns = sums.rates(), learns_when_silent(layer)
        firing = rates / levels_of(layer)
        busy = firing > BUSY_RATE
        # Outputs are prepared to fire in half of all steps: more than half of the way from there to all of them.
        risen = busy & (firing > (1 + (firing if self._began is None else self._began)) / 2)
        # A layer that gives potentials, not spikes, has no bound.
        risen &= spikes.amax() <= levels_of(layer)
        shares = [part.double().mean() for part in (rates == 0, busy, risen)]
        numbers = torch.stack([rates.mean(), *shares, self._share_lost(rates)])
        rate, silent, saturated, risen_share, lost = numbers.tolist()
        first = self.course[-1].last + 1 if self.course else 1
        window = sums.window = Window(first, self._batches, rate, silent, saturated)
        self.course.append(window)
        # Behind a layer without spikes, or with NaN, there is nothing to say of the input: that one warns.
        is_input = not x.requires_grad
        if is_input and not sums.input.isfinite():
            self._say(layer, "finite", f"the input held NaN or infinity in {window}; check the data")
        if silent < 1:
            self._say_lost(layer, lost, str(window))
            without = float(sums.silent_samples) / sums.samples
            # Outputs of nets that learned well were silent for up to 22 % in the first hundred batches.
            late = window.first > _BATCHES and sums.samples >= _FEWEST_SAMPLES
            # Three standard errors more than many: of 40 samples 5 are silent in some windows of nets that learn well.
            bound = _MANY_SAMPLES + 3 * math.sqrt(_MANY_SAMPLES * (1 - _MANY_SAMPLES) / sums.samples)
            if late and without > bound and "lost" not in self.said:
                self._say(layer, "samples", silent_samples(without, f"the samples of {window}"))
            self._began = firing if self._began is None else self._began
        elif sums.input:
            if not learns:
                self._say(
                    layer, "silent", silence(str(window), False, remedy(layer) if window.is_first else ANEW)
                )
            elif self._began is not None:
                self._say(layer, "silent", f"no neuron fired in {window}, as some did before; {SLOWER}")
        elif is_input:
            where = window if window.is_first else f"training batch {window.last}"
            text = f"the input had no spikes in {where}; check the data, their time unit and the length of a time step"
            self._say(layer, "input", text)
        if risen_share > _MANY:
            text = f"{risen_share:.0%} of the channels {always_firing(str(window), layer, 'came to fire')}; "
            self._say(layer, "saturated", text + self._cause(layer))
        step, self._step, self._weight = self._step, None, None
        if step is not None and float(step) > _LARGEST_STEP:
            text = f"from one batch to the next the weights changed by {float(step):.2g} times their size; lower the "
            text += "learning rate. SGD feels a layer's gain squared: for it, prepare with "
            self._say(layer, "step", f"{text}snnlib.prepare_(net, x, gain=False)")

    def _close_backward(self, layer: Watched, sums: _Sums, learned: str) -> None:
        """Ends a window with its last gradient, and warns if there was none."""
        window = sums.window
        assert window is not None
        window.without_gradient = not sums.gradient
        if not window.without_gradient or (window.silent == 1 and not learns_when_silent(layer)):
            return
        # Later it may be a loss that is met, a layer behind that warns by itself, or a gradient cut on purpose.
        if window.is_first or sums.signal:
            if window.silent == 1:
                why = "no neuron fired or came near its threshold"
            else:
                why = nothing_passes(layer) if sums.signal else NOTHING_REACHES_THE_LOSS
            advice = remedy(layer) if window.is_first else SLOWER
            self._say(layer, "gradient", without_gradient(learned, str(window), f"{why}; {advice}"))

    def _share_lost(self, rates: Tensor) -> Tensor:
        """Returns the share of the channels that fired at the beginning and have a rate of 0."""
        fired = (rates if self._began is None else self._began) > 0
        return (fired & (rates == 0)).sum() / fired.sum().clamp(min=1)

    def _say_early(self, layer: Watched, sums: _Sums, where: str) -> None:
        """Warns of channels that the first updates lost, and of a layer with input that has not fired yet."""
        rates = sums.rates()
        if not self.wakes:
            self._say_lost(layer, float(self._share_lost(rates)), where)
        if self._began is None and sums.input and learns_when_silent(layer) and not rates.any():
            where = f"the first {_FIRST} training batches and in {where}"
            self._say(layer, "silent", silence(where, True, remedy(layer)))

    def _say_lost(self, layer: Watched, share: float, where: str) -> None:
        if share > _MANY and self._sums.samples >= _FEWEST_SAMPLES:
            text = f"{share:.0%} of the channels that fired at the beginning did not fire in {where}; "
            self._say(layer, "lost", text + (SLOWER if self.wakes or learns_when_silent(layer) else ANEW))

    def _say(self, layer: Watched, kind: str, text: str) -> None:
        if kind not in self.said:
            name = self.name or " ".join(repr(layer).split())
            self.said[kind] = f"{name}: {text}"
            if self.warns:
                warn_caller(self.said[kind])


def watch_single_steps(layer: Watched | SRMReadout, x: Tensor, calls: int) -> int:
    """Warns of a sequence that arrives step by step, so that every step starts from the initial state.

    The text names no layer, so that Python shows it once per line that calls a net.

    Args:
        layer: layer or neurons in a call.
        x: the sequence.
        calls: consecutive earlier calls with T = 1; stays `_SINGLE_STEPS` once the layer has warned.

    Returns:
        `calls` after this one.
    """
    if calls == _SINGLE_STEPS or not (layer.training and torch.is_grad_enabled()):
        return calls
    if x.shape[0] != 1:
        return 0
    calls = calls + 1
    if calls == _SINGLE_STEPS:
        layout = "[N, T, ...]" if layer.batch_first else "[T, N, ...]"
        warn_caller(
            f"x: expected whole sequences {layout}, got {calls} training calls in a row with one time step each, and "
            "every call starts from rest: hand over all steps in one call, or keep the state by run(x, state) or "
            "snnlib.Stream(net); samples that have one step only are all right"
        )
    return calls


class _Sums:
    """Sums over the watched batches of a window, on the layer's device."""

    def __init__(self) -> None:
        self.samples = self._batches = self._backwards = 0
        self._rates: Tensor | float = 0.0
        # Samples that got spikes while no neuron fired.
        self.silent_samples: Tensor | int = 0
        # Magnitudes of the input, of the gradients, and of the gradient that reached the output in the last batch.
        self.input: Tensor = torch.zeros(())
        self.gradient: Tensor | float = 0.0
        self.signal: Tensor | float = 0.0
        # Sums of the window, once its last batch is there.
        self.window: Window | None = None

    def add(self, layer: Watched, x: Tensor, spikes: Tensor, *, looks_at_input: bool) -> Tensor:
        """Adds a batch: input and spikes `[T, N, C, ...]`; returns its rates `[C]`."""
        rates = channel_rates(spikes)
        self._rates = self._rates + rates
        self._batches += 1
        self.samples += spikes.shape[1]
        if looks_at_input or not learns_when_silent(layer):
            given = _magnitude(x, but=1)
            if looks_at_input:
                self.input = self.input + given.sum()
            if not learns_when_silent(layer):
                got, fired = given != 0, _magnitude(spikes, but=1) != 0
                # Where none fires in any sample, it is the layer that is silent.
                self.silent_samples = self.silent_samples + ((got > fired) & fired.any()).sum()
        return rates

    def rates(self) -> Tensor:
        """Returns spikes per neuron and step of each channel, `[C]`."""
        assert isinstance(self._rates, Tensor)
        return self._rates / self._batches

    def add_signal(self, gradient: Tensor) -> None:
        """Records the gradient of the last batch's spikes."""
        if not is_batch(gradient):
            self.signal = _magnitude(gradient.detach())

    def add_gradient(self, gradient: Tensor) -> bool:
        """Adds the gradient of a batch; returns whether it was the last batch of the window."""
        self._backwards += 1
        self.gradient = self.gradient + _magnitude(gradient)
        return self.window is not None and self._backwards == self._batches


def _between(first: int, last: int) -> str:
    return f"training batches {first} to {last} (every {_EVERY}th was looked at)"


def cannot_watch(x: Tensor) -> bool:
    """Returns whether a pass is compiled, captured, on the meta device or part of a transform."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.is_meta:
        return True
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _processes() -> int:
    """Returns the number of processes whose gradients are averaged."""
    parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if parallel else 1


def _magnitude(values: Tensor, but: int | None = None) -> Tensor:
    """Returns the sum of magnitudes over all dimensions but one: 0 only if all values are 0, finite only if all are."""
    dims = [dim for dim in range(values.dim()) if dim != but]
    wide = torch.promote_types(values.dtype, torch.float32)
    total: Tensor = torch.linalg.vector_norm(values, 1, dims, dtype=wide)
    return total
