"""A small Spikformer: convolutions turn frames into tokens, then blocks of attention and a perceptron follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy

from torch import Tensor, nn

from snnlib.checks import check_count
from snnlib.neurons import LIF, Neuron
from snnlib.neurons.surrogate import Triangle
from snnlib.nn.layers.attention import Attention, SpikingSelfAttention, TokenPerceptron, neuron_to_copy
from snnlib.nn.layers.per_step import AvgPool2d, PerStep
from snnlib.nn.layers.residual_connection import Residual

# Half the width of a surrogate behind batch norm that reaches neurons at rest (docs/neurons.md).
_WIDTH = 1.0


class Tokens(nn.Module):
    """Frames `[T, N, C, H, W]` as tokens `[T, N, H W, C]`."""

    def forward(self, x: Tensor) -> Tensor:
        """The tokens, row by row."""
        return x.flatten(3).transpose(2, 3)


class TokenMean(nn.Module):
    """The mean of tokens `[T, N, L, C]`, `[T, N, C]`."""

    def forward(self, x: Tensor) -> Tensor:
        """The mean."""
        return x.mean(2)


def spikformer(
    classes: int = 10,
    channels: int = 2,
    *,
    width: int = 64,
    heads: int = 4,
    depth: int = 2,
    ratio: int = 2,
    attention: Callable[..., Attention] = SpikingSelfAttention,
    neuron: Neuron | None = None,
) -> nn.Sequential:
    """Builds a Spikformer for events `[T, N, C, H, W]`, such as N-MNIST's; average its scores over T.

    With its defaults it has 0.13 million parameters.

    Three 3x3 convolutions to `width / 4`, `width / 2` and `width` channels, each with batch norm and neurons, and
    average pools of 2 behind the first two give H W / 16 tokens. A fourth convolution, added to the tokens, encodes
    their position. `depth` blocks of attention and of a perceptron follow, each with a shortcut, then the mean of the
    tokens and a linear layer without neurons. Train with `snnlib.fuse_(net)`; batch norm sets the firing rates.

    Args:
        classes: number of scores per step.
        channels: of the events. Default 2.
        width: channels of a token, a multiple of 4 and of `heads`. Default 64.
        heads: heads of the attention. Default 4.
        depth: number of blocks. Default 2.
        ratio: hidden channels of the perceptrons over `width`. Default 2.
        attention: function from a width to the attention, such as `SpikingSelfAttention` (default) or
            `TokenAttention`.
        neuron: a neuron model, copied for every use. Default `LIF(decay_input=False, surrogate=Triangle(1.0))`.

    Raises:
        ValueError: a number out of its range, or a neuron with `batch_first=True`.
        TypeError: a `neuron` that is not a `Neuron`.

    Source: Zhou et al., "Spikformer", ICLR 2023, with pooling of spikes by means, as `fuse_` takes it.

    >>> import torch, snnlib
    >>> net = snnlib.fuse_(snnlib.models.spikformer(width=16))
    >>> net((torch.rand(4, 2, 2, 34, 34) < 0.05).float()).shape
    torch.Size([4, 2, 10])
    """
    for name, count in (
        ("channels", channels),
        ("width", width),
        ("depth", depth),
        ("ratio", ratio),
        ("classes", classes),
    ):
        check_count(name, count)
    if width % 4:
        raise ValueError(f"width: expected a multiple of 4, got {width}")
    fire = LIF(decay_input=False, surrogate=Triangle(_WIDTH)) if neuron is None else neuron_to_copy(neuron)
    before, stem = channels, OrderedDict[str, nn.Module]()
    for number, after in enumerate((width // 4, width // 2, width), start=1):
        stem[f"conv{number}"], stem[f"neuron{number}"] = _normalised_conv(before, after, fire)
        if after < width:
            stem[f"pool{number}"] = AvgPool2d(2)
        before = after
    layers = OrderedDict[str, nn.Module](stem=nn.Sequential(stem))
    layers["places"] = Residual(nn.Sequential(*_normalised_conv(width, width, fire)))
    layers["tokens"] = Tokens()
    for number in range(1, depth + 1):
        layers[f"attention{number}"] = Residual(attention(width, heads, neuron=fire))
        layers[f"perceptron{number}"] = Residual(TokenPerceptron(width, ratio * width, neuron=fire))
    layers["mean"] = TokenMean()
    layers["fc1"] = PerStep(nn.Linear(width, classes))
    return nn.Sequential(layers)


def _normalised_conv(before: int, after: int, neuron: Neuron) -> tuple[nn.Module, Neuron]:
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return PerStep(conv, nn.BatchNorm2d(after)), deepcopy(neuron)
