"""`prepare_`: a new net made ready to learn, by one batch of its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from snnlib.inspect.activity import SATURATED_RATE
from snnlib.inspect.autograd_paths import output_layers, tensors_in, without_gradient
from snnlib.learning.preparation import LayerPreparation, Preparation
from snnlib.learning.prepare_neurons import PrepareNeuron, Sources, standalone_neurons
from snnlib.learning.rate_search import (
    RateSearch,
    ScaleSearch,
    assign_effective_weight,
    channel_rates,
    free_potential,
)
from snnlib.learning.targets import (
    OUTPUT_RATE,
    POTENTIAL,
    REACHABLE_SHARE,
    SPREAD_TOLERANCE,
    close,
    hidden_rate,
)
from snnlib.nn.dropout import SpikeDropout
from snnlib.nn.fusion import unfused
from snnlib.nn.gain import WeightWithGain
from snnlib.nn.neuron_layer import NeuronLayer
from snnlib.nn.readout import SRMReadout

# RMS of the potential without spikes, in thresholds, before the shift that sets the rate.
_HIDDEN_SPREAD = 4.0
# Less than in hidden layers, so that the first counts differ little and no class starts far ahead.
_OUTPUT_SPREAD = 1.0
# By how many thresholds a step of Adam at 1e-3 moves the potential, without spikes, if all weights of a neuron move the
# same way. So layers of any size learn at one pace; measured between 0.1 and 4.
_STEP = 2.0
# Nor more than so many times the gain that stores the weight at torch's usual scale, 1 / sqrt(3 fan_in): a step would
# change a weight by too large a part of itself.
_LARGEST_GAIN = 4.0
_LEARNING_RATE = 1e-3
# By how much of the wanted rate a layer may miss it before its weights are scaled instead of shifted.
_MISSED = 0.25

TargetRate = float | Mapping[str, float] | None


def prepare_(net: nn.Module, x: Tensor, target_rate: TargetRate = None) -> Preparation:
    """Make a new net ready to learn, in place: calibrate its firing rates on one batch and check that it can learn.

    Layer by layer, in the order in which the net calls them:

    - the weights W of a spiking layer become `a (W - mean) + d`, one factor a per layer and one shift d per output
      channel, such that each channel fires at `target_rate`: one that never fires never learns. Where the input has
      negative values, as behind batch norm, and where no shift gives the rate, as for neurons that answer inhibition
      with spikes, they become `a W` with a factor per channel;
    - a readout (`SRMReadout`) is scaled so that its potentials have an RMS of 1;
    - neurons that stand alone, as `LIF` behind `PerStep(conv, batch norm)`, get their rate by the bias of the module
      before them, and where that is no batch norm by a factor that gives the potential a spread of one threshold;
      without a bias by one factor per channel. Behind other modules they stay as they are, and the report says so;
    - a power of two of the weight goes into the layer's buffer `gain`, and what is stored is near torch's usual scale.
      A step of Adam at 1e-3 moves the effective weight `weight * gain` by `1e-3 gain`, and with it potentials by up to
      about 2 thresholds in every layer, whatever its size.

    Then it checks that spikes arrive at the output and gradients at every parameter, and says what it found. Batch
    normalisation works with the statistics of the batch, dropout is off.

    Call it once on a new net, before training and before or after making the optimiser: it neither adds nor replaces
    parameters. A second call with the same batch changes nothing. Random state, training modes, batch-norm statistics,
    gradients and layers with frozen weights stay as they are.

    Args:
        net: any module with spiking layers (`SRMConv2d`, `SpikingLinear`, ...), plain, standardised or fused, or with
            neurons alone.
        x: one batch of training data as the net takes it, spike tensor `[T, N, ...]` (`[N, T, ...]` with
            `batch_first`). 25 samples are enough; each class should be among them.
        target_rate: spikes per neuron and time step, in (0, 1): a number for all hidden layers (for all layers where
            none is hidden, as in a recurrent layer alone), or a mapping from layer names to rates for the layers named.
            Default 0.03 in hidden layers (up to 0.1 in those of less than 100 neurons, for about 3 spikes per step) and
            0.5 in spiking output layers.

    Returns:
        A report to print: rates and gains per layer, and what is wrong, if anything is.

    Raises:
        TypeError: x is no tensor.
        ValueError: x has no time and batch dimensions, no spikes or NaN; a net without spiking layers; an unknown layer
            name or a rate outside (0, 1); a layer that gets no spikes, or whose weights are all equal.

    Source: rates and spread as measured in `docs/training.md`; data-dependent initialisation after Mishkin and Matas,
    "All you need is a good init", ICLR 2016.

    >>> import torch, snnlib
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(50, 200), snnlib.SRMLinear(200, 10))
    >>> print(snnlib.prepare_(net, (torch.rand(30, 8, 50) < 0.1).float()))
    layer  channels  spike rate  target   gain
    0           200        3...%    3.0%     ...
    1            10       ...%   50.0%      ...
    spikes arrive at the output and gradients at all 2 parameters
    """
    _check_input(x)
    layers = {name: module for name, module in net.named_modules() if isinstance(module, NeuronLayer)}
    neurons = standalone_neurons(net)
    readouts = {name: module for name, module in net.named_modules() if isinstance(module, SRMReadout)}
    spiking: dict[str, nn.Module] = {**layers, **neurons}
    if not spiking:
        raise ValueError(f"net: expected a module with spiking layers, got {type(net).__name__} without any")
    _check_target(target_rate, spiking)
    found: list[LayerPreparation] = []
    with _as_before(net), unfused(net):
        _train_without_dropout(net)
        outputs = output_layers(net, x, spiking)
        targets: dict[str, float] = dict.fromkeys(outputs, OUTPUT_RATE)
        if isinstance(target_rate, Mapping):
            targets.update(target_rate)
        elif target_rate is not None:
            hidden = [name for name in spiking if name not in outputs]
            # A layer alone is hidden where a rate is asked for it.
            targets.update(dict.fromkeys(hidden or spiking, target_rate))
        with ExitStack() as hooks:
            for name, layer in layers.items():
                asked = isinstance(target_rate, float) and set(outputs) == set(spiking)
                spread = _OUTPUT_SPREAD if name in outputs and not asked else _HIDDEN_SPREAD
                hook = _Once(
                    partial(_prepare_layer, name=name or "net", target=targets.get(name), spread=spread),
                    found,
                )
                hooks.callback(layer.register_forward_pre_hook(hook).remove)
            for name, readout in readouts.items():
                hook = _Once(partial(_prepare_readout, name=name), found)
                hooks.callback(readout.register_forward_pre_hook(hook).remove)
            sources = Sources(net)
            hooks.callback(sources.remove)
            for name, neuron in neurons.items():
                alone = PrepareNeuron(name or "net", sources, targets.get(name), found)
                hooks.callback(neuron.register_forward_pre_hook(alone).remove)
            if neurons:
                # They change what has run already, which the gradient of this call would miss.
                with torch.no_grad():
                    net(x)
            with torch.enable_grad():
                output = net(x)
        return Preparation(
            layers=found,
            parameters=sum(1 for parameter in net.parameters() if parameter.requires_grad),
            without_gradient=without_gradient(net, output),
            silent_output=not any(bool((tensor != 0).any()) for tensor in tensors_in(output)),
        )


def _check_input(x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a spike tensor [T, N, ...], got {type(x).__name__}")
    if x.dim() < 3:
        raise ValueError(
            f"x: expected a spike tensor [T, N, ...] with time, batch and channels, got shape {tuple(x.shape)}"
        )
    if x.is_floating_point() and not bool(x.isfinite().all()):
        raise ValueError("x: expected finite numbers, got NaN or infinity")
    if not bool((x != 0).any()):
        raise ValueError(f"x: expected a spike tensor with spikes, got zeros only, shape {tuple(x.shape)}")


def _check_target(target_rate: TargetRate, layers: Mapping[str, nn.Module]) -> None:
    if target_rate is None:
        return
    rates = target_rate if isinstance(target_rate, Mapping) else {next(iter(layers)): target_rate}
    for name, rate in rates.items():
        if name not in layers:
            raise ValueError(f"target_rate: expected names among {', '.join(layers)}, got {name!r}")
        if not 0 < rate < 1:
            raise ValueError(f"target_rate: expected a rate in (0, 1), got {rate}")


@contextmanager
def _as_before(net: nn.Module) -> Iterator[None]:
    """Give back random state, training modes and buffers after the block; gains and what scales a weight stay new."""
    modes = {module: module.training for module in net.modules()}
    changed = {
        id(buffer)
        for layer in net.modules()
        if isinstance(layer, WeightWithGain)
        for module in layer.modules()
        for buffer in module.buffers(recurse=False)
    }
    buffers = [(buffer, buffer.clone()) for buffer in net.buffers() if id(buffer) not in changed]
    devices = {parameter.device for parameter in net.parameters() if parameter.is_cuda}
    with torch.random.fork_rng([device.index for device in devices]):
        # The same preparation for every state of the generator.
        torch.manual_seed(0)
        try:
            yield
        finally:
            for buffer, value in buffers:
                buffer.copy_(value)
            for module, mode in modes.items():
                module.training = mode
                if isinstance(module, NeuronLayer):
                    # Training has not begun.
                    module.first_batches = module.first_batches.anew()


def _train_without_dropout(net: nn.Module) -> None:
    """Training mode, where batch norm takes the statistics of the batch; the caller sets modes back."""
    net.train()
    for module in net.modules():
        if isinstance(module, SpikeDropout | _DropoutNd):
            module.eval()


class _Once:
    """A pre-hook that prepares a layer in its first call, where it may have several."""

    def __init__(self, prepare: Callable[..., LayerPreparation], found: list[LayerPreparation]) -> None:
        self._prepare, self._found, self._done = prepare, found, False

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not self._done:
            self._done = True
            with torch.no_grad():
                self._found.append(self._prepare(layer, inputs[0].detach()))


def _prepare_layer(
    layer: NeuronLayer, x: Tensor, name: str, target: float | None, spread: float
) -> LayerPreparation:
    if not bool((x != 0).any()):
        raise ValueError(
            f"{name}: expected input with spikes, got zeros: nothing before it fires for this batch"
        )
    weight = layer.effective_weight.detach()
    current = layer.input_current(x, weight)
    if target is None:
        target = hidden_rate(current)
    rates = before = channel_rates(current, layer)
    if any(parameter.requires_grad for parameter in layer.parameters()):
        search = _search(layer, x, weight, spread, name)
        wanted_rates = (REACHABLE_SHARE * search.highest_rates()).clamp(max=target)
        wanted = weight
        if not (search.in_place(SPREAD_TOLERANCE) and close(rates, wanted_rates)):
            found, rates = search.find(wanted_rates)
            if isinstance(search, RateSearch) and not _reached(rates, wanted_rates):
                if _reached(before, wanted_rates):
                    # It was scaled before.
                    found, rates = weight, before
                else:
                    found, rates = _by_scale(layer, x, weight, wanted_rates, (found, rates), name)
            # A search that found what is there already keeps its bits.
            if not torch.allclose(found, weight, rtol=0, atol=1e-4 * float(found.abs().max())):
                wanted = found
        per_step = free_potential(layer.input_current(x.abs(), torch.ones_like(weight)), layer)
        _store(layer, wanted, per_step, name)
    return LayerPreparation(
        name=name,
        channels=len(rates),
        rate=float(rates.mean()),
        target=target,
        gain=float(layer.gain.mean()),
        dead=int((rates == 0).sum()),
        saturated=int((rates > SATURATED_RATE).sum()),
    )


def _search(
    layer: NeuronLayer, x: Tensor, weight: Tensor, spread: float, name: str
) -> RateSearch | ScaleSearch:
    if bool((x < 0).any()):
        return ScaleSearch(layer, x, weight, name)
    centred = weight - weight.flatten(1).mean(1).reshape(-1, *[1] * (weight.dim() - 1))
    # What rounding leaves of equal weights is no direction.
    if float(centred.abs().max()) <= 1e-6 * float(weight.abs().max()):
        raise ValueError(f"{name}: expected a weight drawn at random, got one whose channels are constant")
    return RateSearch(layer, x, centred, spread, name)


def _reached(rates: Tensor, wanted: Tensor) -> bool:
    """Whether a layer fires about as much as is wanted, in the mean of its channels."""
    return abs(float(rates.mean() / wanted.mean().clamp(min=1e-12)) - 1) <= _MISSED


def _by_scale(
    layer: NeuronLayer,
    x: Tensor,
    weight: Tensor,
    wanted: Tensor,
    shifted: tuple[Tensor, Tensor],
    name: str,
) -> tuple[Tensor, Tensor]:
    """Weight and rates by a factor per channel, or those by a shift where they are nearer.

    Neurons that answer inhibition with spikes, as adaptive and resonating ones do, fire on however far weights go down.
    """
    found, rates = ScaleSearch(layer, x, weight, name).find(wanted)
    nearer = abs(float((rates - wanted).mean())) < abs(float((shifted[1] - wanted).mean()))
    return (found, rates) if nearer else shifted


def _prepare_readout(readout: SRMReadout, x: Tensor, name: str) -> LayerPreparation:
    def potential(weight: Tensor, x: Tensor) -> float:
        return float(
            readout.potentials_of(x, weight).spikes.float().square().mean(dtype=torch.float64).sqrt()
        )

    weight = readout.effective_weight.detach()
    before = potential(weight, x)
    if not 0 < before < math.inf:
        raise ValueError(f"{name}: expected input with spikes, got potentials of RMS {before:g}")
    if any(parameter.requires_grad for parameter in readout.parameters()):
        in_place = abs(before / POTENTIAL - 1) < SPREAD_TOLERANCE
        wanted = weight if in_place else weight * (POTENTIAL / before)
        _store(readout, wanted, potential(torch.ones_like(weight), x.abs()), name)
    after = potential(readout.effective_weight.detach(), x)
    return LayerPreparation(
        name, len(weight), rate=None, target=None, gain=float(readout.gain.mean()), potential=after
    )


def _store(layer: WeightWithGain, wanted: Tensor, per_unit: float, name: str) -> None:
    """Set the effective weight, and a gain for it; `per_unit`: the potential that weights of 1 give."""
    weight, before = layer.effective_weight.detach(), layer.gain.clone()
    if not nn.utils.parametrize.is_parametrized(layer, "weight"):
        usual = float(wanted.float().std()) * math.sqrt(3 * math.prod(wanted.shape[1:]))
        gain = min(_STEP / (_LEARNING_RATE * per_unit), _LARGEST_GAIN * usual)
        layer.gain.fill_(2.0 ** round(math.log2(gain)))
    if not torch.equal(wanted, weight) or not torch.equal(layer.gain, before):
        assign_effective_weight(layer, wanted, name)
