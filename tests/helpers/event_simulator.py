"""SRM neurons in continuous time with exact spike times: the ground truth for time gradients.

`u(t) = sum over inputs k since the last spike of w_k eps(t - t_k)`, `eps(t) = c (exp(-t/tau_m) - exp(-t/tau_s))`,
`c = tau_m / (tau_m - tau_s)`. A spike fires where u reaches 1 from below and erases all inputs before it. Between two
inputs u is `A exp(-t/tau_m) - B exp(-t/tau_s)` with one extremum at most, so every crossing is bracketed.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spike:
    time: float
    slope: float  # u' at the crossing


@dataclass(frozen=True)
class Neuron:
    tau_m: float
    tau_s: float

    def eps(self, t: float) -> float:
        c = self.tau_m / (self.tau_m - self.tau_s)
        return c * (math.exp(-t / self.tau_m) - math.exp(-t / self.tau_s))

    def eps_slope(self, t: float) -> float:
        c = self.tau_m / (self.tau_m - self.tau_s)
        return c * (math.exp(-t / self.tau_s) / self.tau_s - math.exp(-t / self.tau_m) / self.tau_m)

    def spikes(self, times: Sequence[float], weights: Sequence[float], horizon: float) -> list[Spike]:
        """Spikes up to the horizon for sorted input times."""
        found: list[Spike] = []
        edges = [*times, horizon]
        last = -math.inf
        for index, begin in enumerate(times):
            start, end = begin, edges[index + 1]
            while start < end:
                live = [k for k in range(index + 1) if times[k] >= last]
                crossing = self._crossing([(times[k], weights[k]) for k in live], start, end)
                if crossing is None:
                    break
                slope = sum(weights[k] * self.eps_slope(crossing - times[k]) for k in live)
                found.append(Spike(crossing, slope))
                # Inputs at the very time of the spike are older than the reset.
                last = start = math.nextafter(crossing, math.inf)
        return found

    def _crossing(self, inputs: Sequence[tuple[float, float]], begin: float, end: float) -> float | None:
        def excess(t: float) -> float:
            return sum(w * self.eps(t - at) for at, w in inputs) - 1

        points = [begin, end]
        # Extremum of A exp(-t/tau_m) - B exp(-t/tau_s), t counted from `begin`.
        a = sum(w * math.exp(-(begin - at) / self.tau_m) for at, w in inputs) / self.tau_m
        b = sum(w * math.exp(-(begin - at) / self.tau_s) for at, w in inputs) / self.tau_s
        if a * b > 0:
            turn = begin + math.log(b / a) * self.tau_m * self.tau_s / (self.tau_m - self.tau_s)
            if begin < turn < end:
                points.insert(1, turn)
        for low, high in itertools.pairwise(points):
            if excess(low) < 0 <= excess(high):
                return bisect(excess, low, high)
        return None


def bisect(f, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """Root of an f that is negative at `low` and not at `high`, to the last bit."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        if f(middle) < 0:
            low = middle
        else:
            high = middle
