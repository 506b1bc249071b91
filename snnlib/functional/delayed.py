"""Linear operators whose input events arrive later, and neurons behind them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from snnlib import ops
from snnlib.backends.autocast import autocast_dtype
from snnlib.checks import differentiable_once
from snnlib.functional.operators import FullyConnected, LinearOperator
from snnlib.functional.spiking import layer_currents, pooled, spiking_layer
from snnlib.functional.unfolded import unfolded_rows
from snnlib.neurons.base import Neuron, Output
from snnlib.neurons.spike_response import as_threshold, check_state
from snnlib.neurons.srm import SRM
from snnlib.sequences.input_time import spike_time_gradient


def delayed_layer(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: Neuron,
    delay: Tensor,
    *,
    before: int = 0,
    rounded: bool = False,
    state: tuple[Tensor, ...] | None = None,
    return_state: bool = True,
    pool: tuple[int, int] = (1, 1),
) -> Output:
    """Spikes of neurons whose input events arrive `delay` steps later, and their state after the last step.

    Args:
        x: events `[T, N, ...]` (`[N, T, ...]` where the neuron is `batch_first`).
        weight: the operator's weight.
        operator: a convolution or a fully connected map.
        neuron: any neuron model; one with `gradient="event"` runs at rounded delays.
        delay: time steps >= 0, one per input channel `[C_in]` or of the weight's shape.
        before: so many of the first steps of x belong to the past: they send events on but have no output.
        rounded: whether delays are rounded to whole steps; else those between steps are interpolated.
        state, return_state, pool: as in `spiking_layer`.

    Raises:
        ValueError: a delay of another shape, or an operator that takes no delays per connection.

    >>> import torch, snnlib
    >>> x = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(4, 1, 1)
    >>> neuron, operator = snnlib.neurons.IF(), snnlib.functional.FullyConnected()
    >>> layer = snnlib.functional.delayed_layer
    >>> layer(x, torch.ones(1, 1), operator, neuron, torch.tensor([2.0])).value.flatten().tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    rounded = rounded or neuron.gradient == "event"
    time_dim = int(neuron.batch_first)
    operator.check(x, weight)
    neuron.check_channels(weight.shape[0], x)
    x, delay = _as_features(x, operator, delay)
    if isinstance(neuron, SRM) and neuron.reset_states == "all":
        value, final = _srm(x, weight, operator, neuron, delay, before, state)
        return Output(pooled(value, pool, neuron), (final,))
    if neuron.exact_times:
        # The steps before the chunk, of which x has some, make up for the last input in the state.
        x = spike_time_gradient(x, None, 0, neuron.input_gradient != "dense", time_dim).x
    elif delay.dim() == 1 and not _is_matrix(x, operator):
        delayed = _after(ops.delay.delay_forward(x, delay, rounded, time_dim), before, time_dim)
        return spiking_layer(
            delayed, weight, operator, neuron, state=state, return_state=return_state, pool=pool
        )
    current = delayed_currents(x, weight, operator, delay, before=before, rounded=rounded, time_dim=time_dim)
    out = neuron._run_currents(current, state)
    return Output(pooled(out.value.to(x.dtype), pool, neuron), out.state)


