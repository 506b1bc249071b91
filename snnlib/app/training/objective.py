"""Losses by their names in the settings, each with the class scores that decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snnlib.learning import losses
from snnlib.learning.decoding import first_spike_time, spike_count
from snnlib.sequences.lengths import without_padding

if TYPE_CHECKING:
    from snnlib.app.training.config import TrainConfig

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Objective:
    """Loss and decision of a run, both read from the net's output `[T, N, classes]`.

    Args:
        loss: of output, labels `[N]` or `[T, N]` and lengths `[N]`.
        scores: of output and lengths, `[N, classes]`; the highest wins, ties go to the lowest class. `[T, N, classes]`
            where every step is labelled.

    Lengths are None where all samples are as long as the batch.
    """

    loss: Callable[..., Tensor]
    scores: Callable[..., Tensor]


@dataclass(frozen=True)
class LossChoice:
    """A loss that settings can name.

    Args:
        build: makes the objective.
        of_potentials: whether it takes potentials, of a read-out in place of the last layer.
        knows_lengths: whether it takes samples of different lengths; others count steps to the end of the batch.
        labels_steps: whether it takes a label for every step.
        wants_whole_counts: whether `desired` and `undesired` are spikes of a sequence.
        scale: the field of the report of `prepare_` that is `logit_scale` where the settings have none.
    """

    build: Callable[[TrainConfig], Objective]
    of_potentials: bool = False
    knows_lengths: bool = False
    labels_steps: bool = False
    wants_whole_counts: bool = False
    scale: str | None = None


def _of_counts(loss_of: Callable[[TrainConfig], Loss], scale: str | None = None) -> LossChoice:
    """A loss on counts `[N, classes]`, which decide."""

    def build(config: TrainConfig) -> Objective:
        loss = loss_of(config)
        return Objective(
            lambda spikes, labels, lengths=None: loss(spike_count(spikes, lengths=lengths), labels), _count
        )

    return LossChoice(build, knows_lengths=True, scale=scale)


def _entropy_of_counts(loss: Loss) -> LossChoice:
    """Cross-entropy of scaled counts; with its own scale until a net is prepared."""
    return _of_counts(
        lambda config: (
            partial(loss, scale=config.learning.logit_scale) if config.learning.logit_scale else loss
        ),
        "logit_scale",
    )


def _of_trains(loss_of: Callable[[TrainConfig], Loss]) -> LossChoice:
    """A distance to sequences with the wanted counts; counts decide."""

    def build(config: TrainConfig) -> Objective:
        distance = loss_of(config)
        return Objective(
            lambda spikes, labels, _=None: _distance_to_wanted_train(distance, config, spikes, labels), _count
        )

    return LossChoice(build, wants_whole_counts=True)


def _first_spike(config: TrainConfig) -> Objective:
    def loss(spikes: Tensor, labels: Tensor, _: Tensor | None = None) -> Tensor:
        times, deadline = first_spike_time(spikes), config.data.kind.deadline * config.data.time_steps
        scale = config.learning.logit_scale or 1 / config.data.time_steps
        return losses.first_spike_loss(times, labels, scale=scale, deadline=deadline)

    return Objective(loss, lambda spikes, _=None: -first_spike_time(spikes))


def _tet(config: TrainConfig) -> Objective:
    # Where labels change within a sequence no step is pulled to the potential of another: no regulariser.
    options: dict[str, Any] = {"regularization": 0.0} if config.data.kind.labels_steps else {}

    def loss(potential: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
        return losses.tet_loss(potential, labels, lengths=lengths, **options)

    return Objective(loss, (lambda potential, _=None: potential) if options else _mean_potential)


def _cross_entropy_of_means(config: TrainConfig) -> Objective:
    return Objective(
        lambda potential, labels, lengths=None: cross_entropy(_mean_potential(potential, lengths), labels),
        _mean_potential,
    )


def _wanted(config: TrainConfig) -> dict[str, Any]:
    return {"desired": config.learning.desired, "undesired": config.learning.undesired}


LOSSES: Mapping[str, LossChoice] = MappingProxyType(
    {
        "count": _of_counts(
            lambda config: partial(losses.spike_count_loss, one_sided=True, **_wanted(config))
        ),
        "count+": _of_counts(lambda config: partial(losses.spike_count_plus_loss, **_wanted(config))),
        "cross-entropy": _entropy_of_counts(losses.count_cross_entropy),
        "cross-entropy+": _entropy_of_counts(losses.count_cross_entropy_plus),
        "first-spike": LossChoice(_first_spike, scale="time_scale"),
        "spike-time": _of_trains(lambda config: losses.spike_time_loss),
        "van-rossum": _of_trains(lambda config: partial(losses.van_rossum_loss, tau=config.net.tau_s)),
        "tet": LossChoice(_tet, of_potentials=True, knows_lengths=True, labels_steps=True),
        "mean-potential": LossChoice(_cross_entropy_of_means, of_potentials=True, knows_lengths=True),
    }
)


def _count(spikes: Tensor, lengths: Tensor | None = None) -> Tensor:
    return spike_count(spikes, lengths=lengths)


def _mean_potential(potential: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Mean over a sample's own steps `[N, classes]`."""
    if lengths is None:
        return potential.mean(0)
    return without_padding(potential, lengths).sum(0) / lengths.clamp(min=1).unsqueeze(1)


def _distance_to_wanted_train(loss: Loss, config: TrainConfig, spikes: Tensor, labels: Tensor) -> Tensor:
    steps, _, classes = spikes.shape
    desired, undesired = int(config.learning.desired), int(config.learning.undesired)
    train = losses.target_spike_train(
        labels, steps, classes, desired=desired, undesired=undesired, dtype=spikes.dtype
    )
    # The labelled neuron weighs as much as all others together.
    weight = torch.full(
        (len(labels), classes), 1 / max(classes - 1, 1), dtype=spikes.dtype, device=spikes.device
    )
    return loss(spikes, train, neuron_weight=weight.scatter(1, labels.unsqueeze(1), 1.0))
