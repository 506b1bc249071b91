"""torch.library ops under `torch.ops.snnlib`: check, allocate, call a kernel or the reference; fakes and autograd.

Six families, each a forward and a backward op: `scan`, `layer`, `currents`, `recurrent`, `delay` and `pool`. `conv`
has the two backward passes of a convolution that `compat` publishes. Public functions with checked arguments and full
documentation are in `snnlib.functional`.
"""

from snnlib.ops import (
    avg_pool,
    batch_norm,
    conv,
    conv_layout,
    currents,
    delay,
    layer_backward,
    layer_forward,
    max_pool,
    normalized_scan,
    pool,
    recurrent,
    recurrent_args,
    scan,
    scan_plan,
    scan_pool,
    scan_program,
)

__all__ = [
    "avg_pool",
    "batch_norm",
    "conv",
    "conv_layout",
    "currents",
    "delay",
    "layer_backward",
    "layer_forward",
    "max_pool",
    "normalized_scan",
    "pool",
    "recurrent",
    "recurrent_args",
    "scan",
    "scan_plan",
    "scan_pool",
    "scan_program",
]


def __dir__() -> list[str]:
    return sorted(__all__)
