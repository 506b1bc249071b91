"""cuDNN's three flags: those of a call where given, else torch's global ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch


class CudnnFlags(NamedTuple):
    """cuDNN's flags of one call."""

    benchmark: bool
    deterministic: bool
    allow_tf32: bool


def _tf32_switch() -> tuple[Any, str, dict[bool, Any]]:
    """(owner, attribute, values for off and on) of the flag that convolutions follow.

    Newer versions of torch have one per operator, and raise for the older, common flag where the two disagree.
    """
    conv = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(conv, "fp32_precision"):
        return conv, "fp32_precision", {False: "ieee", True: "tf32"}
    return torch.backends.cudnn, "allow_tf32", {False: False, True: True}


def resolve(benchmark: bool | None, deterministic: bool | None, allow_tf32: bool | None) -> CudnnFlags:
    """Torch's global flags where None was given."""
    if benchmark is None:
        benchmark = torch.backends.cudnn.benchmark
    if deterministic is None:
        deterministic = torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    if allow_tf32 is None:
        owner, name, values = _tf32_switch()
        allow_tf32 = bool(getattr(owner, name) == values[True])
    return CudnnFlags(benchmark, deterministic, allow_tf32)


@contextmanager
def torch_flags(
    benchmark: bool | None, deterministic: bool | None, allow_tf32: bool | None
) -> Iterator[None]:
    """Set torch's global flags for a block; None leaves one as it is.

    `torch.backends.cudnn.flags` would set all of them, the precision of other operators included.
    """
    owner, name, values = _tf32_switch()
    wanted: list[tuple[Any, str, Any]] = [
        (torch.backends.cudnn, "benchmark", benchmark),
        (torch.backends.cudnn, "deterministic", deterministic),
        (owner, name, None if allow_tf32 is None else values[allow_tf32]),
    ]
    wanted = [entry for entry in wanted if entry[2] is not None]
    before = [getattr(owner, name) for owner, name, _ in wanted]
    try:
        for owner, name, value in wanted:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(wanted, before, strict=True):
            setattr(owner, name, value)
