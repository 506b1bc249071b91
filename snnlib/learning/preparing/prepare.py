"""`prepare_`: initialises a new net by one batch of its data."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from snnlib.inspect.activity import SATURATED_RATE
from snnlib.inspect.autograd_paths import output_layers, tensors_in, without_gradient
from snnlib.learning.preparing.checks import check_input, torch_modules_checked, warn_of_input
from snnlib.learning.preparing.course import Course
from snnlib.learning.preparing.layers import is_copied, is_grey, set_weight
from snnlib.learning.preparing.logit_scale import scales
from snnlib.learning.preparing.neurons import Sources, kept_by_batch_norm, set_module_before
from snnlib.learning.preparing.report import LayerPreparation, Preparation
from snnlib.learning.preparing.targets import OUTPUT_RATE, STANDARDIZED_RATE
from snnlib.neurons import ALIF, Neuron
from snnlib.neurons.training_words import learns_when_silent
from snnlib.nn.fusion.fuse import unfused
from snnlib.nn.fusion.gradient_kinds import gradient_findings
from snnlib.nn.layers.dropout import SpikeDropout
from snnlib.nn.layers.readout import SRMReadout
from snnlib.nn.layers.spiking_layer import SpikingLayer
from snnlib.nn.recurrent.recurrent_layer import Recurrent
from snnlib.nn.weights.gain import WeightWithGain
from snnlib.nn.weights.standardize import standardize_weights_
from snnlib.nn.weights.stored_weight import learned_weight, standardization_of
from snnlib.sequences.time_first import time_first
from snnlib.structure.layers import is_readout, neuron_of, outer_modules

# RMS of the potential without spikes, in thresholds, before the shift that sets the rate. A surrogate gradient is small
# far from the threshold: six layers learn with 1.5 and not with 4 (docs/measurements/learning.md).
_HIDDEN_SPREAD, _SURROGATE_SPREAD = 4.0, 1.5
# Less than in hidden layers, so that the first counts differ little and no class starts far ahead.
_OUTPUT_SPREAD = 1.0

# Gain and bias that learned three times as fast as this at three times the recommended rate cost points and outputs.
_STANDARDIZED_SPREAD = 1 / 3

TargetRate = float | Mapping[str, float] | None
_Module = SpikingLayer | Neuron | SRMReadout


@torch.inference_mode(False)
def prepare_(
    net: nn.Module,
    x: Tensor,
    target_rate: TargetRate = None,
    *,
    gain: bool = True,
    standardize: bool | None = None,
    again: bool = False,
) -> Preparation:
    """Initialises a new net in place by one batch: sets firing rates and gains, and checks that the net can learn.

    Call it once, before you make the optimiser. docs/training.md says how it initialises each kind of layer.

    Args:
        net: any module with spiking layers (plain, standardised or fused) or standalone neurons.
        x: a shuffled batch of training data, spike tensor `[T, N, ...]` or with `batch_first` `[N, T, ...]`, of
            the N and T of the training loop, for which the report gives a learning rate; 25 samples are enough.
        target_rate: spikes per neuron and time step, in (0, 1), of all hidden layers (of all layers where none is
            hidden), or a mapping from layer names to rates. Default 0.03 in hidden layers (up to 0.1 below 100
            neurons), 0.5 in spiking output layers, 0.08 in standardised ones.
        gain: whether to move a power of two of each weight into the buffer `gain`. Default True, for Adam; use False
            for SGD, whose steps would grow with the gain's square.
        standardize: whether layers that learn from their own spikes only get standardised weights. Default None: if x
            is grey like pixels, with more than 1 % of nonzero values fractional or above 31.
        again: whether to initialise a prepared net again. Default False, since the net would lose what it learned.

    Returns:
        A report to print, with rates, gains, problems and settings for training, such as `learning_rate` and
        `logit_scale`.

    Raises:
        TypeError, ValueError: x or the net cannot be prepared; an unknown layer name or a rate outside (0, 1).

    Warns:
        UserWarning: x looks like `[N, T, ...]` or has pixels up to 255; layers share a neuron; standardised layers
            before potentials.

    Source: Mishkin and Matas, "All you need is a good init", ICLR 2016; rates: docs/measurements/training.md.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 200), snnlib.SRMLinear(200, 10))
    >>> print(snnlib.prepare_(net, (torch.rand(30, 8, 50) < 0.1).float()))
    weights calibrated, as the input holds spikes or counts of events
    layer  channels  spikes/step  target   gain
    0           200        ...%    3.0%     ...
    1            10       ...%   50.0%      ...
    spikes arrive at the output and gradients at all 2 parameters
    learn with Adam at 5.7e-4 and losses.tet_loss, with an SRMReadout as last layer; outputs that learn ...
    """
    check_input(net, x)
    # Autograd keeps no tensor that was made in inference mode.
    x = x.clone() if x.is_inference() else x
    warn_of_input(net, x)
    prepared: dict[str, _Module] = {
        name or "net": module
        for name, module in outer_modules(net).items()
        if isinstance(module, SpikingLayer | Neuron | SRMReadout)
    }
    spiking = {name: module for name, module in prepared.items() if not is_readout(module)}
    if not spiking:
        raise ValueError(f"net: expected a module with spiking layers, got {type(net).__name__} without any")
    _check_target(target_rate, spiking)
    options = (target_rate, gain, standardize)
    settled = _is_settled(net, x, options, prepared, again)
    grey, borders = is_grey(x), gradient_findings(net)
    with _as_before(net), unfused(net), ExitStack() as after:
        standardized = _standardize(spiking) if (grey if standardize is None else standardize) else set()
        course = Course(prepared, x if grey else None, settled, after)
        with torch_modules_checked(net, x), _in_floating_point(prepared.values()):
            outputs = output_layers(net, x, spiking)
        kept = target_rate is None and kept_by_batch_norm(net, spiking, course.measured)
        if kept:
            rates = {name: float(rates.mean()) for name, rates in course.measured.items() if name in spiking}
            course.targets, course.as_drawn = rates, set(rates)
        targets, sources = _targets(target_rate, spiking, outputs, standardized), Sources(net, after)
        # A rate that is asked of output layers alone is that of hidden ones.
        last = set() if isinstance(target_rate, float) and outputs == spiking.keys() else outputs
        for name, module in prepared.items():
            if name in course.as_drawn:
                continue
            if isinstance(module, Neuron):
                start: Any = partial(set_module_before, course, sources, name, targets.get(name))
            else:
                spread = _OUTPUT_SPREAD if name in last else _hidden_spread(module)
                own = None if name in standardized else spread
                start = partial(set_weight, course, name, gain, targets.get(name), own)
            course.at_first_call(module, name, start)
        course.begin_pass()
        if any(isinstance(module, Neuron) for module in spiking.values()):
            # They change what has run already, which the gradient of this call would miss.
            with torch.no_grad():
                net(x)
            course.begin_pass()
        with torch.enable_grad():
            output = net(x)
            missed = without_gradient(net, output)
    report = Preparation(
        layers=[_result(name, prepared[name], course) for name in course.measured],
        start="as drawn" if kept else "standardised" if standardized else "calibrated",
        reason=_reason(grey, standardize, kept),
        parameters=sum(1 for parameter in net.parameters() if parameter.requires_grad),
        without_gradient=missed,
        silent_output=not any(bool((tensor != 0).any()) for tensor in tensors_in(output)),
        borders=borders,
    )
    ends = [module for name in outputs if isinstance(module := spiking[name], SpikingLayer)]
    samples_first = any(module.batch_first for module in spiking.values())
    ended = tensors_in(output)
    silent_learn = all(map(learns_when_silent, ends))
    if outputs and len(ended) == 1 and ended[0].dim() >= 3:
        report.logit_scale, report.time_scale = scales(
            time_first(ended[0].detach(), samples_first), silent_learn
        )
    adaptive = any(isinstance(neuron_of(module), ALIF) for module in spiking.values())
    report.advise(x.shape[:2][:: -1 if samples_first else 1], gain, silent_learn, adaptive)
    # Adam's; a standardised weight has steps of its own.
    _sign(prepared, _mark(net, x, options), report.learning_rate if gain and not standardized else None)
    return report


def _hidden_spread(layer: SpikingLayer | SRMReadout) -> float:
    """Returns the spread of a hidden layer; that of a readout is not used."""
    return (
        _HIDDEN_SPREAD
        if isinstance(layer, SRMReadout) or not learns_when_silent(layer)
        else _SURROGATE_SPREAD
    )


@contextmanager
def _in_floating_point(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Lets neurons compute in floating point, since initial weights may overflow fixed-point states."""
    fixed = [neuron for neuron in map(neuron_of, modules) if neuron is not None and neuron.fixed_point]
    try:
        for neuron in fixed:
            neuron.fixed_point = False
        yield
    finally:
        for neuron in fixed:
            neuron.fixed_point = True


