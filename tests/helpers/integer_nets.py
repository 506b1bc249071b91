"""Nets of every kind that integers can compute, with their input."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import IF, LIF, SRM, CubaLIF, Integrator

LOW = snnlib.surrogate.Triangle(height=0.5)


def counts(*shape: int, rate: float = 0.1) -> Tensor:
    return torch.poisson(torch.full(shape, rate), generator=torch.Generator().manual_seed(0))


def convolutions() -> nn.Module:
    norm = nn.BatchNorm2d(6)
    norm.running_mean, norm.running_var = 0.1 * torch.rand(6), 0.5 + torch.rand(6)
    return nn.Sequential(
        snnlib.PerStep(nn.Conv2d(2, 6, (3, 4), stride=(2, 1), padding=1, groups=2), norm),
        LIF(tau=3.0),
        snnlib.AvgPool2d((2, 3)),
        snnlib.SpikingConv2d(6, 8, 2, dilation=2, neuron=CubaLIF(4.0, 2.0, reset="subtract", threshold=0.5)),
        snnlib.PerStep(nn.Flatten(), nn.Linear(16, 5)),
        Integrator(4.0),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SRM": (
        lambda: nn.Sequential(
            snnlib.SRMConv2d(2, 4, 5, padding=1, tau_m=8.0, tau_s=4.0),
            snnlib.SpikeAvgPool2d(2),
            snnlib.SRMConv2d(4, 20, 3, tau_m=5.0, tau_s=3.0, threshold=torch.linspace(0.5, 1.5, 20)),
            snnlib.SRMReadout(180, 3),
        ),
        (2, 12, 12),
    ),
    "convolutions": (convolutions, (2, 13, 14)),
    "recurrent": (
        lambda: nn.Sequential(
            snnlib.SpikingRNN(12, 9, 2, neuron=LIF(tau=4.0, surrogate=LOW)),
            snnlib.SpikingLinear(9, 4, neuron=SRM(4.0, 2.0)),
        ),
        (12,),
    ),
    "delays": (
        lambda: nn.Sequential(
            snnlib.SpikingConv2d(2, 5, 3, stride=2, neuron=LIF(tau=3.0), delays=snnlib.Delays(6)),
            snnlib.AvgPool2d(2),
            nn.Flatten(2),
            snnlib.SpikingLinear(20, 9, neuron=LIF(tau=2.0), delays=snnlib.Delays(4)),
            snnlib.SpikingLinear(9, 4, neuron=CubaLIF(), delays=snnlib.Delays(5, per="connection")),
        ),
        (2, 9, 9),
    ),
    "recurrent delays": (
        lambda: nn.Sequential(
            snnlib.SpikingRNN(
                *(12, 9, 2),
                neuron=LIF(tau=4.0, surrogate=LOW),
                delays=snnlib.Delays(4, per="connection"),
                recurrent_delays=snnlib.Delays(6, per="connection"),
            ),
            snnlib.SpikingRNN(9, 7, neuron=LIF(tau=4.0, surrogate=LOW), recurrent_delays=snnlib.Delays(3)),
            snnlib.SpikingLinear(7, 4, neuron=SRM(4.0, 2.0), delays=snnlib.Delays(2)),
        ),
        (12,),
    ),
    "delays of connections": (
        lambda: nn.Sequential(
            snnlib.SpikingConv2d(
                *(2, 5, (3, 4)),
                padding=(1, 2),
                neuron=LIF(tau=3.0),
                delays=snnlib.Delays(6, per="connection"),
            ),
            snnlib.AvgPool2d(2),
            snnlib.SpikingConv2d(
                *(5, 6, 2),
                stride=(1, 2),
                dilation=(2, 1),
                neuron=CubaLIF(),
                delays=snnlib.Delays(3, per="connection"),
            ),
            # A single cell that sees more than the frame.
            snnlib.SpikingConv2d(
                *(6, 4, 3),
                stride=3,
                padding=1,
                neuron=SRM(4.0, 2.0),
                delays=snnlib.Delays(4, per="connection"),
            ),
            nn.Flatten(2),
        ),
        (2, 9, 9),
    ),
    "one axis": (
        lambda: nn.Sequential(
            snnlib.SpikingConv1d(
                *(3, 5, 3),
                padding=1,
                neuron=LIF(tau=1.0, reset_value=-0.25, compare=">"),
                delays=snnlib.Delays(2, per="connection"),
            ),
            snnlib.SpikingLinear(40, 3, neuron=IF()),
        ),
        (3, 8),
    ),
}


def built(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    build, shape = NETS[name]
    return build().eval(), counts(25, 4, *shape, rate=0.3)
