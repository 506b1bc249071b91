"""Op cases of sparse connections: those of a full matrix with zeros, of which the ops get what is not zero."""

from typing import Any

import opdb_delayed_recurrent as late
import opdb_recurrent
import torch
from op_samples import Arguments, Sample
from torch import Tensor

# name: (frames by two axes, inputs, outputs, share of connections, share of inputs that are events).
SPARSE: dict[str, tuple[Any, ...]] = {
    "few": ((5, 3), 20, 33, 0.3, 0.2),
    "all connections": ((2, 2), 7, 17, 1.0, 0.5),
    "long rows, one frame": ((1, 1), 6, 200, 0.5, 0.7),
    "no connections": ((2, 3), 4, 5, 0.0, 0.5),
    "T = 0": ((0, 3), 4, 5, 0.5, 0.5),
    "N = 0": ((3, 0), 4, 5, 0.5, 0.5),
}
_RECURRENT = (
    "state",
    "lengths",
    "batch first",
    "next",
    "squares",
    "rests",
    "two states, four spikes",
    "once",
    "no gradient through time",
    "T = 0",
    "N = 0",
)
_LATE = (
    "one neuron",
    "state",
    "lengths",
    "batch first",
    "next",
    "longer than the sequence",
    "three states",
    "rests",
    "T = 0",
    "N = 0",
    "H = 0",
)


