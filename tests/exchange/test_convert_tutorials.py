"""Nets in the manner of snnTorch's tutorials 2 to 7 and of those on regression, populations and autoencoders.

Each is converted, and called with `x` and with another number of samples: equal to the original, or refused with the
reason that stands in the table.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import snnlib

reason = "compares with snntorch, which is not installed"
snn: Any = pytest.importorskip("snntorch", reason=reason)
utils: Any = pytest.importorskip("snntorch.utils", reason=reason)
pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 6


class ByHand(nn.Module):
    """Tutorial 2: a neuron written as an equation, without a class of snnTorch."""

    def forward(self, x: Tensor) -> Any:
        mem, spikes, membranes = torch.zeros_like(x[0]), [], []
        for step in x:
            spk = (mem > 1).float()
            mem = 0.8 * mem + step - spk
            spikes.append(spk)
            membranes.append(mem)
        return torch.stack(spikes), torch.stack(membranes)


class OneNeuron(nn.Module):
    """Tutorials 2 to 4: a neuron alone, in a loop that carries its states."""

    def __init__(self, lif: nn.Module, start: str) -> None:
        super().__init__()
        self.lif, self.start = lif, start

    def forward(self, x: Tensor) -> Any:
        states = getattr(self.lif, self.start)()
        states = states if isinstance(states, tuple) else (states,)
        records = []
        for step in x:
            spk, *states = self.lif(step, *states)
            records.append((spk, states[-1]))
        return tuple(torch.stack(record) for record in zip(*records, strict=True))


class TwoLayers(nn.Module):
    """Tutorials 3 to 5 and populations: two layers, with images as a constant current or as a sequence of spikes."""

    def __init__(self, neuron: Callable[[], nn.Module], start: str, outputs: int, constant: bool) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(16, 20), nn.Linear(20, outputs)
        self.lif1, self.lif2, self.start, self.constant = neuron(), neuron(), start, constant

    def _states(self, lif: Any) -> tuple[Tensor, ...]:
        states = getattr(lif, self.start)()
        return states if isinstance(states, tuple) else (states,)

    def forward(self, x: Tensor) -> Any:
        states1, states2 = self._states(self.lif1), self._states(self.lif2)
        spikes, membranes = [], []
        for t in range(STEPS):
            spk1, *states1 = self.lif1(self.fc1(x if self.constant else x[t]), *states1)
            spk2, *states2 = self.lif2(self.fc2(spk1), *states2)
            spikes.append(spk2)
            membranes.append(states2[-1])
        return torch.stack(spikes), torch.stack(membranes)


class Convolutional(nn.Module):
    """Tutorial 6: convolutions in a class, with the membranes in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 6, 3), nn.Linear(6 * 2 * 2, 10)
        self.lif1, self.lif2, self.lif3 = (snn.Leaky(beta=0.5) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        mem1, mem2, mem3 = (lif.init_leaky() for lif in (self.lif1, self.lif2, self.lif3))
        spikes, membranes = [], []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(nn.functional.max_pool2d(self.conv1(x), 2), mem1)
            spk2, mem2 = self.lif2(nn.functional.max_pool2d(self.conv2(spk1), 2), mem2)
            spk3, mem3 = self.lif3(self.fc(spk2.flatten(1)), mem3)
            spikes.append(spk3)
            membranes.append(mem3)
        return torch.stack(spikes), torch.stack(membranes)


class Regression(nn.Module):
    """The regression tutorials: membranes of neurons that leak, recurrent or without reset, are the prediction."""

    def __init__(self, hidden: nn.Module, start: str) -> None:
        super().__init__()
        self.fc1, self.hidden, self.start = nn.Linear(1, 20), hidden, start
        self.fc2, self.out = nn.Linear(20, 1), snn.Leaky(beta=0.8, learn_beta=True, reset_mechanism="none")

    def forward(self, x: Tensor) -> Tensor:
        states, mem = getattr(self.hidden, self.start)(), self.out.init_leaky()
        states, membranes = states if isinstance(states, tuple) else (states,), []
        for step in x:
            states = self.hidden(self.fc1(step), *states)
            spk, *rest = states
            # A recurrent neuron is given its spikes, too.
            states = states if self.start == "init_rleaky" else rest
            _, mem = self.out(self.fc2(spk), mem)
            membranes.append(mem)
        return torch.stack(membranes)


class Autoencoder(nn.Module):
    """The tutorial on autoencoders: frames to spikes and back, the last membrane is the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), hidden()),
            *(nn.Flatten(1, 3), nn.Linear(4 * 6 * 6, 8), hidden(output=True)),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(8, 4 * 6 * 6), hidden(), nn.Unflatten(1, (4, 6, 6))),
            nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1),
            hidden(output=True, threshold=20000),
        )

    def forward(self, x: Tensor) -> Tensor:
        utils.reset(self.encoder)
        utils.reset(self.decoder)
        codes = torch.stack([self.encoder(x)[0] for _ in range(STEPS)], dim=2)
        pictures = torch.stack([self.decoder(codes[..., t])[1] for t in range(STEPS)], dim=4)
        return pictures[..., -1]


def hidden(**options: Any) -> nn.Module:
    made: nn.Module = snn.Leaky(**{"beta": 0.5, "threshold": 0.5, "init_hidden": True} | options)
    return made


def _events() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 5), nn.MaxPool2d(2), hidden()),
        *(nn.Conv2d(4, 6, 3), nn.MaxPool2d(2), hidden()),
        *(nn.Flatten(), nn.Linear(6 * 2 * 2, 11), hidden(output=True)),
    )


def _leaky() -> nn.Module:
    made: nn.Module = snn.Leaky(beta=0.8)
    return made


def _recurrent() -> nn.Module:
    made: nn.Module = snn.RLeaky(beta=0.8, linear_features=20)
    return made


def _synaptic() -> nn.Module:
    made: nn.Module = snn.Synaptic(alpha=0.9, beta=0.8)
    return made


def _alpha() -> nn.Module:
    made: nn.Module = snn.Alpha(alpha=0.9, beta=0.8, threshold=0.5)
    return made


SEQUENCE, IMAGES, FRAMES = (STEPS, 3, 16), (3, 16), (STEPS, 3, 2, 16, 16)
EXACT = "exact"

# Nets by tutorial: builder, shape of x, and "exact" or why the net is kept or refused. A chain takes a step in a call.
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "2 by hand": (ByHand, SEQUENCE, "expected a module with neurons of snnTorch, .* got ByHand without"),
    "2 Leaky": (lambda: OneNeuron(_leaky(), "init_leaky"), SEQUENCE, EXACT),
    "2 Lapicque": (
        lambda: OneNeuron(snn.Lapicque(R=5.1, C=5e-3, time_step=1e-3), "init_lapicque"),
        SEQUENCE,
        "got lif: R other than 1 has no counterpart",
    ),
    "2 Lapicque with R = 1": (
        lambda: OneNeuron(snn.Lapicque(R=1, C=5, time_step=1), "init_lapicque"),
        SEQUENCE,
        EXACT,
    ),
    "3 two layers": (lambda: TwoLayers(_leaky, "init_leaky", 10, constant=False), SEQUENCE, EXACT),
    "4 Synaptic": (lambda: OneNeuron(_synaptic(), "init_synaptic"), SEQUENCE, EXACT),
    "4 Alpha": (
        lambda: OneNeuron(_alpha(), "init_alpha"),
        SEQUENCE,
        "got lif: a trace of Alpha is read, which has no counterpart",
    ),
    "4 two Synaptic": (lambda: TwoLayers(_synaptic, "init_synaptic", 10, constant=False), SEQUENCE, EXACT),
    "5 images": (lambda: TwoLayers(_leaky, "init_leaky", 10, constant=True), IMAGES, EXACT),
    "6 class": (Convolutional, (3, 1, 16, 16), EXACT),
    "6 and 7 chain": (_events, FRAMES, EXACT),
    "regression, Leaky": (lambda: Regression(_leaky(), "init_leaky"), (STEPS, 3, 1), EXACT),
    "regression, RLeaky": (lambda: Regression(_recurrent(), "init_rleaky"), (STEPS, 3, 1), EXACT),
    "population": (lambda: TwoLayers(_leaky, "init_leaky", 50, constant=True), IMAGES, EXACT),
    # Its second loop begins after the first has ended; each half converts.
    "autoencoder": (
        Autoencoder,
        (3, 1, 12, 12),
        "steps that are alike, .* at its call of decoder.0 in decoder",
    ),
    "encoder": (lambda: Autoencoder().encoder, (STEPS, 3, 1, 12, 12), EXACT),
    "decoder": (lambda: Autoencoder().decoder, (STEPS, 3, 8), EXACT),
}


def _outputs(net: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """All that a net gives, over all steps."""
    utils.reset(net)
    if isinstance(net, nn.Sequential):
        return tuple(torch.stack(record) for record in zip(*map(net, x), strict=True))
    found = net(x)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", NETS)
def test_net_of_a_tutorial_answers_as_the_original_or_is_refused(name: str) -> None:
    torch.manual_seed(0)
    build, shape, expected = NETS[name]
    net, x = build(), 2 * torch.rand(shape)
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.uniform_(layer.weight, -0.1, 0.2)
    if expected != EXACT:
        with pytest.raises(ValueError, match=expected):
            snnlib.convert(net, x, quiet=True, unsupported="raise")
    if expected.startswith(("expected", "steps")):
        return
    made = snnlib.convert(net, x, quiet=True, unsupported="raise" if expected == EXACT else "leave")
    # Dimension 1 of a sequence is that of the samples, and the first of an image.
    for given in (x, torch.cat((x, x[:, :1]) if shape[0] == STEPS else (x, x[:1]), int(shape[0] == STEPS))):
        wanted, found = _outputs(net, given), made(given)
        torch.testing.assert_close(found if isinstance(found, tuple) else (found,), wanted)
        # The last neuron of the decoder never fires.
        assert all(bool(output.any()) for output in wanted[name == "decoder" :])