def _reason(grey: bool, standardize: bool | None, kept: bool) -> str:
    """Returns the reason for an initialisation."""
    if kept:
        return "batch norm keeps the rates"
    if standardize is not None:
        return f"standardize is {standardize}"
    if grey:
        return "the input is grey, with amplitudes as pixels have (standardize=False if its fractions are events)"
    return "the input holds spikes or counts of events"


def _standardize(spiking: Mapping[str, nn.Module]) -> set[str]:
    """Standardises the layers that learn from their own spikes only, and returns their names."""
    chosen = set()
    for name, layer in spiking.items():
        if not isinstance(layer, SpikingLayer) or isinstance(layer, Recurrent) or learns_when_silent(layer):
            continue
        other = is_parametrized(layer, "weight") and standardization_of(layer) is None
        if other or layer.weight[0].numel() < 2 or not learned_weight(layer).requires_grad:
            continue
        standardize_weights_(layer, homeostasis=True)
        step = standardization_of(layer)
        assert step is not None
        # Torch's usual scale, so that weights learn fast beside gain and bias.
        step.spread = _STANDARDIZED_SPREAD / math.sqrt(3 * layer.weight[0].numel())
        chosen.add(name)
    return chosen


def _targets(
    target_rate: TargetRate, spiking: Iterable[str], outputs: set[str], standardized: set[str]
) -> dict[str, float]:
    """Returns target rates by layer name; layers without a target are hidden."""
    targets = dict.fromkeys(outputs, OUTPUT_RATE) | dict.fromkeys(standardized, STANDARDIZED_RATE)
    if isinstance(target_rate, Mapping):
        return targets | {name or "net": rate for name, rate in target_rate.items()}
    if target_rate is not None:
        hidden = [name for name in spiking if targets.get(name) != OUTPUT_RATE]
        # A layer alone is hidden where a rate is asked for it.
        targets |= dict.fromkeys(hidden or spiking, target_rate)
    return targets


