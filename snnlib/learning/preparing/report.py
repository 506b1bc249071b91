"""Report of `snnlib.prepare_`: initialisation, rates and problems of a net."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from snnlib.checks import warn_caller
from snnlib.inspect.shown import ShownAsText
from snnlib.learning.preparing.targets import wanted_counts
from snnlib.neurons.training_watch import count_rate, spike_time_rate, surrogate_rate

# Gains outside are those of inputs that are far from spikes and counts.
_LEAST_GAIN, _LARGEST_GAIN = 2.0**-6, 2.0**12


@dataclass(frozen=True)
class LayerPreparation:
    """Rates and gain of a layer after preparation, on the same batch.

    Args:
        name: the layer's name in the net.
        channels: number of output channels, in a linear layer its neurons.
        rate: spikes per neuron and time step, mean; None for a readout, which does not fire.
        target: target rate of each channel; None for a readout.
        gain: power of two between the stored and the effective weight.
        dead: channels that never fired.
        saturated: channels that fired in more than 90 % of all time steps.
        potential: RMS of a readout's potentials; None for a spiking layer.
        as_drawn: whether channels keep the differences of their initial weights, as in recurrent layers that fire and
            in standardised layers: silent channels, and channels that fire in most steps, are normal there.
        copies: whether all channels have equal weights.
    """

    name: str
    channels: int
    rate: float | None
    target: float | None
    gain: float
    dead: int = 0
    saturated: int = 0
    potential: float | None = None
    as_drawn: bool = False
    copies: bool = False

    def findings(self) -> list[str]:
        """Returns a line per problem of the layer, with a remedy."""
        found = []
        if self.copies:
            found.append(
                f"{self.name}: all {self.channels} channels have the same weights, so that they learn the same; "
                "draw them at random"
            )
        if not _LEAST_GAIN <= self.gain <= _LARGEST_GAIN:
            found.append(
                f"{self.name} has a gain of {self.gain:g}: its input is far from the size of spikes; scale the "
                "net's input"
            )
        if self.rate is None or self.target is None:
            return found
        if self.dead and not self.as_drawn:
            found.append(
                f"{self.name} has dead channels: {self.dead} of {self.channels} did not fire, as no input spike "
                "reaches them; take a batch with more events, or larger kernels"
            )
        if self.saturated and not self.as_drawn:
            found.append(
                f"{self.name} is saturated: {self.saturated} of {self.channels} channels fire in more than 90 % of "
                "all steps; lower its target_rate"
            )
        if self.rate < self.target / 2:
            found.append(
                f"{self.name} fires at {self.rate:.1%} where {self.target:.1%} is wanted: its input has too few "
                "spikes; raise target_rate of the layer before it, or take longer time steps"
            )
        return found


@dataclass
class Preparation(ShownAsText):
    """Report of `prepare_`; `print` it, or read its fields.

    Args:
        layers: spiking layers and readouts in the order in which the net calls them.
        start: initialisation of the weights: `"calibrated"`, `"standardised"`, or `"as drawn"`.
        reason: reason for this initialisation.
        advice: the optimiser and the loss with which this initialisation was measured.
        learning_rate: learning rate of this optimiser, for training batches of the size of the prepared batch.
        clip_norm: largest norm of the gradients (`torch.nn.utils.clip_grad_norm_`); infinity: no clipping.
        desired: target count of the labelled output for `losses.spike_count_loss`.
        undesired: target count of the other outputs.
        logit_scale: logits per output spike, `scale` of `losses.count_cross_entropy`, at which the first logits of a
            sample have a standard deviation of 0.3, of 0.7 where outputs learn from their own spikes; 1 for potentials,
            which `prepare_` sets to a size of 1.
        time_scale: logits per time step, `scale` of `losses.first_spike_loss`, chosen in the same way.
        parameters: number of parameters that require a gradient.
        without_gradient: names of parameters without a gradient.
        silent_output: whether the net's output is zero everywhere.
        borders: findings on layers of exact spike times next to modules with ordinary gradients.
    """

    layers: list[LayerPreparation] = field(default_factory=list)
    start: str = "calibrated"
    reason: str = ""
    advice: str = ""
    learning_rate: float = 1e-3
    clip_norm: float = math.inf
    desired: int = 5
    undesired: int = 1
    logit_scale: float = 1.0
    time_scale: float = 1.0
    parameters: int = 0
    without_gradient: list[str] = field(default_factory=list)
    silent_output: bool = False
    borders: list[str] = field(default_factory=list)

    def findings(self) -> list[str]:
        """Returns a line per problem; empty if the net is ready to learn."""
        found = [finding for layer in self.layers for finding in layer.findings()]
        if self.silent_output:
            found.append("no spike arrives at the output; look at the modules after the last spiking layer")
        for name in self.without_gradient:
            found.append(
                f"{name} gets no gradient: the output does not depend on it, or a detached or non-differentiable "
                "operation lies between"
            )
        return found + self.borders

    def __str__(self) -> str:
        width = max([len("layer"), *(len(layer.name) for layer in self.layers)])
        lines = [f"weights {self.start}, as {self.reason}"]
        lines.append(f"{'layer':{width}}  channels  spikes/step  target   gain")
        for layer in self.layers:
            if layer.rate is None or layer.target is None:
                shown = f"{f'potential {layer.potential:.2f}':>21}"
            else:
                shown = f"{layer.rate:>13.1%}{layer.target:>8.1%}"
            lines.append(f"{layer.name:{width}}{layer.channels:>10}{shown}{layer.gain:>7g}")
        ready = f"spikes arrive at the output and gradients at all {self.parameters} parameters"
        return "\n".join([*lines, *(self.findings() or [ready]), f"learn with {self.advice}"])

    def advise(self, sizes: Sequence[int], gain: bool, silent_learn: bool, adaptive: bool) -> None:
        """Sets optimiser and loss for the initialisation, from docs/measurements.

        Args:
            sizes: T and N of the batch.
            gain: whether layers have gains.
            silent_learn: whether silent outputs get a gradient.
            adaptive: whether thresholds of neurons adapt.

        Warns:
            UserWarning: standardised layers before potentials.
        """
        steps, samples = sizes
        self.desired, self.undesired = wanted_counts(steps)
        potentials = [layer.name for layer in self.layers if layer.potential is not None]
        optimizer, usual = "Adam", 1e-3
        if self.start == "standardised":
            self.learning_rate, self.clip_norm = count_rate(samples, steps), 1.0
            loss = (
                ", gradients clipped at 1 and counts: losses.spike_count_loss(counts, labels, "
                f'desired={self.desired}, undesired={self.undesired}, one_sided=True, reduction="sum")'
            )
            if potentials:
                warn_caller(
                    "net: expected spiking outputs behind layers that learn images from their own spikes, got "
                    f"potentials of layer {', '.join(potentials)}, from which they learn worse (docs/training.md): "
                    "end with SRMLinear and the loss of the report"
                )
        elif potentials:
            loss = " and losses.tet_loss of the potentials"
        elif silent_learn:
            # Batch norm keeps the rates of layers, however deep.
            depth = 1 if self.start == "as drawn" else len(self.layers)
            self.learning_rate = surrogate_rate(samples, steps, depth, adaptive)
            loss = f" and losses.count_cross_entropy(counts, labels, scale={self.logit_scale:g})"
        else:
            self.learning_rate = spike_time_rate(samples)
            loss = (
                " and losses.tet_loss, with an SRMReadout as last layer; outputs that learn from their own spikes want "
                "prepare_(net, x, standardize=True) and its loss"
            )
        if not gain and self.start != "standardised":
            # Outputs that learn from their own spikes need smaller steps in small batches with SGD, too.
            relative = 1.0 if potentials or silent_learn else self.learning_rate / usual
            optimizer, usual = "SGD with momentum 0.9", 0.1
            self.learning_rate = usual * relative
        self.advice = f"{optimizer} at {_short(self.learning_rate)}{loss}"
        if self.learning_rate < usual:
            self.advice += f"; the rate is for batches of {samples} samples and {steps} steps, as x has"


def _short(rate: float) -> str:
    """Returns a rate with two digits, such as 1e-3 or 2.8e-4."""
    if rate >= 0.01:
        return f"{rate:g}"
    digits, power = f"{rate:.1e}".split("e")
    return f"{float(digits):g}e{int(power)}"
