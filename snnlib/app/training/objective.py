"""What a run optimises and how it decides: one loss and one score per class for each name in the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snnlib.app.training.choices import STEPS_LABELLED
from snnlib.app.training.config import TrainConfig
from snnlib.learning import losses
from snnlib.learning.decoding import first_spike_time, spike_count
from snnlib.sequences.lengths import without_padding

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


def build_objective(config: TrainConfig) -> Objective:
    """The objective that the settings name. Losses on counts and on spike trains decide by counts."""
    wanted: dict[str, Any] = {"desired": config.desired, "undesired": config.undesired}
    scale = config.logit_scale
    of_counts: dict[str, Loss] = {
        "count": partial(losses.spike_count_loss, one_sided=True, **wanted),
        "count+": partial(losses.spike_count_plus_loss, **wanted),
        "cross-entropy": partial(losses.count_cross_entropy, scale=scale),
        "cross-entropy+": partial(losses.count_cross_entropy_plus, scale=scale),
    }
    of_trains: dict[str, Loss] = {
        "spike-time": losses.spike_time_loss,
        "van-rossum": partial(losses.van_rossum_loss, tau=config.tau_s),
    }
    if loss := of_counts.get(config.loss):
        return Objective(
            lambda spikes, labels, lengths=None: loss(spike_count(spikes, lengths=lengths), labels),
            lambda spikes, lengths=None: spike_count(spikes, lengths=lengths),
        )
    if distance := of_trains.get(config.loss):
        return Objective(
            lambda spikes, labels, _=None: _distance_to_wanted_train(distance, config, spikes, labels),
            lambda spikes, _=None: spike_count(spikes),
        )
    if config.loss == "first-spike":
        return Objective(
            lambda spikes, labels, _=None: losses.first_spike_loss(
                first_spike_time(spikes), labels, scale=scale, deadline=config.time_steps / 2
            ),
            lambda spikes, _=None: -first_spike_time(spikes),
        )
    if config.data in STEPS_LABELLED:
        # Labels change within a sequence, so no step is pulled to the potential of another: no regulariser.
        return Objective(
            lambda potential, labels, lengths=None: losses.tet_loss(
                potential, labels, regularization=0.0, lengths=lengths
            ),
            lambda potential, _=None: potential,
        )
    if config.loss == "mean-potential":
        return Objective(
            lambda potential, labels, lengths=None: cross_entropy(
                _mean_potential(potential, lengths), labels
            ),
            _mean_potential,
        )
    return Objective(
        lambda potential, labels, lengths=None: losses.tet_loss(potential, labels, lengths=lengths),
        _mean_potential,
    )


def _mean_potential(potential: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Mean over a sample's own steps `[N, classes]`."""
    if lengths is None:
        return potential.mean(0)
    return without_padding(potential, lengths, 0).sum(0) / lengths.clamp(min=1).unsqueeze(1)


def _distance_to_wanted_train(loss: Loss, config: TrainConfig, spikes: Tensor, labels: Tensor) -> Tensor:
    steps, _, classes = spikes.shape
    desired, undesired = int(config.desired), int(config.undesired)
    train = losses.target_spike_train(
        labels, steps, classes, desired=desired, undesired=undesired, dtype=spikes.dtype
    )
    # The labelled neuron weighs as much as all others together.
    weight = torch.full(
        (len(labels), classes), 1 / max(classes - 1, 1), dtype=spikes.dtype, device=spikes.device
    )
    return loss(spikes, train, neuron_weight=weight.scatter(1, labels.unsqueeze(1), 1.0))
