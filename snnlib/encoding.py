"""Ordinary data as spike sequences: rate, latency, delta, population and direct current codes, and given times.

Every encoder is a function from values `[N, ...]` (or a signal `[T, N, ...]`) to a sequence `[T, N, ...]`, and takes
`batch_first=True` for `[N, T, ...]`. Random ones take a `generator`. Results have the values' dtype and device;
`at_times` has a `dtype` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from snnlib import guesses
from snnlib.checks import (
    check_choice,
    check_count,
    check_fits,
    check_flag,
    check_floating,
    check_number,
    check_positive_number,
    check_rank,
)
from snnlib.sequences.time_first import takes_time_first

__all__ = ["at_times", "delta", "direct", "intervals", "latency", "population", "rate"]


def _check_values(values: Tensor) -> None:
    check_floating("values", values)
    check_rank("values", values, "[N, ...]", at_least=1)


def _check_unit(values: Tensor) -> None:
    _check_values(values)
    # Written so that NaN is refused.
    if values.numel() and not bool(((values >= 0) & (values <= 1)).all()):
        low, high = (float(bound) for bound in values.aminmax())
        raise ValueError(f"values: expected numbers in [0, 1], got {low:g} to {high:g}; scale them first")


@takes_time_first(gives=True)
def direct(values: Tensor, time_steps: int, *, batch_first: bool = False) -> Tensor:
    """Repeats the values as a constant current at every step: the first layer learns its own code.

    Args:
        values: any real numbers `[N, ...]`.
        time_steps: length T of the sequence.
        batch_first: whether the result is `[N, T, ...]`. Default False.

    Returns:
        `[T, N, ...]`, a view of the values: all steps share memory.

    Source: Rueckauer et al., "Conversion of Continuous-Valued Deep Networks to Efficient Event-Driven Networks for
    Image Classification", 2017, section 2.3.

    >>> import torch, snnlib
    >>> snnlib.encoding.direct(torch.rand(8, 3, 32, 32), 4).shape
    torch.Size([4, 8, 3, 32, 32])
    """
    _check_values(values)
    check_count("time_steps", time_steps)
    return values.unsqueeze(0).expand(time_steps, *values.shape)


@takes_time_first(gives=True)
def rate(
    values: Tensor, time_steps: int, *, batch_first: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Draws spikes at every step with the value as probability: `P(s[t] = 1) = values`.

    Args:
        values: probabilities in [0, 1] of a spike in one step, `[N, ...]`.
        time_steps: length T of the sequence.
        batch_first: whether the result is `[N, T, ...]`. Default False.
        generator: source of randomness; default torch's own.

    Raises:
        ValueError: values outside [0, 1], or a length below 1.
        TypeError: values of integers.

    >>> import torch, snnlib
    >>> values = torch.tensor([[0.0, 0.5, 1.0]])
    >>> spikes = snnlib.encoding.rate(values, 1000, generator=torch.Generator().manual_seed(0))
    >>> [round(share, 1) for share in spikes.mean(0)[0].tolist()]
    [0.0, 0.5, 1.0]
    """
    _check_unit(values)
    check_count("time_steps", time_steps)
    # Float32, as half types have few numbers between 0 and 1.
    wide = torch.promote_types(values.dtype, torch.float32)
    drawn = torch.rand((time_steps, *values.shape), dtype=wide, device=values.device, generator=generator)
    return (drawn < values).to(values.dtype)


