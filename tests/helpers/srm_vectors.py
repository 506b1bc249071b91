"""Worked sequences of the SRM neuron, in float64 with threshold 1: what must come out, to six decimals.

The weight signal `a` is dL/ds: positive where the papers' dL/dt tables are negative.
"""

from typing import NamedTuple

NAN = float("nan")


class Vector(NamedTuple):
    taus: tuple[float, float, float]
    current: list[float]
    gradient: list[float]
    spike_steps: list[int]
    potential: list[float]
    delta_ut: list[float]
    a: list[float]
    b: list[float]


# The gradient is NaN away from spikes: it must not be read there.
V1 = Vector(
    (5, 3, 2.5),
    [1.2] * 8,
    [NAN, NAN, 1, NAN, NAN, 1, NAN, NAN],
    [2, 5],
    [0.4, 0.986667, 1.633778, 0.4, 0.986667, 1.633778, 0.4, 0.986667],
    [0.72, 1.152, 1.4112, 0.72, 1.152, 1.4112, 0.72, 1.152],
    [0.833333, 0.755495, 0.51511, 0.833333, 0.755495, 0.51511, 0, 0],
    [0.153061, 0.255102, 0.42517, 0.153061, 0.255102, 0.42517, 0, 0],
)
V2 = Vector(
    (5, 3, 2.5),
    [3.3, 0, 0, 0, 2, 2, 0, 0],
    [1, NAN, NAN, NAN, NAN, -2, NAN, NAN],
    [0, 5],
    [1.1, 0, 0, 0, 0.666667, 1.644444, 0, 0],
    [1.98, 0, 0, 0, 1.2, 1.92, 0, 0],
    [0.30303, -1.002236, -1.084444, -1.10303, -1.0, -0.681818, 0, 0],
    [0.30303, -0.081, -0.135, -0.225, -0.375, -0.625, 0, 0],
)
# Dyadic numbers: potentials are exact in float32 as well.
V3 = Vector(
    (4, 2, 2),
    [1, 1, 0.5, 0, 4, -1],
    [NAN, 2, NAN, NAN, -3, NAN],
    [1, 4],
    [0.5, 1.125, 0.25, 0.3125, 2.296875, -0.5],
    [0.5, 0.75, 0.25, 0.125, 2.0625, -0.5],
    [2, 1.6, -0.897638, -0.944882, -0.755906, 0],
    [0.666667, 1.333333, -0.181818, -0.363636, -0.727273, 0],
)
V5_SILENT = Vector((5, 3, 2.5), [2], [NAN], [], [0.666667], [1.2], [0], [0])
V5_SPIKE = Vector((5, 3, 2.5), [3.5], [1], [0], [1.166667], [2.1], [0.285714], [0.285714])
# The gradient kernel is shorter than the synapse and its trace is negative at the spike: no input gradient.
NEGATIVE_TRACE = Vector(
    (5, 3, 2),
    [-5, 0, 11, -5, -6],
    [NAN, NAN, NAN, 1, NAN],
    [3],
    [-1.666667, -2.444444, 0.97037, 1.060247, -2],
    [-2.5, -1.25, 4.875, -0.0625, -3],
    [2.120691, 2.157037, 1.955556, 1.333333, 0],
    [0, 0, 0, 0, 0],
)

VECTORS = {
    "V1": V1,
    "V2": V2,
    "V3": V3,
    "V5 silent": V5_SILENT,
    "V5 spike": V5_SPIKE,
    "negative trace": NEGATIVE_TRACE,
}
