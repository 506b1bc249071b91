"""Brunel's sparsely connected net (2000), as published: four states of 10,000 excitatory and 2,500 inhibitory neurons.

    python examples/brunel.py [--duration 1000] [--picture FILE.png]

Each leaky neuron has 1,000 excitatory and 250 inhibitory synapses from neurons drawn at random, 1,000 more from Poisson
processes outside, a delay of 1.5 ms, a refractory time of 2 ms and steps of 0.1 ms. The strength of inhibition g and
the drive from outside decide whether the net fires synchronously or not, and regularly or not. All neurons and synapses
run in one call for each 200 ms.

Source: Brunel, "Dynamics of sparsely connected networks of excitatory and inhibitory spiking neurons", Journal of
Computational Neuroscience 8, 2000, figure 8.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import snnlib
from snnlib import neurons

EXCITATORY, INHIBITORY = 10_000, 2_500
SIZE = EXCITATORY + INHIBITORY
# Inputs per neuron: a tenth of each population.
FROM_EXCITATORY, FROM_INHIBITORY = EXCITATORY // 10, INHIBITORY // 10
# mV, ms.
STRENGTH, THRESHOLD, RESET = 0.1, 20.0, 10.0
TAU, REFRACTORY, DELAY, DT = 20.0, 2.0, 1.5, 0.1
# Steps of a call, whose currents take 100 MB.
CHUNK = 2000
# The first 200 ms, in which the net settles, are left out of all figures.
SETTLED = 200.0
# g, and the rate outside in units of the rate that alone holds the membrane at the threshold.
STATES = {
    "synchronous regular": (3.0, 2.0),
    "fast synchronous irregular": (6.0, 4.0),
    "asynchronous irregular": (5.0, 2.0),
    "slow synchronous irregular": (4.5, 0.9),
}


class Statistics(NamedTuple):
    """Statistics that tell the states apart.

    Attributes:
        rate: spikes per neuron and second.
        cv: coefficient of variation of a neuron's intervals, the mean over neurons with five spikes and more: 0 is
            regular, 1 a Poisson process.
        synchrony: deviation over mean of the spikes of all neurons in bins of 1 ms.
        frequency: largest peak above 5 Hz in the spectrum of these counts, in Hz.
    """

    rate: float
    cv: float
    synchrony: float
    frequency: float


class Net:
    """The net with synapses of strength 1."""

    def __init__(self) -> None:
        excitatory = torch.randint(EXCITATORY, (SIZE, FROM_EXCITATORY))
        inhibitory = torch.randint(EXCITATORY, SIZE, (SIZE, FROM_INHIBITORY))
        sources = torch.cat((excitatory, inhibitory), 1).flatten()
        targets = torch.arange(SIZE).repeat_interleave(FROM_EXCITATORY + FROM_INHIBITORY)
        # Drawn with replacement: some pairs of neurons have several synapses.
        synapses = snnlib.Sparse.from_coo(sources, targets, torch.ones(len(sources)), duplicates="sum")
        self.operator, self.count = synapses.build(SIZE, SIZE)
        self.neuron = neurons.LIF(
            TAU / DT,
            discretisation="exponential",
            decay_input=False,
            threshold=THRESHOLD,
            reset_value=RESET,
            start_value=0.0,
            refractory=round(REFRACTORY / DT),
        )

    @torch.no_grad()
    def run(self, g: float, drive: float, duration: float, delay: float = DELAY) -> Tensor:
        """Spikes `[T, SIZE]` of a run from rest: g, drive as in `STATES`, duration and delay in ms."""
        inhibits = self.operator.sources() >= EXCITATORY
        weight = STRENGTH * self.count * torch.where(inhibits, -g, 1.0)
        # A spike takes one step to come back without a delay.
        more = round(delay / DT) - 1
        recurrence = {"operator": self.operator, "delay": torch.full_like(weight, more), "max_delay": more}
        # Spikes in a step from outside; a Poisson process whose spikes go to neurons at random is one for each of them.
        outside = drive * THRESHOLD / (STRENGTH * TAU) * DT
        steps, state, chunks = round(duration / DT), None, []
        for first in range(0, steps, CHUNK):
            current = STRENGTH * arrivals(min(CHUNK, steps - first), outside)
            spikes, state = snnlib.functional.spiking_recurrent(
                current, weight, self.neuron, state=state, rounded=True, **recurrence
            )
            chunks.append(spikes[:, 0].bool())
        return torch.cat(chunks)


def arrivals(steps: int, rate: float) -> Tensor:
    """Numbers of spikes `[T, 1, SIZE]` from Poisson processes of this rate per step."""
    parts = []
    # Parts of a few steps stay in the cache.
    for part in torch.empty(steps, 1, SIZE).split(15):
        number = int(torch.poisson(torch.tensor(rate * part.numel(), dtype=torch.float64)))
        drawn = torch.randint(part.numel(), (number,), dtype=torch.int32)
        parts.append(drawn.bincount(minlength=part.numel()).view(part.shape).float())
    return torch.cat(parts)


def statistics(spikes: Tensor) -> Statistics:
    """Statistics of spikes `[T, SIZE]` after `SETTLED`."""
    late = spikes[round(SETTLED / DT) :]
    trains = [train.nonzero().flatten().diff().double() for train in late.T.contiguous()]
    variations = [gaps.std(correction=0) / gaps.mean() for gaps in trains if len(gaps) >= 4]
    bins = len(late) // round(1 / DT)
    counts = late[: bins * round(1 / DT)].unflatten(0, (bins, -1)).sum((1, 2)).double()
    spectrum = torch.fft.rfft(counts - counts.mean()).abs()
    frequency = torch.fft.rfftfreq(len(counts), 1e-3)
    spectrum[frequency <= 5] = 0
    return Statistics(
        rate=float(late.double().mean()) * 1000 / DT,
        cv=float(torch.stack(variations).mean()),
        synchrony=float(counts.std() / counts.mean()),
        frequency=float(frequency[spectrum.argmax()]),
    )


def draw(runs: dict[str, Tensor], file: Path) -> None:
    """Writes a PNG file with a column per state: spikes `[T, SIZE]` of 50 neurons above the rate of all."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(12, 4.5), dpi=100, layout="constrained")
    panels = figure.subplots(2, len(runs), sharex=True, height_ratios=(2, 1))
    for (above, below), (name, spikes) in zip(panels.T, runs.items(), strict=True):
        step, neuron = spikes[:, :: SIZE // 50].nonzero().T
        above.scatter(step * DT, neuron, s=2, color="#0072B2", linewidths=0)
        counts = spikes.unflatten(0, (-1, round(1 / DT))).sum((1, 2))
        below.stairs(1000 * counts / SIZE, range(len(counts) + 1), color="#D55E00", fill=True)
        above.set(title=name, yticks=[])
        below.set(xlabel="time (ms)", xlim=(0, len(counts)))
    panels[0, 0].set_ylabel("50 neurons")
    panels[1, 0].set_ylabel("rate (1/s)")
    figure.savefig(file)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--duration", type=float, default=1000.0, help="ms of each state")
    options.add_argument("--picture", type=Path, help="write a PNG file of the last 200 ms")
    given = options.parse_args()
    torch.manual_seed(0)
    start = time.time()
    net = Net()
    print(f"{SIZE:,} neurons, {len(net.count):,} connections, built in {time.time() - start:.0f} s")
    found, runs = {}, {}
    for name, (g, drive) in STATES.items():
        start = time.time()
        spikes = net.run(g, drive, given.duration)
        seconds = time.time() - start
        found[name] = statistics(spikes)
        runs[name] = spikes[-round(200 / DT) :]
        numbers = "{:.1f} spikes/s, CV {:.2f}, synchrony {:.2f}, {:.0f} Hz".format(*found[name])
        print(f"{name}, g = {g}, drive {drive}: {numbers}; {seconds:.0f} s", flush=True)
    if given.picture:
        draw(runs, given.picture)
    regular, fast, asynchronous, slow = found.values()
    assert regular.cv < 0.05
    assert min(state.cv for state in (fast, asynchronous, slow)) > 0.3
    assert asynchronous.synchrony == min(state.synchrony for state in found.values())
    # The net oscillates several times as fast as its neurons fire.
    assert all(state.frequency > 2 * state.rate for state in (fast, slow))
    print("four states: the net is regular, irregular and synchronous, asynchronous as published")


if __name__ == "__main__":
    main()