@takes_time_first(gives=True)
def latency(
    values: Tensor,
    time_steps: int,
    *,
    tau: float | None = None,
    threshold: float = 0.01,
    batch_first: bool = False,
) -> Tensor:
    """Encodes each value as one spike, earlier for larger values; values up to the threshold give no spike.

    Linear (default), from the first step for 1 to the last for the threshold, or with `tau` the time at which a leaky
    membrane with the value as its current reaches the threshold::

        t = (T - 1) (1 - values) / (1 - threshold)              rounded
        t = tau ln(values / (values - threshold))               rounded; cut off at T - 1

    Args:
        values: numbers in [0, 1], `[N, ...]`.
        time_steps: length T of the sequence.
        tau: time constant of the membrane in steps. Default None: linear.
        threshold: value below which there is no spike, in [0, 1). Default 0.01.
        batch_first: whether the result is `[N, T, ...]`. Default False.

    Raises:
        ValueError: values outside [0, 1], or an option out of its range.

    Source: Thorpe, Delorme and Van Rullen, "Spike-based strategies for rapid processing", 2001.

    >>> import torch, snnlib
    >>> spikes = snnlib.encoding.latency(torch.tensor([[1.0, 0.5, 0.0]]), 5, threshold=0.0)
    >>> spikes[:, 0].argmax(0).tolist(), spikes.sum(0).tolist()
    ([0, 2, 0], [[1.0, 1.0, 0.0]])
    """
    _check_unit(values)
    check_count("time_steps", time_steps)
    check_number("threshold", threshold)
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold: expected a number in [0, 1), got {threshold}")
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    fires = wide > threshold
    if tau is None:
        time = (time_steps - 1) * (1 - wide) / (1 - threshold)
    else:
        check_positive_number("tau", tau)
        time = tau * (wide / (wide - threshold)).log()
    step = torch.where(fires, time.round().clamp(0, time_steps - 1), 0).long()
    spikes = values.new_zeros((time_steps, *values.shape))
    spikes.scatter_(0, step.unsqueeze(0), fires.to(values.dtype).unsqueeze(0))
    return spikes


@takes_time_first("signal", gives=True)
def delta(
    signal: Tensor, threshold: float | Tensor, *, polarity: bool = True, batch_first: bool = False
) -> Tensor:
    """Encodes a signal as events of its changes by a threshold, as an event camera does.

    A level starts at the first sample. At every further step the number of whole thresholds between signal and level is
    the amplitude of the event, and the level follows by as many::

        k = trunc((signal[t] - level) / threshold);   level <- level + k threshold

    Args:
        signal: samples `[T, N, ...]` (`[N, T, ...]` with `batch_first`).
        threshold: change per event, > 0; a tensor for one threshold per channel, such as the leads of an
            electrocardiogram.
        polarity: whether rises and falls have two channels, `[T, N, 2, ...]`, falls first, as in event data; if False,
            falls are events of negative amplitude, `[T, N, ...]`. Default True.
        batch_first: whether the signal and the result have the batch first. Default False.

    Raises:
        ValueError: a threshold that is not positive, or a signal of fewer than two dimensions.

    Source: Lichtsteiner, Posch and Delbruck, "A 128x128 120 dB 15 us Latency Asynchronous Temporal Contrast Vision
    Sensor", 2008.

    >>> import torch, snnlib
    >>> signal = torch.tensor([0.0, 0.25, 0.5, 1.5, 1.25]).reshape(5, 1)
    >>> snnlib.encoding.delta(signal, 0.5, polarity=False).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0, 0.0]
    """
    check_floating("signal", signal)
    check_rank("signal", signal, "[T, N, ...]", at_least=2)
    if not isinstance(threshold, Tensor):
        check_positive_number("threshold", threshold)
    elif not bool(((threshold > 0) & threshold.isfinite()).all()):
        raise ValueError(f"threshold: expected finite numbers > 0, got {threshold.tolist()}")
    check_flag("polarity", polarity)
    samples = signal.to(torch.promote_types(signal.dtype, torch.float32))
    events = torch.zeros_like(samples)
    if len(samples):
        level = samples[0]
        for step in range(1, len(samples)):
            # No event is 0, not -0.
            events[step] = ((samples[step] - level) / threshold).trunc() + 0.0
            level = level + events[step] * threshold
    if polarity:
        events = torch.stack([(-events).clamp(min=0), events.clamp(min=0)], 2)
    return events.to(signal.dtype)


