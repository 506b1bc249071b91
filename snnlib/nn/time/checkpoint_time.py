"""Long sequences in chunks with the gradient of the whole, in memory that depends on events instead of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from snnlib.checks import check_count, check_rank
from snnlib.functional.paths import entries_only
from snnlib.nn.memory.chunks import ChunkLength
from snnlib.nn.memory.freed import FreedMemory
from snnlib.nn.memory.save_packed import save_packed
from snnlib.nn.memory.shared_blocks import SharedBlocks
from snnlib.nn.time.stream import ChunkRunner
from snnlib.nn.time.time_mixing import check_steps_kept
from snnlib.sequences.time_first import time_first

__all__ = ["checkpoint_time"]

# Whose states a flat tuple holds, and of how many parts.
Keys = list[tuple[tuple[str, int], int]]


class Frames(Protocol):
    """Input that is computed chunk by chunk, such as `snnlib.data.EventBatch`."""

    time_steps: int

    def frames(self, first: int, end: int) -> Tensor:
        """Returns the steps from `first` to `end`, `[T, N, ...]`."""


def checkpoint_time(
    net: nn.Module,
    x: Tensor | Frames,
    *,
    steps: int | None = None,
    reduce: Callable[[Tensor, int], Tensor] | None = None,
    batch_first: bool = False,
) -> Tensor:
    """Returns the output of a net on a long sequence, with the whole gradient and the memory of a chunk.

    The sequence runs in chunks. `snnlib.save_packed` packs the tensors that a chunk saves for the backward pass, so
    that memory is proportional to events and spikes instead of T. Where packed tensors need too much memory, as with
    surrogates of unbounded support, later chunks save the states at their borders only, and the backward pass runs
    each such chunk once more, which costs one more forward pass. Spikes and states are bit for bit those of one call;
    gradients differ by the order of their sums.

    By default chunks are as long as is fastest within the free memory: a first chunk of 16 steps shows what a step
    saves, and later chunks save 64 MiB before packing on a CPU, which is faster than one call, or a quarter of the
    free memory (`MemoryReport.chunk_steps`). Chunks run once more when all packed tensors together take more than
    half of the free memory. With `steps` given they do when those of a chunk are larger than its states; memory is
    then that of `steps` steps and T / `steps` states, least near `steps` = sqrt(T).

    Args:
        net: a layer or net that `snnlib.Stream` accepts: SRM layers, `SpikingRNN`, spiking layers, neurons, and
            modules without time such as `torch.nn.Linear`.
        x: sequence `[T, N, ...]`, or an object with `time_steps` and `frames(first, end)` such as `data.EventBatch`,
            which computes the frames of one chunk at a time.
        steps: length of a chunk; the last one may be shorter. None, the default, chooses it by memory.
        reduce: function of a chunk's output, `reduce(output, first_step)`; its results are added up. A loss, or a sum
            over time, then needs no output of the whole length. None concatenates the outputs.
        batch_first: whether sequences are `[N, T, ...]`; for tensors only.

    Returns:
        The output `[T, N, ...]`, or the sum of the results of `reduce`.

    Raises:
        ValueError: a net with modules that mix time steps: batch normalisation in training mode, `torch.nn.RNN`,
            `Bidirectional`, or your own modules without `mixes_time = False`; or a sequence without steps.

    Source: Chen et al., "Training deep nets with sublinear memory cost", 2016, along time.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SpikingRNN(20, 32), torch.nn.Linear(32, 5))
    >>> x = (torch.rand(100, 4, 20) < 0.1).float()
    >>> scores = snnlib.checkpoint_time(net, x, reduce=lambda out, first: out.sum(0))
    >>> scores.shape
    torch.Size([4, 5])
    >>> scores.square().mean().backward()
    """
    # With it torch 2.6 imports sympy, which takes longer than all of snnlib.
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    if steps is not None:
        check_count("steps", steps)
    runner = ChunkRunner("net", net)
    runner.prepare()
    if isinstance(x, Tensor):
        check_rank("x", x, "[T, N, ...]", at_least=2)
        x = time_first(x, batch_first)
    total = len(x) if isinstance(x, Tensor) else x.time_steps
    if total < 1:
        raise ValueError("x: expected at least one time step, got none")
    keys: Keys = []
    flat: tuple[Tensor, ...] = ()
    outputs: list[Tensor] = []
    end, length = 0, ChunkLength(steps)
    freed, memory = FreedMemory(), SharedBlocks()
    held = [x] if isinstance(x, Tensor) else []
    while end < total:
        first, end = end, min(end + length.steps, total)

        # The chunk's input is made inside: what is kept for its second pass is the whole x, or the events.
        def run(*states: Tensor, first: int = first, end: int = end) -> tuple[Tensor, ...]:
            freed.begin_chunk()
            given = x[first:end] if isinstance(x, Tensor) else x.frames(first, end)
            given = time_first(given, batch_first) if isinstance(x, Tensor) else given
            return _chunk(runner, given, keys, states, reduce, first, batch_first)

        parts: tuple[Tensor, ...] | None = None
        if not length.replays:
            keys_before, random = tuple(keys), torch.get_rng_state()
            with save_packed(besides=held, memory=memory) as saved:
                parts = run(*flat)
            state_bytes = sum(state.nbytes for state in parts[1:])
            if length.add(end - first, saved, state_bytes, parts[0].device):
                # Once more, with what was kept let go.
                parts, keys[:] = None, keys_before
                torch.set_rng_state(random)
        out, *rest = parts or checkpoint(run, *flat, use_reentrant=False)
        flat = tuple(rest)
        outputs.append(out)
        _before_backward(flat, freed)
    if reduce is None:
        return torch.cat(outputs, int(batch_first))
    result = outputs[0]
    for out in outputs[1:]:
        result = result + out
    return result


def _before_backward(states: tuple[Tensor, ...], freed: FreedMemory) -> None:
    """Manages freed memory between the backward passes of two chunks as well."""
    for state in states:
        if state.requires_grad:
            # Called with the gradient of the states after a chunk, before the chunk's own backward pass.
            state.register_hook(lambda _: freed.begin_chunk())  # type: ignore[no-untyped-call]
            return


def _chunk(
    runner: ChunkRunner,
    x: Tensor,
    keys: Keys,
    states: tuple[Tensor, ...],
    reduce: Callable[[Tensor, int], Tensor] | None,
    first: int,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Returns the output of a chunk and the flat states after it; `keys` names their layers."""
    given = iter(states)
    before = {}
    for key, parts in keys if states else ():
        before[key] = tuple(next(given) for _ in range(parts))
    with entries_only():
        out, after = runner.run(x, before)
    if isinstance(out, Tensor):
        check_steps_kept("net", runner.module, *(time_first(part, batch_first) for part in (x, out)))
    keys[:] = [(key, len(state)) for key, state in after.items()]
    flat = [part for state in after.values() for part in state]
    return (out if reduce is None else reduce(out, first), *flat)