def _result(name: str, module: nn.Module, course: Course) -> LayerPreparation:
    """Returns the report of a layer from the last pass."""
    values, fires = course.measured[name], course.measured[name].dim() > 0
    return LayerPreparation(
        name=name,
        channels=course.channels[name],
        rate=float(values.mean()) if fires else None,
        target=course.targets[name] if fires else None,
        gain=float(module.gain.mean()) if isinstance(module, WeightWithGain) else 1.0,
        dead=int((values == 0).sum()) if fires else 0,
        saturated=int((course.firing[name] > SATURATED_RATE).sum()) if fires else 0,
        potential=None if fires else float(values),
        as_drawn=fires and name in course.as_drawn,
        copies=isinstance(module, SpikingLayer) and is_copied(module),
    )


def _check_target(target_rate: TargetRate, layers: Mapping[str, nn.Module]) -> None:
    rates = target_rate if isinstance(target_rate, Mapping) else {next(iter(layers)): target_rate}
    for name, rate in rates.items():
        # torch calls a net that is a layer "".
        if (name or "net") not in layers:
            raise ValueError(f"target_rate: expected names among {', '.join(layers)}, got {name!r}")
        if rate is not None and not 0 < rate < 1:
            raise ValueError(f"target_rate: expected a rate in (0, 1), got {rate}")