@takes_time_first("spikes", gives=True)
def intervals(spikes: Tensor, bounds: Sequence[float], *, batch_first: bool = False) -> Tensor:
    """Encodes the interval before each spike as a channel.

    The spike at step t, n steps after the one before it, goes to channel k where `bounds[k - 1] <= n < bounds[k]`; the
    first spike, which has no interval, is dropped. Intervals between heart beats thus become spikes at their end.

    Args:
        spikes: `[T, N]` (`[N, T]` with `batch_first`); nonzero values are spikes.
        bounds: K bounds between the channels, rising, in steps.
        batch_first: whether spikes and result have the batch first. Default False.

    Returns:
        `[T, N, K + 1]`, of the spikes' dtype.

    Raises:
        ValueError: bounds that do not rise, or spikes of another rank.

    >>> import torch, snnlib
    >>> beats = torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1]).reshape(11, 1)
    >>> snnlib.encoding.intervals(beats, [3.0]).nonzero().tolist()
    [[4, 0, 1], [8, 0, 1], [10, 0, 0]]
    """
    check_rank("spikes", spikes, "[T, N]", exactly=2)
    edges = torch.as_tensor(bounds, dtype=torch.float64)
    if edges.dim() != 1 or not bool((edges.diff() > 0).all()):
        raise ValueError(f"bounds: expected rising numbers, got {list(bounds)}")
    places = spikes.new_zeros((*spikes.shape, len(edges) + 1))
    for sample in range(spikes.shape[1]):
        times = spikes[:, sample].nonzero().flatten().cpu()
        places[times[1:], sample, torch.bucketize(times.diff().double(), edges, right=True)] = 1
    return places


@takes_time_first(gives=True)
def population(
    values: Tensor,
    time_steps: int,
    neurons: int,
    *,
    low: float = 0.0,
    high: float = 1.0,
    beta: float = 1.5,
    batch_first: bool = False,
) -> Tensor:
    """Encodes each value by several neurons with Gaussian receptive fields, which spike earlier near the value.

    Neuron i of n has its center at `low + (2 i - 1) / 2 (high - low) / (n - 2)` for i = 0 to n - 1, and the width
    `(high - low) / (beta (n - 2))`. Its response r in (0, 1] gives the step `round((T - 1) (1 - r))`; in the last step,
    where r is about 0, it stays silent.

    Args:
        values: numbers `[N, F, ...]`, F features.
        time_steps: length T of the sequence, >= 2.
        neurons: neurons n per feature, >= 3.
        low, high: range of the values. Default 0 and 1.
        beta: narrowness of the receptive fields, 1 to 2. Default 1.5.
        batch_first: whether the result is `[N, T, ...]`. Default False.

    Returns:
        `[T, N, F * n, ...]`: the neurons of a feature next to each other.

    Raises:
        ValueError: an option out of its range, or values without features or with NaN.

    Source: Bohte, Kok and La Poutre, "Error-backpropagation in temporally encoded networks of spiking neurons", 2002,
    section 4.1.

    >>> import torch, snnlib
    >>> spikes = snnlib.encoding.population(torch.tensor([[0.5]]), 11, 5)
    >>> spikes.shape, int(spikes[0, 0].argmax())
    (torch.Size([11, 1, 5]), 2)
    """
    _check_values(values)
    check_rank("values", values, "[N, F, ...]", at_least=2)
    if bool(values.isnan().any()):
        raise ValueError("values: expected numbers, got NaN")
    for name, count, least in (("time_steps", time_steps, 2), ("neurons", neurons, 3)):
        check_count(name, count)
        if count < least:
            raise ValueError(f"{name}: expected an integer >= {least}, got {count}")
    check_positive_number("beta", beta)
    check_number("low", low)
    check_number("high", high)
    if not low < high:
        raise ValueError(f"high: expected a number above low={low}, got {high}")
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    spacing = (high - low) / (neurons - 2)
    centers = low + (torch.arange(neurons, dtype=wide.dtype, device=values.device) - 0.5) * spacing
    distance = (wide.unsqueeze(2) - centers.view(-1, *[1] * (values.dim() - 2))) * (beta / spacing)
    response = (-0.5 * distance.square()).exp()
    step = ((time_steps - 1) * (1 - response)).round().long()
    spikes = values.new_zeros((time_steps, *step.shape))
    spikes.scatter_(0, step.unsqueeze(0), (step < time_steps - 1).to(values.dtype).unsqueeze(0))
    return spikes.flatten(2, 3)


