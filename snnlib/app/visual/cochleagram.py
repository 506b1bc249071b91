"""Sound as a cochlea hears it: levels over time and frequency, and the spikes made of them."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import Tensor

from snnlib.app.visual.canvas import INK, PALETTE, heading, new_figure, tidy
from snnlib.data.cochlea import Cochlea

# Marks on the axis of frequencies.
_MARKS_HZ = (50, 100, 200, 500, 1000, 2000, 4000, 8000, 16000)


def cochleagram(waveform: Tensor, cochlea: Cochlea, *, title: str = "Cochleagram") -> Figure:
    """The waveform, the level of each channel of a cochlea over time, and the spikes of the channels.

    Args:
        waveform: sound `[samples]` at the cochlea's sample rate.
        cochlea: what hears it.
        title: what the reader should see.

    Raises:
        ValueError: a waveform that the cochlea refuses.

    >>> import torch, snnlib
    >>> sound = torch.sin(2 * torch.pi * 500 * torch.arange(4000) / 8000)
    >>> figure = cochleagram(sound, snnlib.data.Cochlea(32))
    >>> [axes.get_title(loc="left") for axes in figure.axes[1:3]]
    ['level of each channel', '... spikes of 32 channels']
    """
    levels = cochlea.levels(waveform)
    events = cochlea.events_of(levels)
    seconds = len(waveform) / cochlea.sample_rate
    figure = new_figure(9.5, 6.5, title)
    sound, shown, spikes = figure.subplots(3, 1, sharex=True, height_ratios=(1, 2.5, 2.5))
    times = torch.arange(len(waveform)) / cochlea.sample_rate
    tidy(sound).plot(times.numpy(), waveform.numpy(), color=INK, linewidth=0.5)
    sound.set_ylabel("sound")
    last = len(levels) * cochlea.hop / cochlea.sample_rate
    image = shown.imshow(
        levels.T.numpy(),
        origin="lower",
        aspect="auto",
        cmap="magma",
        vmin=0,
        vmax=max(float(levels.max()), 1.0),
        interpolation="nearest",
        extent=(0, last, -0.5, cochlea.channels - 0.5),
    )
    heading(shown, "level of each channel")
    tidy(spikes).scatter(
        events["t"] / 1e6,
        events["x"],
        s=max(1.0, 600 / cochlea.channels),
        marker="|",
        color=PALETTE[0],
        linewidths=1.0,
    )
    heading(spikes, f"{len(events):,} spikes of {cochlea.channels} channels")
    marks = [mark for mark in _MARKS_HZ if cochlea.low_hz <= mark <= cochlea.high_hz]
    nearest = [int((cochlea.frequencies - mark).abs().argmin()) for mark in marks]
    for axes in (shown, spikes):
        axes.set_ylim(-0.5, cochlea.channels - 0.5)
        axes.set_yticks(nearest, list(map(str, marks)))
        axes.set_ylabel("frequency (Hz)")
    spikes.set_xlim(0, seconds)
    spikes.set_xlabel("time (s)")
    figure.colorbar(image, ax=[shown], label="level", pad=0.01).outline.set_visible(False)
    return figure
