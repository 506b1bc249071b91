"""Convolution and SRM neurons with a record of the spikes. Equations: cpp/include/snnlib/kernels/spike_credit.h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from snnlib.reference.srm import Decay, Trace, state_dtype


def convolve(x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int]) -> Tensor:
    """Currents of a train `[T, N, C, H, W]` in the state's dtype, summed tap by tap in the kernels' order."""
    dtype = state_dtype(x)
    pad_h, pad_w = padding
    wide = F.pad(x.to(dtype), (pad_w, pad_w, pad_h, pad_h))
    weight = weight.to(dtype)
    taps_h, taps_w = weight.shape[2:]
    current: Tensor | float = 0.0
    for ky in range(taps_h):
        for kx in range(taps_w):
            tap = wide[
                ...,
                ky : wide.shape[3] - taps_h + ky + 1 : stride[0],
                kx : wide.shape[4] - taps_w + kx + 1 : stride[1],
            ]
            for c in range(weight.shape[1]):
                current = current + tap[:, :, c, None] * weight[:, c, ky, kx, None, None]
    assert isinstance(current, Tensor)
    return current


def _window_sums(spikes: Tensor, pool: Sequence[int]) -> Tensor:
    height, width = spikes.shape[3] // pool[0], spikes.shape[4] // pool[1]
    inside = spikes[..., : height * pool[0], : width * pool[1]]
    return inside.reshape(*spikes.shape[:3], height, pool[0], width, pool[1]).sum((4, 6))


def pool_spikes(spikes: Tensor, pool: Sequence[int]) -> Tensor:
    """Mean of every window; windows do not overlap."""
    return _window_sums(spikes, pool) / (pool[0] * pool[1])


def _shared_out(grad_output: Tensor, fired: Tensor, pool: Sequence[int]) -> Tensor:
    """dL/ds: the gradient of a window in equal parts to its spikes."""
    share = grad_output / _window_sums(fired.to(grad_output.dtype), pool)
    spread = share.repeat_interleave(pool[0], 3).repeat_interleave(pool[1], 4)
    missing = [size - other for size, other in zip(fired.shape[3:], spread.shape[3:], strict=True)]
    return torch.where(fired, F.pad(spread, (0, missing[1], 0, missing[0])), 0.0)


def _tasks(train: Tensor, rows: int, time_dim: int) -> Iterator[Tensor]:
    """The part `[T, rows, W, C]` of a train `[T, N, C, H, W]` that each task of the kernels sees, in their order."""
    for sample in train.unbind(1 - time_dim):
        yield from torch.split(sample.permute(0, 2, 3, 1), rows, 1)


def make_record(
    trace: Trace, grad_clamp: float, rows: int, time_dim: int, bits: Tensor, starts: Tensor
) -> Tensor:
    """Fills `bits` and `starts`, and returns slope and gain `[2, spikes]`."""
    slope = torch.where(trace.delta_u > 0, 1 / trace.delta_u, 0.0).clamp(max=grad_clamp)
    gain = torch.where(trace.delta_ut > 0, 1 / trace.delta_ut, 0.0)
    fired = trace.spikes > 0
    parts = [
        (s[f], g[f])
        for s, g, f in zip(*(_tasks(train, rows, time_dim) for train in (slope, gain, fired)), strict=True)
    ]
    starts[1 : len(parts) + 1] = torch.tensor([len(s) for s, _ in parts]).cumsum(0)
    in_rows = fired.permute(0, 1, 3, 4, 2).flatten(3)
    in_words = F.pad(in_rows, (0, -in_rows.shape[3] % 16)).reshape(*bits.shape, 16)
    # Bit 15 is the sign of an int16.
    bits.copy_((in_words * (1 << torch.arange(16))).sum(4))
    if not parts:
        return slope.new_empty(2, 0)
    return torch.stack([torch.cat(column) for column in zip(*parts, strict=True)])


def _read_record(
    bits: Tensor, record: Tensor, starts: Tensor, shape: Sequence[int], rows: int, time_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(fired, slope, gain) as trains `[T, N, C, H, W]` of this shape."""
    row = shape[2] * shape[4]
    in_rows = (bits.long().unsqueeze(4) >> torch.arange(16) & 1).flatten(3)[..., :row]
    fired = in_rows.reshape(*bits.shape[:3], shape[4], shape[2]).permute(0, 1, 4, 2, 3).bool()
    slope, gain = (torch.zeros(shape, dtype=record.dtype) for _ in range(2))
    trains = (_tasks(train, rows, time_dim) for train in (slope, gain, fired))
    for i, (s, g, f) in enumerate(zip(*trains, strict=True)):
        first, last = starts[i], starts[i + 1]
        s[f], g[f] = record[0, first:last], record[1, first:last]
    return fired, slope, gain


def backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    bits: Tensor,
    record: Tensor,
    starts: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    pool: Sequence[int],
    decay: Decay,
    rows: int,
    time_dim: int,
) -> tuple[Tensor, Tensor]:
    """dL/dW and dL/dx in the state's dtype: dense signals a and b, then torch's convolution gradients."""
    dtype = state_dtype(x)
    height, width = (
        (size + 2 * zeros - taps) // step + 1
        for size, taps, step, zeros in zip(x.shape[3:], weight.shape[2:], stride, padding, strict=True)
    )
    shape = (*x.shape[:2], weight.shape[0], height, width)
    fired, slope, gain = _read_record(bits, record, starts, shape, rows, time_dim)
    q = _shared_out(grad_output.to(dtype), fired, pool)
    columns = (q, fired, slope, gain)
    au = a_s = bg = torch.zeros_like(q.select(time_dim, 0)) if q.shape[time_dim] else q
    a, b = torch.empty_like(q), torch.empty_like(q)
    steps = list(zip(*(column.unbind(time_dim) for column in columns), strict=True))
    for t in reversed(range(len(steps))):
        q_t, fired, slope, gain = steps[t]
        au, a_s = (
            torch.where(fired, q_t * slope * decay.r_s, au * decay.e_m + a_s * decay.r_s),
            torch.where(fired, q_t * slope * decay.e_s, a_s * decay.e_s),
        )
        bg = torch.where(fired, q_t * gain, bg) * decay.e_g
        a.select(time_dim, t).copy_(au)
        b.select(time_dim, t).copy_(bg)

    def convolution_backward(signal: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            signal.flatten(0, 1),
            x.to(dtype).flatten(0, 1),
            weight.to(dtype),
            None,
            list(stride),
            list(padding),
            [1, 1],
            False,
            [0, 0],
            1,
            mask,
        )

    grad_weight = convolution_backward(a, [False, True, False])[1]
    grad_x = convolution_backward(b, [True, False, False])[0]
    return grad_weight, grad_x.reshape(x.shape) * x.to(dtype)