def delayed_currents(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    delay: Tensor,
    *,
    before: int = 0,
    rounded: bool = False,
    time_dim: int = 0,
) -> Tensor:
    """Currents `[T, N, C, ...]` of a linear operator whose events arrive later; arguments as in `delayed_layer`."""
    x, delay = _as_features(x, operator, delay)
    per_channel = delay.dim() == 1
    if per_channel and not _is_matrix(x, operator):
        delayed = _after(ops.delay.delay_forward(x, delay, rounded, time_dim), before, time_dim)
        return layer_currents(delayed, weight, operator, time_dim)
    dtype = autocast_dtype(x)
    if dtype is not None:
        x = x.to(dtype)
    rows, space = unfolded_rows(x, weight, operator, time_dim)
    flat = (len(weight), weight.shape[1:].numel())
    own = delay if per_channel else delay.reshape(flat)
    currents: Tensor = ops.currents.currents_forward(
        rows, weight.reshape(flat).to(rows.dtype), own, (), (), (), 1, rounded, time_dim
    )
    currents = _after(currents, before, time_dim)
    if not space:
        return currents
    cells = math.prod(space)
    batch_dim = 1 - time_dim
    shape = list(currents.shape)
    shape[batch_dim : batch_dim + 1] = [shape[batch_dim] // cells, cells]
    apart = currents.reshape(shape)
    # [T, N, cells, C] or [N, cells, T, C]
    apart = apart.movedim(1, 2) if time_dim else apart
    return apart.movedim(3, 2).reshape(*apart.shape[:2], len(weight), *space)


def _as_features(x: Tensor, operator: LinearOperator, delay: Tensor) -> tuple[Tensor, Tensor]:
    """Frames of a fully connected map as `[T, N, features]`, and one delay for each feature; else both as they are.

    Delays of the frames' channels count for all cells of theirs.
    """
    if not isinstance(operator, FullyConnected) or delay.dim() != 1 or x.dim() == 3:
        return x, delay
    channels, features = x.shape[2], x.shape[2:].numel()
    if len(delay) == channels != features:
        delay = delay.repeat_interleave(features // channels)
    return x.flatten(2), delay


def _after(x: Tensor, before: int, time_dim: int) -> Tensor:
    return x.narrow(time_dim, before, x.shape[time_dim] - before) if before else x


def _is_matrix(x: Tensor, operator: LinearOperator) -> bool:
    """Returns whether an operator takes delays per channel as it takes up events, without a delayed sequence."""
    return isinstance(operator, FullyConnected) and not x.is_cuda


def _srm(
    x: Tensor,
    weight: Tensor,
    operator: LinearOperator,
    neuron: SRM,
    delay: Tensor,
    before: int,
    state: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Tensor]:
    time_dim = int(neuron.batch_first)
    with torch.no_grad():
        current = delayed_currents(x, weight, operator, delay, before=before, rounded=True, time_dim=time_dim)
    start = None if state is None else state[0]
    check_state(start, current.shape, current, time_dim)
    thresholds = as_threshold(neuron.threshold, current, current.shape[2])
    return _SRMBehindDelays.apply(  # type: ignore[no-untyped-call, no-any-return]
        x, weight, delay, current, thresholds, start, neuron, operator, before
    )


class _SRMBehindDelays(torch.autograd.Function):
    """SRM neurons behind delays: weights get signal a, inputs signal b, delays the signal of the kernel `eps'`.

    An input that arrives later by a fraction r of a step changes the potential of a spike dt steps afterwards by
    `-r eps'(dt)`. With `eps(t) = K (e_s^(t+1) - e_m^(t+1))` and its derivative by t,

        eps'[dt] = p eps[dt] + o eps[dt - 1],   p = (e_s ln e_s - e_m ln e_m) / (e_s - e_m),   o = e_s (ln e_s - p)

    so the signal is `p a[t] + o a[t+1]`, without the second term at a spike, behind which a belongs to the next one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        delay: Tensor,
        current: Tensor,
        thresholds: Tensor,
        start: Tensor | None,
        neuron: SRM,
        operator: LinearOperator,
        before: int,
    ) -> tuple[Tensor, Tensor]:
        time_dim = int(neuron.batch_first)
        taus = neuron.neuron.constants
        spikes, final = ops.scan.scan_forward(
            current, thresholds, start, (), taus, time_dim, ops.scan.NO_POOLING, True
        )
        ctx.save_for_backward(x, weight, delay, current, thresholds, start, spikes)
        ctx.options = neuron, operator, before, time_dim
        ctx.mark_non_differentiable(final)
        return spikes.to(x.dtype), final

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor, _grad_state: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, delay, current, thresholds, start, spikes = ctx.saved_tensors
        neuron, operator, before, time_dim = ctx.options
        need_x, need_weight, need_delay = ctx.needs_input_grad[:3]
        neurons = current, thresholds, start, (), neuron.neuron.constants, time_dim, ops.scan.NO_POOLING
        a, b, _, _ = ops.scan.scan_backward(grad.to(current.dtype), None, *neurons, True, True, False)

        def adjoint(signal: Tensor, to_x: bool) -> list[Tensor | None]:
            """Gradients of x, weight and delay for dL/dcurrent."""
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_(to_x), weight.detach().requires_grad_()]
                out = delayed_currents(
                    leaves[0],
                    leaves[1],
                    operator,
                    delay.detach(),
                    before=before,
                    rounded=True,
                    time_dim=time_dim,
                )
                wanted = leaves if to_x else leaves[1:]
                return list(torch.autograd.grad(out, wanted, signal.to(out.dtype)))

        grad_x = grad_weight = grad_delay = None
        if need_weight:
            grad_weight = adjoint(a, to_x=False)[0]
        if need_x:
            found = adjoint(b, to_x=True)[0]
            grad_x = None if found is None else x * found * neuron.input_grad_scale
        if need_delay:
            by_weight = adjoint(eps_slope(a, spikes, neuron.neuron.taus, time_dim), to_x=False)[0]
            assert by_weight is not None
            # For a channel the products with its inputs and with its weights have one sum.
            products = -weight * by_weight
            grad_delay = (_sum_of_channels(products, len(delay)) if delay.dim() == 1 else products).to(
                delay.dtype
            )
        return grad_x, grad_weight, grad_delay, *[None] * 6


def _sum_of_channels(products: Tensor, channels: int) -> Tensor:
    """Sums of a tensor of the weight's shape for each input channel: of cells of frames, taps, outputs and groups."""
    if products.dim() == 2:
        return products.sum(0)
    inputs = products.shape[1]
    return products.view(channels // inputs, -1, inputs, products.shape[2:].numel()).sum((1, 3)).flatten()


def eps_slope(a: Tensor, spikes: Tensor, taus: tuple[float, float, float], time_dim: int) -> Tensor:
    """The signal a with the kernel `eps'`, the derivative of eps by the time since the input, in place of eps."""
    tau_m, tau_s, _ = taus
    # A time constant of one step has forgotten all after it.
    e_s, e_m = (max(1 - 1 / tau, 1e-12) for tau in (tau_s, tau_m))
    alike = abs(e_s - e_m) < 1e-6
    # In the limit d(e ln e)/de.
    slope = math.log(e_s) + 1
    p = slope if alike else (e_s * math.log(e_s) - e_m * math.log(e_m)) / (e_s - e_m)
    o = e_s * (math.log(e_s) - p)
    first = a.narrow(time_dim, 1, a.shape[time_dim] - 1) if a.shape[time_dim] else a
    later = torch.cat((first, torch.zeros_like(a.narrow(time_dim, 0, min(1, a.shape[time_dim])))), time_dim)
    return p * a + o * torch.where(spikes != 0, torch.zeros_like(later), later)
