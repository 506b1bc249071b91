"""torch.library ops under `torch.ops.snnlib`: check, allocate, call a path; with fake and autograd registrations.

Public functions with checked arguments and full documentation are in `snnlib.functional`.
"""

from snnlib.ops import (
    batch_norm,
    conv,
    currents,
    delay,
    delayed_linear,
    delayed_recurrent,
    layer,
    levels,
    max_pool,
    pool,
    recurrent,
    scan,
    scan_pool,
    srm,
    srm_conv_backward,
    srm_conv_forward,
    srm_pool,
)

__all__ = [
    "batch_norm",
    "conv",
    "currents",
    "delay",
    "delayed_linear",
    "delayed_recurrent",
    "layer",
    "levels",
    "max_pool",
    "pool",
    "recurrent",
    "scan",
    "scan_pool",
    "srm",
    "srm_conv_backward",
    "srm_conv_forward",
    "srm_pool",
]
