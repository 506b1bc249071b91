"""Scale of the logits of a prepared net: the first loss is near ln(classes), and no class is sure."""

from __future__ import annotations

from torch import Tensor

from snnlib.learning.decoding import first_spike_time, spike_count
from snnlib.learning.preparing.course import rms

# Standard deviation of a sample's first logits: a loss of ln(classes) + 0.05. With two and more, LIF outputs are driven
# to fire at nearly every step, where a surrogate gradient is 0 (docs/measurements/first-loss.md).
_OF_SURROGATES = 0.3
# Scale for outputs that learn from their own spikes and have a gradient at any rate: counts of 30 steps need no factor.
_OF_SPIKES = 0.7
_OF_TIMES = 0.5


def _scale(scores: Tensor, wanted: float) -> float:
    """Returns the factor, to two digits, that gives the scores `[N, classes]` of a sample a standard deviation.

    1 where the scores of all samples are equal.
    """
    spread = rms(scores - scores.mean(1, keepdim=True))
    return float(f"{wanted / spread:.2g}") if spread > 0 else 1.0


def scales(output: Tensor, learns_when_silent: bool) -> tuple[float, float]:
    """Returns the scales of counts and of first spike times for outputs `[T, N, classes]`.

    A logit per step is the most for times: outputs that all fire in the first steps differ by nothing.
    """
    counts = spike_count(output)
    times = first_spike_time(output)
    wanted = _OF_SURROGATES if learns_when_silent else _OF_SPIKES
    return _scale(counts, wanted), min(_scale(times, _OF_TIMES), 1.0)
