"""Target rates and potentials of `prepare_`, from docs/measurements/training.md."""

# Hidden layers learn from few spikes with large weights, but the layer behind a small one needs some at every step.
_HIDDEN_RATE = 0.03
_SPIKES_PER_STEP = 3
_HIGHEST_HIDDEN_RATE = 0.1
# Cross-entropy pushes all outputs but one down at first; those that start much lower fall silent for good.
OUTPUT_RATE = 0.5
# Rate of standardised layers, hidden and output, whose channels keep rates of their own around it (docs/measurements).
STANDARDIZED_RATE = 0.08
# Mean rates between which recurrent layers, and nets with batch norm, stay as they are drawn: neurons that differ, some
# of them silent, learned as well as neurons at one rate, and from pixels better (docs/measurements).
LEAST_RATE, HIGHEST_RATE = 0.02, 0.3
# RMS of a readout's potentials: logits of order 1.
POTENTIAL = 1.0
# Share of the largest rate of a channel on the batch: beyond it the weights would grow without end.
REACHABLE_SHARE = 0.6


def hidden_rate(neurons: int) -> float:
    """Returns the target rate of a hidden layer with this number of neurons."""
    return min(max(_HIDDEN_RATE, _SPIKES_PER_STEP / neurons), _HIGHEST_HIDDEN_RATE)


def wanted_counts(steps: int) -> tuple[int, int]:
    """Returns target counts of labelled and other outputs for `losses.spike_count_loss` and standardised layers.

    They are a half and a fifteenth of all steps, at few steps five and one, as in Zhu et al.
    """
    return max(steps // 2, min(steps, 5)), max(steps // 15, 1)
