"""Streaming: runs a net on a sequence in chunks, with the spikes of the whole sequence."""

from __future__ import annotations

from threading import Lock
from typing import Any

from torch import Tensor, nn

from snnlib.neurons.module import modules_within
from snnlib.nn.fusion.fuse import blocks_by_part
from snnlib.nn.fusion.fused_block import FusedLayer
from snnlib.nn.time.time_mixing import check_steps_kept, check_time_steps, runs_with_state
from snnlib.sequences.chunk import Chunk, Continued, States, run_chunk
from snnlib.sequences.time_first import time_first

__all__ = ["Stream"]


class Stream:
    """Runs a module on a sequence in chunks of any length, and holds the state in between.

    `Stream` takes a layer or any net of layers: neurons continue from their states, and `SpikeDropout` keeps its mask.
    Set `mixes_time = False` in your own module if its `forward` treats every step by itself; a module with a state
    needs a method `run(x, state=None)` that returns `snnlib.neurons.Output`. The stream alone holds the state; one
    module may serve several streams, each in a thread of its own. For equal currents the spikes are bit for bit those
    of the whole sequence. Gradients stop at chunk borders.

    Args:
        module: a layer or net. Chunks may differ in length, but not in batch size.

    Raises:
        ValueError: in a call, a chunk whose samples or frames do not fit the state, or a module that mixes time steps
            or lacks `mixes_time`; the message names it, and the state stays the same.
        RuntimeError: a call while another thread is in a call of the same stream.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(6, 5), snnlib.SRMLinear(5, 3))
    >>> x = (torch.rand(20, 2, 6) < 0.5).float()
    >>> stream = snnlib.nn.Stream(net)
    >>> chunks = [stream(chunk) for chunk in x.split([3, 1, 16])]
    >>> torch.equal(torch.cat(chunks), net(x))
    True
    """

    def __init__(self, module: nn.Module) -> None:
        self._runner = ChunkRunner("module", module)
        self._states: States = {}
        self._running = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles: a copy has its own lock."""
        return Stream, (self.module,), {"_states": self._states}

    @property
    def module(self) -> nn.Module:
        """Returns the layer or net."""
        return self._runner.module

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
            RuntimeError: another thread is in a call of this stream.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError(
                "Stream: expected one call at a time, got a call during another, as in two threads; a stream holds one "
                "sequence: make a Stream(net) for each thread, they may share the net"
            )
        try:
            out, after = self._runner.run(chunk, self._states)
            if isinstance(out, Tensor) and out.shape[:2] != chunk.shape[:2]:
                order = any(getattr(layer, "batch_first", False) for layer in self.module.modules())
                check_steps_kept("module", self.module, time_first(chunk, order), time_first(out, order))
            # Only a chunk that went through counts: after an error the stream stands where it was.
            for key, state in after.items():
                self._states[key] = tuple([part.detach() if part.requires_grad else part for part in state])
        finally:
            self._running.release()
        return out


class ChunkRunner:
    """Runs a module on chunks of a sequence, in which every call of a layer continues from a given state.

    The first chunk looks for the layers with a state; later chunks look again only if modules, their classes, modes or
    blocks have changed.

    Args:
        argument: name of the caller's argument, for errors.
        module: a layer or net.
    """

    def __init__(self, argument: str, module: nn.Module) -> None:
        self.module = module
        self._argument = argument
        # The modules that the runner is prepared for, their layers with a state, and the methods that a chunk replaces.
        self._known: list[tuple[Any, ...]] = []
        self._names: dict[nn.Module, str] = {}
        self._methods: list[Continued] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles: prepared methods belong to the layers of this module."""
        return ChunkRunner, (self._argument, self.module)

    def prepare(self) -> None:
        """Prepares the module's layers, unless this is done.

        Raises:
            ValueError: a module that mixes time steps, or lacks `mixes_time`.
        """
        known = [
            (own, type(own), own.training, vars(own).get("fused_blocks"))
            for own in modules_within(self.module)
        ]
        if known == self._known:
            return
        check_time_steps(self._argument, self.module)
        self._names, self._methods, blocks = {}, [], blocks_by_part(self.module)
        for name, layer in self.module.named_modules():
            if not runs_with_state(layer):
                continue
            self._names[layer] = name
            self._methods.append(Continued(layer, layer, "forward"))
            block = blocks.get(layer)
            # The neurons within the layer of a block have a `run` as well, which is not called.
            if block is not None and layer is block.neurons:
                parts = None if isinstance(block, FusedLayer) else block.run_apart
                self._methods.append(Continued(layer, block, "run_fused", parts))
        self._known = known

    def run(self, chunk: Tensor, states: States) -> tuple[Any, States]:
        """Returns the module's output for the next steps of a sequence, and the states after them.

        Raises:
            ValueError: as `prepare`.
        """
        self.prepare()
        after: States = {}
        return run_chunk(Chunk(self._names, states, after, {}), self._methods, self.module, chunk), after
