"""Batches of sequences of different lengths: steps of samples and padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from snnlib.checks import check_floating, check_lengths, check_rank
from snnlib.ops.sequence_layout import cat, outer_dims
from snnlib.sequences.history import unpacked

__all__ = ["valid_steps"]

State = tuple[Tensor, ...]

# Lengths of the samples and number of steps T of the call of a net that is under way, see `snnlib.run_ragged`.
_OF_CALL: ContextVar[tuple[Tensor, int] | None] = ContextVar("lengths of the call", default=None)
# An entry per such call of any thread. A compiler, which cannot read the variable, watches whether there is one.
_CALLS: list[int] = []


def valid_steps(lengths: Tensor, steps: int, *, batch_first: bool = False) -> Tensor:
    """True where a step belongs to its sample: `[T, N]`, `[N, T]` with `batch_first`, from the lengths `[N]`.

    >>> import torch, snnlib
    >>> snnlib.functional.valid_steps(torch.tensor([1, 3]), 3).int().tolist()
    [[1, 1], [0, 1], [0, 1]]
    """
    numbers = torch.arange(steps, device=lengths.device)
    return numbers < lengths[:, None] if batch_first else numbers[:, None] < lengths


def without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """The sequences with zeros, and gradients of zero, in the steps that belong to no sample."""
    samples_first = outer_dims(x)[0] == 1
    valid = valid_steps(lengths, len(x), batch_first=samples_first)
    # The result has the memory order of the mask.
    valid = valid.t() if samples_first else valid
    return torch.where(valid.reshape(*valid.shape, *[1] * (x.dim() - 2)), x, torch.zeros_like(x))


@contextmanager
def sequences_of(lengths: Tensor, steps: int) -> Iterator[None]:
    """Within the block, sequences of `steps` steps hold samples of these lengths, for hooks and layers that ask."""
    token = _OF_CALL.set((lengths, steps))
    _CALLS.append(steps)
    try:
        yield
    finally:
        _CALLS.pop()
        _OF_CALL.reset(token)


def lengths_of_call(x: Tensor) -> Tensor | None:
    """Lengths `[N]` of the samples of `x` `[T, N, ...]` in a call of `snnlib.run_ragged`, None outside one.

    Raises:
        ValueError: `x` has other steps or samples than the net's input.
    """
    given = _OF_CALL.get() if _CALLS else None
    if given is None:
        return None
    lengths, steps = given
    found = x.shape[:2]
    if found != (steps, len(lengths)):
        raise ValueError(
            f"lengths: expected layers that keep the {steps} steps of {len(lengths)} samples, got one that gives "
            f"{found[0]} steps of {found[1]}"
        )
    return lengths.to(x.device)


def run_with_lengths(
    run: Callable[[Tensor, State | None], tuple[Tensor, State]],
    x: Tensor,
    state: State | None,
    lengths: Tensor,
) -> tuple[Tensor, State]:
    """Value and state of sequences of different lengths by `run(x, state)` of a causal module, which gives both.

    As many chunks are run as there are lengths.

    Values after a sample's last step are 0, and its state is that after its own last step.
    """
    check_floating("x", x)
    check_rank("x", x, "[T, N, ...]", at_least=2)
    lengths = check_lengths(lengths, x)
    x = without_padding(x, lengths)
    values: list[Tensor] = []
    last: State | None = None
    done = 0
    # The first chunk has no steps and gives the state before them.
    for border in sorted({0, *lengths.tolist()}):
        value, state = run(x[done:border], state)
        values.append(value)
        over = lengths >= border
        parts = state if last is None else last
        last = tuple(_chosen(over, now, before) for now, before in zip(state, parts, strict=True))
        done = border
    assert last is not None
    value = cat((*values, values[0].new_zeros(len(x) - done, *values[0].shape[1:])), x)
    return without_padding(value, lengths), last


def _chosen(over: Tensor, now: Tensor, before: Tensor) -> Tensor:
    """States `[K, N, ...]`, those of the samples that are not over yet from `now`."""
    # The steps that wait for delays are packed to bits in chunks that hold 0 and 1 alone.
    if now.dtype != before.dtype:
        if now.dtype == torch.uint8:
            now = unpacked(now, before.shape[1:]).to(before.dtype)
        elif before.dtype == torch.uint8:
            before = unpacked(before, now.shape[1:]).to(now.dtype)
    return torch.where(over.reshape(-1, *[1] * (now.dim() - 2)), now, before)
