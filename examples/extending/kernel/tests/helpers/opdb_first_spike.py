"""Op case of first spikes: samples, and answers neuron by neuron."""

import torch
from op_samples import SEQUENCES, Arguments, Sample
from torch import Tensor

NAMES = ("no space axes", "more than a block", "batch first", "T = 0", "N = 0")


def sample(name: str) -> Sample:
    shape, time_dim, *_ = SEQUENCES[name]

    def make(generator: torch.Generator) -> Arguments:
        spikes = torch.rand(shape, generator=generator, dtype=torch.float64) < 0.1
        return (spikes.double().transpose(0, time_dim),)

    return Sample(name, make)


def answer(x: Tensor) -> list[Tensor | None]:
    columns = x.movedim(0, -1)
    first = torch.full(columns.shape[:-1], float(len(x)), dtype=torch.float64)
    for place in torch.cartesian_prod(*map(torch.arange, first.shape)).reshape(-1, first.dim()).tolist():
        spikes = columns[tuple(place)].nonzero()
        if len(spikes):
            first[tuple(place)] = float(spikes[0])
    return [first]
