"""Class scores of a net's output, from which predictions are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor

from snnlib.app.report.recorder import Recorded, is_output_of_spikes

Scores = Callable[[Any], Tensor]
Decision = Literal["spike count", "mean potential", "output", "scores", "every step"]

# Sentences of the report.
READ_FROM: dict[Decision, str] = {
    "spike count": "the output neuron with the most spikes",
    "mean potential": "the output neuron with the highest mean membrane potential",
    "output": "the highest output",
    "scores": "the highest score",
    "every step": "the highest output of each step",
}


def default_scores(output: Any, recorded: dict[str, Recorded], batch_first: bool) -> tuple[Decision, Scores]:
    """Chooses how class scores `[N, K]` are read from an output: spikes are counted, potentials averaged over time.

    Args:
        output: the net's output.
        recorded: its spiking layers in the same pass.
        batch_first: whether the output is `[N, T, K]`.
    """
    if isinstance(output, Tensor) and output.dim() == 2:
        return "output", lambda answer: answer
    if not (isinstance(output, Tensor) and output.dim() == 3):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"scores: expected a function for an output other than [N, K] and [T, N, K], got {shape}"
        )
    time = int(batch_first)
    if is_output_of_spikes(output, recorded, batch_first):
        return "spike count", lambda answer: answer.sum(time)
    return "mean potential", lambda answer: answer.mean(time)
