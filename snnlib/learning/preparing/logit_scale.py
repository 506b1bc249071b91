"""Scale of the logits of a prepared net: the first loss is near ln(classes), and no class is sure."""

from __future__ import annotations

from torch import Tensor

from snnlib.learning.decoding import first_spike_time, spike_count
from snnlib.learning.preparing.course import rms

# Standard deviation of a sample's first logits: a loss of ln(classes) + 0.13. With two and more, LIF outputs are driven
# to fire at nearly every step, where a surrogate gradient is 0 (docs/measurements/learning.md).
_SPREAD = 0.5


def logit_scale(scores: Tensor) -> float:
    """Returns the factor at which the scores `[N, classes]` of a sample differ by 0.5, to two digits.

    1 where the scores of all samples are equal.
    """
    spread = rms(scores - scores.mean(1, keepdim=True))
    return float(f"{_SPREAD / spread:.2g}") if spread > 0 else 1.0


def scales(output: Tensor, batch_first: bool) -> tuple[float, float]:
    """Returns the scales of counts and of first spike times for outputs `[T, N, classes]`.

    A logit per step is the most for times: outputs that all fire in the first steps differ by nothing.
    """
    times = first_spike_time(output, batch_first)
    return logit_scale(spike_count(output, batch_first)), min(logit_scale(times), 1.0)