def _rows(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Starts and targets of the connections of a mask `[O, I]`."""
    starts = torch.zeros(mask.shape[1] + 1, dtype=torch.int64)
    starts[1:] = mask.sum(0).cumsum(0)
    return starts, mask.t().nonzero()[:, 1].int()


def _dense(weight: Tensor, starts: Tensor, targets: Tensor, outputs: int) -> Tensor:
    sources = torch.arange(len(starts) - 1).repeat_interleave(starts.diff())
    full = torch.zeros(len(starts) - 1, outputs, dtype=weight.dtype)
    return full.index_put((sources, targets.long()), weight).t()


def _arguments(generator: torch.Generator, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    frames, inputs, outputs, share, rate = SPARSE[name]
    starts, targets = _rows(torch.rand(outputs, inputs, generator=generator) < share)
    x = (torch.rand(*frames, inputs, generator=generator) < rate).double()
    x = x * torch.randint(1, 3, x.shape, generator=generator)
    weight = torch.randint(-8, 9, (len(targets),), generator=generator).double() / 8
    return x, weight, starts, targets, outputs


def sparse_sample(name: str) -> Sample:
    return Sample(name, lambda generator: _arguments(generator, name))


def sparse_backward_sample(name: str, needs: tuple[bool, bool] = (True, True)) -> Sample:
    def make(generator: torch.Generator) -> Arguments:
        x, *rest = _arguments(generator, name)
        shape = (*x.shape[:2], SPARSE[name][2])
        signal = torch.randint(-8, 9, shape, generator=generator).double() / 8
        return (signal, x, *rest, *needs)

    return Sample(name if all(needs) else f"{name}, needs {needs}", make)


def sparse_answer(
    x: Tensor, weight: Tensor, starts: Tensor, targets: Tensor, outputs: int
) -> list[Tensor | None]:
    return [x.double() @ _dense(weight.double(), starts, targets, outputs).t()]


def sparse_backward_answer(signal: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> list[Tensor | None]:
    *rows, need_x, need_weight = rest
    leaves = x.double().requires_grad_(), weight.double().requires_grad_()
    current = leaves[0] @ _dense(leaves[1], *rows).t()
    grads = torch.autograd.grad((current * signal.double()).sum(), leaves)
    return [grad if need else torch.zeros(0) for grad, need in zip(grads, (need_x, need_weight), strict=True)]


def _with_rows(arguments: Arguments, place: int, generator: torch.Generator) -> Arguments:
    """The arguments with sparse weights in the place of a matrix."""
    weight = arguments[place]
    mask = torch.rand(weight.shape, generator=generator) < 0.4
    return (*arguments[:place], weight.t()[mask.t()], *_rows(mask), *arguments[place + 1 :])


def _changed(sample: Sample, place: int) -> Sample:
    return Sample(sample.name, lambda generator: _with_rows(sample.make(generator), place, generator))


def recurrent_samples() -> tuple[Sample, ...]:
    return tuple(_changed(opdb_recurrent.recurrent_sample(name), 1) for name in _RECURRENT)


def recurrent_backward_samples() -> tuple[Sample, ...]:
    """Returns samples of signals and sums that need not come from these weights."""
    needs = {"lengths": (True, False), "batch first": (False, True)}
    found = (
        opdb_recurrent.recurrent_backward_sample(name, needs.get(name, (True, True))) for name in _RECURRENT
    )
    return tuple(_changed(sample, 4) for sample in found)


def recurrent_answer(
    current: Tensor, weight: Tensor, starts: Tensor, targets: Tensor, *rest: Any
) -> list[Tensor | None]:
    return opdb_recurrent.recurrent_answer(current, _dense(weight, starts, targets, current.shape[2]), *rest)


def recurrent_backward_answer(
    q: Tensor, of_state: Tensor, total: Tensor, value: Tensor, weight: Tensor, *others: Any
) -> list[Tensor | None]:
    starts, targets, *rest = others
    full = _dense(weight, starts, targets, total.shape[2])
    found = opdb_recurrent.recurrent_backward_answer(q, of_state, total, value, full, *rest)
    if found[1] is not None and found[1].numel():
        sources = torch.arange(len(starts) - 1).repeat_interleave(starts.diff())
        found[1] = found[1][targets.long(), sources]
    elif rest[-1]:
        found[1] = torch.zeros(weight.shape)
    if rest[1] is None and found[3] is not None:
        # Nobody asks for the gradient of spikes before the first step where there is no state.
        found[3][-1] = 0
    return found


def _with_late_rows(arguments: Arguments, place: int, generator: torch.Generator) -> Arguments:
    """Returns the arguments with sparse weights and delays, at this place and the next, instead of matrices."""
    changed = _with_rows(arguments, place, generator)
    starts, targets, delay, *rest = changed[place + 1 :]
    sources = torch.arange(len(starts) - 1).repeat_interleave(starts.diff())
    return (*changed[: place + 3], delay[targets.long(), sources], *rest)


def _late(sample: Sample, place: int) -> Sample:
    return Sample(sample.name, lambda generator: _with_late_rows(sample.make(generator), place, generator))


def late_samples() -> tuple[Sample, ...]:
    return tuple(_late(late.late_sample(name), 1) for name in _LATE)


def late_backward_samples() -> tuple[Sample, ...]:
    """Returns samples of signals and sums that need not come from these weights."""
    needs = {"lengths": (True, False, True), "next": (False, True, False), "batch first": (False, True, True)}
    found = (late.late_backward_sample(name, needs.get(name, (True, True, True))) for name in _LATE)
    return tuple(_late(sample, 4) for sample in found)


def late_answer(
    current: Tensor, weight: Tensor, starts: Tensor, targets: Tensor, delay: Tensor, *rest: Any
) -> list[Tensor | None]:
    full = (_dense(part, starts, targets, current.shape[2]) for part in (weight, delay))
    return late.late_answer(current, *full, *rest)


def late_backward_answer(
    q: Tensor, of_state: Tensor, total: Tensor, value: Tensor, weight: Tensor, *others: Any
) -> list[Tensor | None]:
    starts, targets, delay, *rest = others
    full = (_dense(part, starts, targets, total.shape[2]) for part in (weight, delay))
    found = late.late_backward_answer(q, of_state, total, value, *full, *rest)
    sources = torch.arange(len(starts) - 1).repeat_interleave(starts.diff())
    for place, needed in ((1, rest[-2]), (2, rest[-1])):
        grad = found[place]
        if needed and grad is not None:
            found[place] = grad[targets.long(), sources]
    return found
