"""Implicit derivative of spike times: the gradient of neurons with `gradient="event"`.

A membrane that rises by `slope` in the step that crosses the threshold reaches it `1 / slope` steps earlier per unit of
potential. With q = dL/ds, which means "more, or earlier, spikes here", and G = dL/dv after the reset::

    dL/dh = (q + slope_after G) min(1/slope, clamp)     at a spike; 0 where the membrane did not rise
    dL/dh = G                                           elsewhere

`slope_after` is the rise in the step after the reset: a spike that comes earlier lets the reset membrane rise longer.
It is 0 where all states are reset, and the gradient of earlier steps then ends at the spike.

Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
2021; Zhu et al., "Training Spiking Neural Networks with Event-driven Backpropagation", NeurIPS 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snnlib.backends import reference
from snnlib.backends.arguments import SpikeTimeKernel
from snnlib.backends.program_kernel import AnyKernel
from snnlib.backends.spike_time import SpikeTimeRows
from snnlib.checks import check_untransformed, differentiable_once, warn_caller
from snnlib.neurons.base import Neuron, Output
from snnlib.sequences.input_time import spike_time_gradient

# Bound of the time per potential, in synaptic time constants per threshold: 4 steps for tau_s = 3, the papers' values.
GRAD_CLAMP = 4 / 3
# Training batches whose clamped spikes are counted, and the share of them from which on there is a warning.
_BATCHES, _MANY = 3, 0.5


class _EventSpike(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, fired: Tensor, per_slope: Tensor, after: Tensor, reset_value: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(fired, per_slope, after)
        # `h - h` is zero for every finite number: a NaN potential gives a NaN spike, not a silent 0.
        return torch.where(fired, torch.ones_like(h), h - h), torch.where(fired, reset_value, h)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        fired, per_slope, after = ctx.saved_tensors
        grad_spikes, grad_v = grads
        return torch.where(fired, (grad_spikes + after * grad_v) * per_slope, grad_v), None, None, None, None


class ByEvent(Neuron):
    """Base of neurons with the event-driven gradient, whose input may get the spike-time gradient."""

    # Spikes and clamped ones of each step while they are counted, and the sums of the batches so far.
    _steps: list[Tensor] | None = None
    _counted: Tensor | None = None
    _batches: int = 0

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Output:
        """See `Neuron.run`. If the input may get a spike-time gradient, the last input is part of the state."""
        if not self.exact_times:
            return super()._run(x, state)
        check_untransformed(type(self).__name__)
        by_time = self.input_gradient == "time"
        timed = spike_time_gradient(x, state, 1, by_time)
        value, after = super()._run(timed.x, timed.state)
        return Output(value, (*after, timed.last))

    def _by_kernel(self, current: Tensor, kernel: AnyKernel, window: tuple[int, int]) -> Output:
        if isinstance(kernel, SpikeTimeKernel) and not kernel.credit:
            with self.watching():
                self._count_clamped(current, kernel)
        return super()._by_kernel(current, kernel, window)

    @contextmanager
    def watched_record(self, coefficients: Tensor) -> Iterator[Callable[[Tensor], None] | None]:
        """Gives the function that counts clamped gradients in a layer's record, or None after the first batches."""
        with self.watching():
            yield None if self._steps is None else partial(self._note_record, coefficients)

    def _note_record(self, coefficients: Tensor, record: Tensor) -> None:
        clamped = torch.isin(record[0], coefficients[SpikeTimeRows._fields.index("bound")]).sum()
        self.note_clamped(torch.stack((torch.full_like(clamped, record.shape[1]), clamped)))

    def _count_clamped(self, current: Tensor, kernel: SpikeTimeKernel) -> None:
        """Counts spikes and clamped gradients for these currents, since kernels do not count them."""
        if self._steps is not None:
            with torch.no_grad():
                run = reference.exact.trace(current, kernel)
                self.note_clamped(torch.stack((run.fired.sum(), run.clamped.sum())))

    def fire_by_event(
        self,
        h: Tensor,
        fired: Tensor,
        slope: Tensor,
        after: Tensor,
        reset_value: float,
        bound: float | Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns spikes where `fired`, and the membrane after its reset, with the event-driven gradient.

        Args:
            h: membrane potential before the reset.
            fired: where it reached the threshold.
            slope: rise of the membrane in the step.
            after: rise in the step after the reset.
            reset_value: membrane after the reset.
            bound: largest `1 / slope`, in steps per unit of potential.
        """
        per_slope = torch.where(slope > 0, 1 / slope, torch.zeros_like(slope))
        if self._steps is not None:
            self.note_clamped(torch.stack((fired.sum(), (fired & (per_slope > bound)).sum())))
        per_slope = per_slope.clamp(max=bound)
        out = _EventSpike.apply(h, fired, per_slope, after.detach(), reset_value)  # type: ignore[no-untyped-call]
        return out[0], out[1]

    def note_clamped(self, counts: Tensor) -> None:
        """Counts spikes, and spikes whose gradient is clamped."""
        steps = self._steps
        if steps is not None:
            steps.append(counts)

    def _by_steps(self, x: Tensor, start: Tensor | None, by_step: bool = False) -> Output:
        with self.watching():
            return super()._by_steps(x, start, by_step)

    def watching(self) -> AbstractContextManager[None]:
        """Returns a context manager for a sequence, which warns if most gradients of the first batches are clamped."""
        counting = self.training and torch.is_grad_enabled() and self._batches < _BATCHES
        return self._counting() if counting and not torch.compiler.is_compiling() else nullcontext()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        # Another thread may run the same neurons.
        steps = self._steps = list[Tensor]()
        try:
            yield
            if steps and not steps[0].is_meta:
                self._batches += 1
                batch, counted = torch.stack(steps).sum(0), self._counted
                self._counted = batch if counted is None else counted.to(batch.device) + batch
        finally:
            self._steps = None
        counted = self._counted
        if self._batches == _BATCHES and counted is not None:
            spikes, clamped = counted.tolist()
            self._counted = None
            if clamped > _MANY * spikes:
                warn_caller(
                    f"{type(self).__name__}: {clamped} of {spikes} spikes of the first {_BATCHES} training batches "
                    "rise so slowly that grad_clamp bounds their gradient: give a larger grad_clamp, or larger weights"
                )
