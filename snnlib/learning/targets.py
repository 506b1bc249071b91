"""What `prepare_` aims at: rates and potentials, as measured in docs/training.md."""

from torch import Tensor

# Hidden layers learn from few spikes with large weights, but the layer behind a small one needs some at every step.
_HIDDEN_RATE = 0.03
_SPIKES_PER_STEP = 3
_HIGHEST_HIDDEN_RATE = 0.1
# Cross-entropy pushes all outputs but one down at first; those that start much lower fall silent for good.
OUTPUT_RATE = 0.5
# RMS of a readout's potentials: logits of order 1.
POTENTIAL = 1.0
# Of the rate that a channel cannot exceed on the batch: beyond it the weights would grow without end.
REACHABLE_SHARE = 0.5
# A layer within these bounds was prepared before, on this batch or one like it, and is left as it is.
RATE_TOLERANCE, SPREAD_TOLERANCE = 0.1, 0.02


def hidden_rate(current: Tensor) -> float:
    """Wanted rate of a hidden layer with this input current `[T, N, C, ...]`."""
    neurons = current[0, 0].numel()
    return min(max(_HIDDEN_RATE, _SPIKES_PER_STEP / neurons), _HIGHEST_HIDDEN_RATE)


def close(rates: Tensor, wanted: Tensor) -> bool:
    """Whether rates per channel are what is wanted."""
    return bool(((rates - wanted).abs() <= RATE_TOLERANCE * wanted).all())
