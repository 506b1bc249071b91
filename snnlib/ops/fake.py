"""Fake implementations of ops, from which compilers learn shapes, dtypes and layouts of results."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch._library.custom_ops import CustomOpDef

Fake = Callable[[SimpleNamespace], Any]


def register_fake(op: CustomOpDef) -> Callable[[Fake], Fake]:
    """Registers a fake that gets the op's arguments as attributes of one object."""
    arguments = op._opoverload._schema.arguments
    defaults = {argument.name: argument.default_value for argument in arguments}

    def register(outputs: Fake) -> Fake:
        op.register_fake(
            lambda *values, **named: outputs(
                SimpleNamespace(**{**defaults, **dict(zip(defaults, values, strict=False)), **named})
            )
        )
        return outputs

    return register