def _mark(net: nn.Module, x: Tensor, options: object) -> int:
    """Returns a hash of batch, settings, weights and gains, by which a prepared net is recognised."""
    mark = zlib.crc32(repr(options).encode())
    layers = (module for module in net.modules() if isinstance(module, WeightWithGain))
    for tensor in (x, *net.parameters(), *(layer.gain for layer in layers)):
        mark = zlib.crc32(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data, mark)
    return mark


def _sign(prepared: Mapping[str, _Module], mark: int, rate: float | None) -> None:
    """Stores the mark in all modules, and their names and the learning rate of layers for warnings."""
    for name, module in prepared.items():
        module.prepared = mark
        if not isinstance(module, SRMReadout):
            module.training_watch.name = name
        if isinstance(module, SpikingLayer):
            module.training_watch.rate = rate


def _is_settled(
    net: nn.Module, x: Tensor, options: object, prepared: Mapping[str, _Module], again: bool
) -> bool:
    """Returns whether the net is unchanged since `prepare_` with this batch and these settings.

    Raises:
        ValueError: layers that were prepared before, without `again`.
    """
    done = {name: module for name, module in prepared.items() if module.prepared is not None}
    if not done:
        return False
    learning = [name for name, m in done.items() if isinstance(m, Neuron) or learned_weight(m).requires_grad]
    if learning and not again:
        raise ValueError(
            f"net: expected a new net, got one whose layers {', '.join(learning)} were prepared before: what they have "
            "learned since would be lost. snnlib.prepare_(net, x, again=True) prepares all layers but those with "
            "frozen weights (requires_grad_(False))"
        )
    mark = _mark(net, x, options)
    return all(module.prepared == mark for module in prepared.values())


@contextmanager
def _as_before(net: nn.Module) -> Iterator[None]:
    """Sets training mode without dropout in the block; restores modes, random state, buffers, and a net that failed.

    Gains and scales of weights keep their new values.
    """
    modes = {module: module.training for module in net.modules()}
    layers = [module for module in modes if isinstance(module, WeightWithGain)]
    plain = [layer for layer in layers if not is_parametrized(layer, "weight")]
    changed = {id(buffer) for layer in layers for buffer in layer.buffers()}
    watches = [m for m in modes if isinstance(m, SpikingLayer | Neuron) and not m.training_watch.stopped]
    for watched in watches:
        watched.training_watch.stop()
    kept = [(tensor, tensor.detach().clone()) for tensor in (*net.parameters(), *net.buffers())]
    # Batch norm takes the statistics of the batch, and nothing drops out.
    for module in modes:
        module.training = not isinstance(module, SpikeDropout | _DropoutNd)
    devices = {parameter.device for parameter in net.parameters() if parameter.is_cuda}
    with torch.random.fork_rng([device.index for device in devices]), torch.no_grad():
        # Every state of the generator gives the same preparation.
        torch.manual_seed(0)
        failed = True
        try:
            yield
            failed = False
        finally:
            for layer in plain:
                if failed and is_parametrized(layer, "weight"):
                    remove_parametrizations(layer, "weight", leave_parametrized=False)
            for tensor, value in kept:
                if failed or not (isinstance(tensor, nn.Parameter) or id(tensor) in changed):
                    tensor.copy_(value)
            for module, mode in modes.items():
                module.training = mode
            for watched in watches:
                # Training has not begun.
                watched.training_watch = watched.training_watch.anew()
