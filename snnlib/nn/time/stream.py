"""Streaming: runs a net on a sequence in chunks, with the spikes of the whole sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.neurons.base import Output
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.fused_block import Block, PooledLayer
from snnlib.nn.time.time_mixing import check_steps_kept, check_time_steps, runs_with_state

__all__ = ["Stream"]

# By name and number of the call: the tuple that `run` gives.
States = dict[tuple[str, int], tuple[Tensor, ...]]


class Stream:
    """Runs a module on a sequence in chunks of any length, and holds the state in between.

    `Stream` takes a layer or any net of layers: neurons continue from their states, and `SpikeDropout` keeps its mask.
    Set `mixes_time = False` in your own module if its `forward` treats every step by itself; a module with a state
    needs a method `run(x, state=None)` that returns `snnlib.neurons.Output`. The stream alone holds the state; one
    module may serve several streams. For equal currents the spikes are bit for bit those of the whole sequence.
    Gradients stop at chunk borders.

    Args:
        module: a layer or net. Chunks may differ in length, but not in batch size.

    Raises:
        ValueError: in a call, a chunk whose samples or frames do not fit the state, or a module that mixes time steps
            or lacks `mixes_time`; the message names it, and the state stays the same.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(6, 5), snnlib.SRMLinear(5, 3))
    >>> x = (torch.rand(20, 2, 6) < 0.5).float()
    >>> stream = snnlib.nn.Stream(net)
    >>> chunks = [stream(chunk) for chunk in x.split([3, 1, 16])]
    >>> torch.equal(torch.cat(chunks), net(x))
    True
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._states: States = {}

    def reset(self) -> None:
        """Starts a new sequence: deletes all states."""
        self._states.clear()

    @property
    def states(self) -> dict[str, tuple[Tensor, ...]]:
        """States by layer name; a layer that is called several times also has `name:1` and so on."""
        return {f"{name}:{call}" if call else name: state for (name, call), state in self._states.items()}

    def __repr__(self) -> str:
        held = ", ".join(name or "module" for name in self.states) or "none yet"
        return f"Stream({type(self.module).__name__}, state of: {held})"

    def __call__(self, chunk: Tensor) -> Any:
        """Returns the output of the module for the next steps of the sequence.

        Raises:
            ValueError: a module that mixes time steps, changes their number or lacks `mixes_time`.
        """
        check_time_steps("module", self.module)
        out, after = run_chunk(self.module, chunk, self._states, detach=True)
        time_dim = int(any(getattr(layer, "batch_first", False) for layer in self.module.modules()))
        check_steps_kept("module", self.module, chunk, out, time_dim)
        # Only a chunk that went through counts: after an error the stream stands where it was.
        self._states.update(after)
        return out


def run_chunk(module: nn.Module, chunk: Tensor, states: States, *, detach: bool) -> tuple[Any, States]:
    """Returns the output of a module for the next steps of a sequence, and updates the states of its layers."""
    after: States = {}
    # Call number of each layer within this chunk, so that a shared layer has a state for each place.
    calls: dict[str, int] = {}
    blocks = blocks_by_part(module)
    with ExitStack() as undo:
        for name, layer in module.named_modules():
            if runs_with_state(layer):
                undo.enter_context(_running(layer, blocks.get(layer), name, calls, states, after))
        out = module(chunk)
    if detach:
        after = {key: tuple(part.detach() for part in state) for key, state in after.items()}
    return out, after


def _usable(state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...] | None:
    """Returns the state for this chunk; autograd needs copies of tensors made in inference mode."""
    if state is None or torch.is_inference_mode_enabled() or torch.compiler.is_compiling():
        return state
    return tuple(part.clone() if part.is_inference() else part for part in state)


@contextmanager
def _running(
    layer: nn.Module, block: Block | None, name: str, calls: dict[str, int], states: States, after: States
) -> Iterator[None]:
    """Context in which calls of a layer and its block go through `run`, with the layer's state."""

    def going_on(run: Callable[..., Output]) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            call = calls.get(name, 0)
            calls[name] = call + 1
            value, after[name, call] = run(x, _usable(states.get((name, call))))
            return value

        return forward

    changed = {"forward": (layer, going_on(layer.run))}  # type: ignore[arg-type]
    if isinstance(block, PooledLayer):
        # The neurons within its layer have a `run` as well, which is not called.
        changed["forward"][1].sees_blocks = True  # type: ignore[attr-defined]
        if layer is block.neurons:
            changed["run_fused"] = block, going_on(block.run)
    for method, (owner, forward) in changed.items():
        owner.__dict__[method] = forward
    try:
        yield
    finally:
        for method, (owner, _) in changed.items():
            del owner.__dict__[method]
