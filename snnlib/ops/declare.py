"""Declaration of ops by their schemas: the functions of an op take its arguments as attributes of one object."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from snnlib.checks import warn_caller
from snnlib.ops.direct import Op

Function = Callable[[SimpleNamespace], Any]

# Options of a convolution, `ConvOptions`, in the schemas of ops.
CONVOLUTION = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"

# Forward passes with products of weights.
_OF_WEIGHTS = ("::layer_forward", "::currents_forward", "::recurrent_forward")


def _no_flops(*_: object, **__: object) -> int:
    """Returns 0 to `torch.utils.flop_counter`, as the work of these ops follows the spikes, and names `profile`."""
    warn_caller(
        "FlopCounterMode: counts spiking layers as 0, as their work follows the spikes; take snnlib.profile(net, x)"
    )
    return 0


def _by_name(schema: torch.FunctionSchema) -> Callable[..., SimpleNamespace]:
    """Returns a function that names the arguments of a call as the schema does."""
    names = [argument.name for argument in schema.arguments]
    # Torch leaves out trailing arguments that have their defaults.
    defaults = {part.name: part.default_value for part in schema.arguments if part.has_default_value()}

    def named(*values: object, **others: object) -> SimpleNamespace:
        arguments = SimpleNamespace(**defaults)
        vars(arguments).update(zip(names, values, strict=False), **others)
        return arguments

    return named


def custom_op(name: str, schema: str) -> Callable[[Function], Op]:
    """Declares an op of torch; the function computes its outputs."""
    named = _by_name(torch._C.parse_schema(name + schema))

    def declare(function: Function) -> Op:
        def body(*values: object) -> Any:
            return function(named(*values))

        definition = torch.library.custom_op(name, body, mutates_args=(), schema=schema)
        if name.endswith(_OF_WEIGHTS):
            packet = getattr(torch.ops.snnlib, name.partition("::")[2])
            register_flop_formula(packet, get_raw=True)(_no_flops)
        return Op(definition, function, named)

    return declare


def register_fake(op: Op) -> Callable[[Function], Function]:
    """Registers the function that tells compilers shapes, dtypes and layouts of the outputs."""

    def register(function: Function) -> Function:
        op.definition.register_fake(lambda *values, **others: function(op.named(*values, **others)))
        return function

    return register
