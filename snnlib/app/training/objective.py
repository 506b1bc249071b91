"""What a run optimises and how it decides: one loss and one score per class for each name in the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snnlib.app.training.config import TrainConfig
from snnlib.learning import losses
from snnlib.learning.decoding import first_spike_time, spike_count

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Objective:
    """Loss and decision of a run, both read from the net's output `[T, N, classes]`.

    Args:
        loss: of output and labels `[N]`.
        scores: of the output, `[N, classes]`; the highest wins, ties go to the lowest class.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor], Tensor]


def build_objective(config: TrainConfig) -> Objective:
    """The objective that the settings name. Losses on counts and on trains decide by counts."""
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
        return Objective(lambda spikes, labels: loss(spike_count(spikes), labels), spike_count)
    if distance := of_trains.get(config.loss):
        return Objective(partial(_distance_to_wanted_train, distance, config), spike_count)
    if config.loss == "first-spike":
        return Objective(
            lambda spikes, labels: losses.first_spike_loss(
                first_spike_time(spikes), labels, scale=scale, deadline=config.time_steps / 2
            ),
            lambda spikes: -first_spike_time(spikes),
        )
    return Objective(losses.tet_loss, lambda potential: potential.mean(0))


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