@takes_time_first(gives=True)
def at_times(
    times: Tensor,
    time_steps: int,
    *,
    dt: float = 1.0,
    mode: Literal["binary", "count", "shared"] = "binary",
    late: Literal["error", "clamp", "drop"] = "error",
    dtype: torch.dtype | None = None,
    batch_first: bool = False,
) -> Tensor:
    """Returns spikes at given times, each in the nearest step `floor(times / dt + 1 / 2)`, or divided between two.

    NaN and infinity mean no spike. Rounding moves a spike by at most `dt / 2`; times on the grid stay. For bins from
    `k dt` to `(k + 1) dt`, as in `data.ToFrames`, pass `times - dt / 2`.

    Args:
        times: one time per channel `[N, C]`, or K of them in any order `[N, C, K]`. In steps, or in the unit of `dt`;
            integers are taken, too.
        time_steps: length T of the sequence.
        dt: length of a step in the unit of the times. Default 1: times in steps.
        mode: value of several spikes of a channel in one step: `"binary"` (default) 1, `"count"` their number.
            `"shared"` divides a spike between two steps by linear interpolation, `1 - f` in step k and `f` in step k +
            1 for `times / dt = k + f`, and sums the parts.
        late: spikes after the last step: `"error"` (default, since their times mostly have a wrong unit) raises an
            error, `"clamp"` puts them into the last step, `"drop"` leaves them out.
        dtype: of the result. Default that of the times, float32 for integers.
        batch_first: whether the result is `[N, T, C]`. Default False.

    Returns:
        `[T, N, C]`. No gradient reaches the times.

    Raises:
        TypeError: times or a dtype that are not real numbers.
        ValueError: times of a wrong shape or before the first step, late spikes with `late="error"`, an option out of
            its range, or counts that the dtype cannot represent.

    >>> import torch, snnlib
    >>> times = torch.tensor([[[0.15, 0.41], [0.29, float("inf")]]])
    >>> snnlib.encoding.at_times(times, 5, dt=0.1)[:, 0].T.tolist()
    [[0.0, 0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0]]
    """
    if not isinstance(times, Tensor):
        raise TypeError(f"times: expected a torch.Tensor, got {type(times).__name__}")
    if times.is_complex() or times.dtype == torch.bool:
        raise TypeError(f"times: expected real numbers, got {times.dtype}")
    if times.dim() not in (2, 3):
        raise ValueError(f"times: expected [N, C] or [N, C, K], got shape {tuple(times.shape)}")
    check_count("time_steps", time_steps)
    check_positive_number("dt", dt)
    check_choice("mode", mode, "binary", "count", "shared")
    check_choice("late", late, "error", "clamp", "drop")
    if dtype is None:
        dtype = times.dtype if times.is_floating_point() else torch.float32
    elif not isinstance(dtype, torch.dtype) or dtype.is_complex:
        raise TypeError(f"dtype: expected a real torch dtype, got {dtype!r}")
    # Float64, so that the quotient of a time on the grid rounds to its step in long sequences, too.
    wide = times.detach().to(torch.float64)
    wide = wide.unsqueeze(2) if wide.dim() == 2 else wide
    wide, places, shares = _placed(wide, dt, mode, dtype)
    fires = wide.isfinite() & (shares > 0)
    if bool((fires & (places < 0)).any()):
        first = float(wide[fires].min())
        raise ValueError(f"times: expected none before the first step, got {first:g} with dt={dt:g}")
    if late == "error" and bool((fires & (places >= time_steps)).any()):
        last = float(wide[fires].max())
        raise ValueError(
            f"times: expected none after the last of {time_steps} steps, got {last:g} with dt={dt:g}; "
            "late='clamp' or 'drop' takes them"
        )
    if late == "drop":
        fires = fires & (places < time_steps)
    # [K, N, C]
    step = torch.where(fires, places, 0).clamp(max=time_steps - 1).long().movedim(2, 0)
    counts = wide.new_zeros((time_steps, *times.shape[:2]))
    counts.scatter_add_(0, step, torch.where(fires, shares, 0.0).movedim(2, 0))
    if mode == "binary":
        counts = counts.clamp(max=1)
    elif mode == "count" and counts.numel():
        check_fits(int(counts.max()), dtype)
    return counts.to(dtype)


def _placed(times: Tensor, dt: float, mode: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Times `[N, C, K]`, their steps and the share of a spike in each, twice as many for spikes that are shared."""
    if mode != "shared":
        return times, (times / dt + 0.5).floor(), torch.ones_like(times)
    if not dtype.is_floating_point:
        raise TypeError(f'dtype: expected a floating-point dtype beside mode="shared", got {dtype}')
    whole = (times / dt).floor()
    rest = times / dt - whole
    return torch.cat((times, times), 2), torch.cat((whole, whole + 1), 2), torch.cat((1 - rest, rest), 2)


guesses.publish(__name__, __all__)
