"""SpikeDoctor: reports which layers of a net in training cannot learn, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn

from snnlib.inspect.activity import SpikeCounter, own_steps
from snnlib.inspect.shown import ShownAsText
from snnlib.neurons import Integrator
from snnlib.neurons import training_words as words
from snnlib.neurons.training_watch import BUSY_RATE, Window
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.gradient_kinds import gradient_findings
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.sequences.spike_count import levels_of
from snnlib.structure.layers import spiking_modules

# Shares from which a layer is reported; a few odd neurons or samples are normal.
_REPORTED_SHARE = 0.1
# Relative to the output layer's; rounding and shared weights alone make differences of ten to a hundred.
_GRADIENT_RATIO = 1e3
# Windows of a layer's course in a report: more do not fit into a line.
_MOST_WINDOWS = 8


@dataclass(frozen=True)
class LayerHealth:
    """Observations of one layer by a `SpikeDoctor`.

    Args:
        name: the layer's name in the net.
        channels: output channels; in a linear layer its neurons.
        rate: spikes per neuron and time step, mean.
        dead: channels in which no neuron ever fired.
        busy: share of neurons that fired in more than half of all steps; of graded neurons, at more than half of their
            levels.
        gradient: size of the layer's gradient relative to its weights, `||dL/dW|| / ||W||`, root mean square over
            backward passes; None before the first.
    """

    name: str
    channels: int
    rate: float
    dead: int
    busy: float
    gradient: float | None


class SpikeDoctor(ShownAsText):
    """Watches spikes and gradients of every spiking layer while a net trains, and reports problems in words.

    - silent: no neuron of a layer fires, so the layer has no gradient and later layers get no events;
    - dead: at least a tenth of a layer's channels, or any output neuron, never fires;
    - silent outputs: in at least a tenth of the samples the last layer does not fire;
    - saturated: a tenth of the neurons fire in more than half of all steps;
    - no gradient, or a gradient relative to the weights that is 1000 times larger or smaller than the last layer's;
    - NaN or infinity in spikes or gradients;
    - a layer of exact spike times next to a module with ordinary gradients.

    The doctor also watches standalone neurons, but not their gradients, since the weights belong to other modules. The
    last layer's neurons are the output neurons unless the net has an `SRMReadout` or `Integrator`. In a pooling block
    of `snnlib.fuse_` a pool window counts as a neuron, with the mean of its spikes; rates and dead channels are the
    same.

    In calls by `snnlib.run_ragged`, only the samples' own steps count.

    Layers record the course of their training themselves, a few numbers for every hundred batches, even before a
    doctor is attached: the report shows it, so that you see when a layer fell silent. Warnings then use the layers'
    names in `net`.

    Use it as a context manager, or with `attach()` and `detach()`; after `detach()` no hook is left, and reports still
    work. It counts spikes and squares the weights' gradients: 2 % of a training step of the published N-MNIST net.

    Args:
        net: any module with spiking layers.

    Raises:
        ValueError: a net without spiking layers.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 40), snnlib.SRMLinear(40, 10))
    >>> _ = torch.nn.init.constant_(net[0].weight, 0.1), torch.nn.init.zeros_(net[1].weight)
    >>> with snnlib.SpikeDoctor(net) as doctor:
    ...     net((torch.rand(30, 8, 50) < 0.1).float()).sum().backward()
    >>> for finding in doctor.findings():
    ...     print(finding)
    1: no neuron fired in 8 samples, so neither this layer nor those before it learn; call snnlib.prepare_...
    """

    def __init__(self, net: nn.Module) -> None:
        self._layers: dict[str, Any] = dict(spiking_modules(net))
        if not self._layers:
            raise ValueError(
                f"net: expected a module with spiking layers, got {type(net).__name__} without any"
            )
        for name, layer in self._layers.items():
            layer.training_watch.name = name
        self._net = net
        self._borders = gradient_findings(net)
        # Potentials of an `LRU` are those of hidden layers.
        self._fires_at_output = not any(
            isinstance(module, SRMReadout | Integrator) for module in net.modules()
        )
        self._counter = SpikeCounter(net)
        self._handles: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Deletes all observations."""
        self._counter.reset()
        self._last, self._samples = "", 0
        # Sums on the net's device: watching does not wait for it.
        self._silent_samples: Tensor | int = 0
        self._squares: dict[str, Tensor] = {}
        self._gradients = dict.fromkeys(self._layers, 0)

    def attach(self) -> Self:
        """Starts watching the calls of this thread; a second call changes nothing."""
        if self._handles:
            return self
        blocks = blocks_by_part(self._net)
        for name, layer in self._layers.items():
            runs = blocks.get(layer, layer)
            self._handles.append(runs.register_forward_hook(of_this_thread(self._on_spikes(name))))
            for weight in _learned(layer):
                handle = weight.register_post_accumulate_grad_hook(self._on_gradient(name))  # type: ignore[no-untyped-call]
                self._handles.append(handle)
        return self

    def detach(self) -> None:
        """Stops watching and removes all hooks from the net."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Self:
        """As `attach`."""
        return self.attach()

    def __exit__(self, *_: object) -> None:
        """As `detach`."""
        self.detach()

    def __repr__(self) -> str:
        watching = "watching" if self._handles else "not watching"
        return f"SpikeDoctor({watching} {', '.join(self._layers)}; {self._samples} samples seen)"

    def __str__(self) -> str:
        """As `report`."""
        return self.report()

    def layers(self) -> list[LayerHealth]:
        """Returns observations of each layer since the last reset, in the order of calls."""
        result = []
        for name, count in self._counter.counts.items():
            steps = self._counter.steps_of(name)
            # Channels come first; those of a linear layer are its neurons.
            channels = count.reshape(len(count), -1)
            busy = float((count > BUSY_RATE * steps * levels_of(self._layers[name])).double().mean())
            rate = float(count.mean()) / steps
            dead = int((channels == 0).all(1).sum())
            result.append(LayerHealth(name, len(count), rate, dead, busy, self._relative_gradient(name)))
        return result

    def course(self) -> dict[str, list[Window]]:
        """Returns rates, and shares of silent and saturated channels, over the course of training, by layer name."""
        return {name: list(layer.training_watch.course) for name, layer in self._layers.items()}

    def findings(self) -> list[str]:
        """Returns a line per problem; empty without problems, and before any batch."""
        return list(self.found().values())

    def found(self) -> dict[tuple[str, str], str]:
        """Returns the findings by layer and kind, with kinds and texts of `TrainingWatch.said`."""
        layers = self.layers()
        # Findings about the net's structure name two modules each.
        found = {("", text): text for text in self._borders} if layers else {}
        for layer in layers:
            for kind, text in self._of_spikes(layer, is_last=layer is layers[-1]):
                found[layer.name, kind] = f"{layer.name}: {text}"
            if layer.dead == layer.channels:
                # Layers behind a silent layer are silent as well.
                return found
        for layer in layers:
            for text in self._of_gradient(layer, layers[-1]):
                found[layer.name, "gradient"] = f"{layer.name}: {text}"
        return found

    def report(self) -> str:
        """Returns a table with a row per layer, the course of training, and the findings."""
        layers = self.layers()
        width = max(map(len, ["layer", *(layer.name for layer in layers)]))
        lines = [f"{'layer':{width}}  channels  spikes/step  dead channels  busy neurons  gradient / weight"]
        for layer in layers:
            gradient = "none yet" if layer.gradient is None else f"{layer.gradient:.2g}"
            lines.append(
                f"{layer.name:{width}}{layer.channels:>10}{layer.rate:>13.2%}{layer.dead:>15}{layer.busy:>14.1%}"
                f"{gradient:>19}"
            )
        courses = [
            f"{name:{width}}  {_in_a_line(course)}" for name, course in self.course().items() if course
        ]
        if courses:
            lines += ["spikes/step (silent channels) up to training batch:", *courses]
        return "\n".join([*lines, *(self.findings() or ["nothing wrong" if layers else "nothing seen yet"])])

    def _of_spikes(self, layer: LayerHealth, is_last: bool) -> Iterator[tuple[str, str]]:
        where, remedy = f"{self._samples} samples", words.remedy(self._layers[layer.name])
        tolerated = 0 if is_last and self._fires_at_output else _REPORTED_SHARE
        if not math.isfinite(layer.rate):
            yield "finite", "NaN is among its spikes; look at its weights and its input"
        elif layer.dead == layer.channels:
            learns = words.learns_when_silent(self._layers[layer.name])
            yield "silent", words.silence(where, learns, remedy)
        elif layer.dead > tolerated * layer.channels:
            lost = f"{layer.dead} of {layer.channels} channels did not fire in {where} and cannot learn"
            yield "dead", f"{lost}; {remedy}" + f", or {words.SLOWER}" * (remedy != words.SLOWER)
        if layer.busy >= _REPORTED_SHARE:
            often = words.always_firing(where, self._layers[layer.name])
            yield "saturated", f"{layer.busy:.0%} of the neurons {often}; {remedy}"
        silent = float(self._silent_samples) / max(self._samples, 1)
        if is_last and silent >= _REPORTED_SHARE and layer.dead < layer.channels:
            yield "samples", words.silent_samples(silent, where)

    def _of_gradient(self, layer: LayerHealth, last: LayerHealth) -> Iterator[str]:
        if layer.gradient is None:
            return
        ratio = layer.gradient / last.gradient if last.gradient else 1.0
        if not math.isfinite(layer.gradient):
            yield "NaN or infinity is in its gradient"
        elif layer.gradient == 0:
            why = f"{words.NOTHING_REACHES_THE_LOSS}, or {words.nothing_passes(self._layers[layer.name])}"
            yield words.without_gradient("weight", f"{self._samples} samples", why)
        elif ratio > _GRADIENT_RATIO or ratio < 1 / _GRADIENT_RATIO:
            kind = "exploding" if ratio > 1 else "vanishing"
            yield f"{kind} gradient, {ratio:.1g} times that of {last.name}, relative to the weights"

    def _relative_gradient(self, name: str) -> float | None:
        weights = _learned(self._layers[name])
        if not self._gradients[name]:
            return None
        backwards = self._gradients[name] / len(weights)
        size = math.sqrt(sum(float(weight.detach().double().square().sum()) for weight in weights))
        # The effective weight has a gradient that is smaller, and is larger, by the gain.
        size *= float(self._layers[name].gain.square().mean())
        return math.sqrt(float(self._squares[name]) / backwards) / size if size else math.inf

    def _on_spikes(self, name: str) -> Callable[..., None]:
        layer = self._layers[name]

        def watch(_layer: nn.Module, _inputs: Any, spikes: Tensor) -> None:
            if name not in self._counter.counts:
                # Called after all layers seen so far, so none of those is the last.
                self._last, self._samples, self._silent_samples = name, 0, 0
            self._counter.add(name, spikes)
            if name == self._last:
                own, _ = own_steps(layer, spikes.detach())
                # Along memory first: a sequence may lie channels-last.
                per_step = own.sum(tuple(range(2, spikes.dim())))
                silent = (per_step == 0).all(0)
                self._samples += len(silent)
                self._silent_samples = self._silent_samples + silent.sum()

        return watch

    def _on_gradient(self, name: str) -> Callable[[Tensor], None]:
        def watch(weight: Tensor) -> None:
            if weight.grad is not None:
                self._gradients[name] += 1
                self._squares[name] = self._squares.get(name, 0) + weight.grad.detach().float().square().sum()

        return watch


def _learned(layer: nn.Module) -> list[nn.Parameter]:
    """Returns the layer's weight, or the originals of its parametrizations; nothing for standalone neurons."""
    if not isinstance(layer, SpikingLayer):
        return []
    return [weight for weight in layer.parameters() if weight.requires_grad]


def _in_a_line(course: list[Window]) -> str:
    """Returns evenly spaced windows, including the first and the last."""
    most = min(len(course), _MOST_WINDOWS)
    shown = [course[at * (len(course) - 1) // max(most - 1, 1)] for at in range(most)]
    return "  ".join(f"{window.last}: {window.rate:.2%} ({window.silent:.0%})" for window in shown)
