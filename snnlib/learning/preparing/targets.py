"""Rates and potentials that `prepare_` aims at, as measured in docs/measurements/training.md."""

from torch import Tensor

# Hidden layers learn from few spikes with large weights, but the layer behind a small one needs some at every step.
_HIDDEN_RATE = 0.03
_SPIKES_PER_STEP = 3
_HIGHEST_HIDDEN_RATE = 0.1
# Cross-entropy pushes all outputs but one down at first; those that start much lower fall silent for good.
OUTPUT_RATE = 0.5
# Of standardised layers, hidden and output, whose channels keep rates of their own around it (docs/measurements).
STANDARDIZED_RATE = 0.08
# Mean rates between which recurrent layers, and nets with batch norm, stay as they are drawn: neurons that differ, some
# of them silent, learned as well as neurons at one rate, and from pixels better (docs/measurements).
LEAST_RATE, HIGHEST_RATE = 0.02, 0.3
# RMS of a readout's potentials: logits of order 1.
POTENTIAL = 1.0
# Of the rate that a channel cannot exceed on the batch: beyond it the weights would grow without end.
REACHABLE_SHARE = 0.6
# Of the error in the rates as drawn, that which a search must come below to change the weights.
_BETTER = 0.7


def hidden_rate(current: Tensor) -> float:
    """Wanted rate of a hidden layer with this input current `[T, N, C, ...]`."""
    neurons = current[0, 0].numel()
    return min(max(_HIDDEN_RATE, _SPIKES_PER_STEP / neurons), _HIGHEST_HIDDEN_RATE)


def much_better(found: Tensor, drawn: Tensor, wanted: Tensor) -> bool:
    """Returns whether rates are nearer to the wanted ones than those as drawn, by more than a search is exact.

    Else weights that were drawn to fit each other stay.
    """
    error, error_drawn = (float((rates - wanted).abs().sum()) for rates in (found, drawn))
    return error < _BETTER * error_drawn


def wanted_counts(steps: int) -> tuple[int, int]:
    """Wanted spikes of the label's output and of the others, for `losses.spike_count_loss` behind standardised layers.

    Half of all steps and a fifteenth, and of few steps five and one, as Zhu et al. take them.
    """
    return max(steps // 2, min(steps, 5)), max(steps // 15, 1)
