"""Slow, obvious torch code for every op: the ground truth of the tests and the path without a compiled module.

It runs on any device and in float64. State is float32, or float64 for float64 sequences, like in the kernels; the order
of operations is the kernels', so that spikes are equal bit for bit given equal currents.
"""

from snnlib.backends.reference import (
    batch_norm,
    delay,
    delayed_recurrent,
    exact,
    layer,
    linear,
    max_pool,
    pack,
    pool,
    program,
    recurrent,
    sparse,
    srm_conv,
)

__all__ = [
    "batch_norm",
    "delay",
    "delayed_recurrent",
    "exact",
    "layer",
    "linear",
    "max_pool",
    "pack",
    "pool",
    "program",
    "recurrent",
    "sparse",
    "srm_conv",
]


def __dir__() -> list[str]:
    return sorted(__all__)
