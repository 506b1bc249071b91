"""Texts of warnings from layers that fail to learn, for the watch of a layer and for `snnlib.SpikeDoctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from snnlib.sequences.spike_count import levels_of

if TYPE_CHECKING:
    from snnlib.neurons.base import Neuron
    from snnlib.nn.layers.spiking_layer import SpikingLayer

    Watched: TypeAlias = SpikingLayer | Neuron

PREPARE = "call snnlib.prepare_(net, x) on a batch of training data before training"
SLOWER = "lower the learning rate or clip gradients (torch.nn.utils.clip_grad_norm_)"
SCALED = (
    "where counts are logits, train with snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale) "
    "at report.learning_rate of snnlib.prepare_; else lower the learning rate"
)
GRADED = "graded neurons learn behind batch norm: snnlib.models.from_notation(..., batch_norm=True)"
# Where neurons learn from their own spikes alone.
ANEW = (
    "only homeostasis mends that: start anew, or from a checkpoint, with a lower learning rate, clipped gradients "
    "(torch.nn.utils.clip_grad_norm_) or snnlib.prepare_(net, x, standardize=True); outputs are woken by "
    "snnlib.nn.supervised_spikes"
)


def learns_when_silent(layer: Watched) -> bool:
    """Returns whether silent neurons get a gradient, as with a surrogate gradient."""
    return bool(getattr(layer, "neuron", layer).gradient == "surrogate")


def remedy(layer: object) -> str:
    """Returns the advice for a layer that fires badly: `prepare_`, unless it has prepared the layer already."""
    return PREPARE if getattr(layer, "prepared", None) is None else SLOWER


def silence(where: str, learns: bool, remedy: str) -> str:
    """Returns the text for a layer in which no neuron fired."""
    lost = "the layers behind it get no input" if learns else "neither this layer nor those before it learn"
    return f"no neuron fired in {where}, so {lost}; {remedy}"


def silent_samples(share: float, where: str) -> str:
    """Returns the text for samples in which no neuron of a layer fired."""
    return (
        f"no neuron fired in {share:.0%} of {where}, from which it learns nothing; use a loss that asks for a few "
        "spikes of every output (snnlib.losses.spike_count_loss), clip gradients and lower the learning rate"
    )


def always_firing(where: str, layer: Watched, verb: str = "fired") -> str:
    """Returns the text for channels that fire in most steps, or at most of their levels."""
    levels = levels_of(layer)
    half = "in more than half of" if levels == 1 else f"at more than half of their {levels:g} levels in"
    return f"{verb} {half} all steps of {where}, for any input"


def without_gradient(of: str, where: str, why: str) -> str:
    """Returns the text for a layer whose weights get no gradient."""
    return f"the gradient of the {of} was exactly 0 in {where}, as {why}"


NOTHING_REACHES_THE_LOSS = "its output does not affect the loss"


def nothing_passes(layer: Watched) -> str:
    """Returns why a layer may pass no gradient to its weights although its output affects the loss."""
    if not learns_when_silent(layer):
        return "the loss does not depend on neurons that fire"
    return (
        "all potentials were far below the threshold or above the highest level, where the surrogate gradient is 0, or "
        "the input was 0"
    )
