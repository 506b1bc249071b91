"""Spoken digits of unheard voices: snnlib's recurrent net beside snnTorch's and SpikingJelly's of the same size.

    PYTHONPATH=PEERS python benchmarks/learning/speech.py --root FOLDER [--nets ...] [--test SPEAKER ...] [--threads 1]

Spikes, read-out, loss, augmentation, optimiser, order of samples and firing rate at the start are those of
`examples/spoken_digits.py` for every net; only the recurrent layer is another. snnTorch's `RSynaptic` has the same
spread of time constants and learns them too; SpikingJelly's container has one time constant. Printed are accuracy by
speaker, the differences paired by recording with their error, and seconds of processor time, which other work on the
machine does not lengthen so much.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tasks import example
from torch import Tensor, nn

from snnlib import neurons

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from recurrent import Layer, SnnTorch, SpikingJelly

RATE = 0.08
SNNTORCH, SPIKINGJELLY = "snnTorch RSynaptic", "SpikingJelly container"


class Spread(SnnTorch):
    """snnTorch's neurons with the time constants of the example's, spread and learned."""

    def __init__(self, inputs: int, hidden: int) -> None:
        import snntorch  # noqa: PLC0415

        Layer.__init__(self, inputs, hidden)
        self.synaptic = True
        alpha = (1 - 1 / neurons.log_uniform(1.0, 10.0, hidden)).clamp(min=0.01).float()
        beta = (1 - 1 / neurons.log_uniform(3.0, 30.0, hidden)).float()
        self.neurons = snntorch.RSynaptic(
            alpha,
            beta,
            linear_features=hidden,
            all_to_all=True,
            reset_mechanism="subtract",
            learn_alpha=True,
            learn_beta=True,
        )


class Hidden(nn.Module):
    """Spikes of a peer's layer, called like ours."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        # Of the layer's own scores, which are not used.
        del layer.scores

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.spikes(x)


@torch.no_grad()
def scale_to_rate_(weight: Tensor, spikes: Callable[[], Tensor], rate: float = RATE) -> None:
    """Scale the input weights until so many neurons fire in a step."""
    first, low, high = weight.clone(), -6.0, 6.0
    for _ in range(12):
        middle = (low + high) / 2
        weight.copy_(first * 2**middle)
        low, high = (low, middle) if float(spikes().mean()) > rate else (middle, high)


def make(kind: str, hidden: int, classes: int) -> nn.Module:
    """The example's net, with a peer's recurrent layer where one is named."""
    module = example("spoken_digits")
    if kind not in (SNNTORCH, SPIKINGJELLY):
        return module.Net(kind, hidden, classes)
    layer = (Spread if kind == SNNTORCH else SpikingJelly)(module.CHANNELS, hidden)

    class Peer(module.Net):
        def start(self, spikes: Tensor) -> None:
            """As many neurons fire as in ours."""
            scale_to_rate_(layer.input.weight, lambda: layer.spikes(spikes))

    net = Peer("recurrent", hidden, classes)
    net.hidden = Hidden(layer)
    return net


def main() -> None:
    module = example("spoken_digits")
    parser = module.arguments()
    parser.description = __doc__
    for action in parser._actions:
        if action.dest == "nets":
            action.choices, action.default = (*module.NETS, SNNTORCH, SPIKINGJELLY), None
        if action.dest == "root":
            action.required = True
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    installed = {SNNTORCH: "snntorch", SPIKINGJELLY: "spikingjelly"}
    peers = [name for name, package in installed.items() if importlib.util.find_spec(package)]
    options.nets = options.nets or ["recurrent", *peers]
    options.epochs = options.epochs or module.EPOCHS
    voices = module.recorded(options.root, module.Cochlea(module.CHANNELS))
    module.compare(module.run(voices, options, options.test or list(voices), make))


if __name__ == "__main__":
    main()
