"""Residual nets: SEW-ResNet, Spiking ResNet and MS-ResNet, with the `state_dict` keys of SpikingJelly's nets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypedDict, Unpack, cast

from torch import Tensor, nn

from snnlib.checks import check_choice, check_count, checks_options
from snnlib.neurons import LIF, Neuron
from snnlib.neurons.surrogate import Triangle
from snnlib.nn.layers.attention import neuron_to_copy
from snnlib.nn.layers.per_step import MaxPool2d, PerStep
from snnlib.nn.layers.residual_connection import JOINS
from snnlib.nn.norm.batch_norm import BatchNorm2d

__all__ = ["SpikingResNet", "ms_resnet18", "sew_resnet18", "sew_resnet34", "spiking_resnet18"]

Kind = Literal["sew", "spiking", "ms"]
Stem = Literal["large", "small"]
# Half the width of a surrogate behind batch norm that reaches neurons at rest (docs/neurons.md).
_WIDTH = 1.0
# Arguments of SpikingJelly's nets.
_HINTS = {
    "num_classes": "it is called classes",
    "in_channels": "it is called channels",
    "T": "it is called time_steps",
    "cnf": 'it is called join, as in join="add"',
    "spiking_neuron": 'it is called neuron, as in neuron=snnlib.neurons.LIF(dialect="spikingjelly")',
    "surrogate_function": "it belongs to the neuron, as in neuron=snnlib.neurons.LIF(surrogate=ATan())",
}


class ResNetOptions(TypedDict, total=False):
    """Options of all residual nets; see `SpikingResNet`."""

    channels: int
    width: int
    stem: Stem
    neuron: Neuron | Callable[[int], Neuron] | None
    time_steps: int


class _TorchKeys(nn.Module):
    """Base of modules whose `state_dict` has the keys of torch's modules within: `conv1.weight`, not `conv1.0.weight`.

    Files of other libraries hold no constants of neurons, such as thresholds: a neuron then keeps its own.
    """

    # Names in the `state_dict` of children that have another one here.
    stored_names: Mapping[str, str] = {}

    def _key_prefixes(self, prefix: str) -> list[tuple[str, str]]:
        """Returns the prefix of the keys of each child, and that in the `state_dict`."""
        return [
            (
                f"{prefix}{name}.0."
                if isinstance(child, PerStep) and len(child) == 1
                else f"{prefix}{name}.",
                f"{prefix}{self.stored_names.get(name, name)}.",
            )
            for name, child in self.named_children()
        ]

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Returns the `state_dict` with the keys of torch's modules."""
        stored = super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
        for own, other in self._key_prefixes(prefix):
            _move_all(stored, own, other)
        return stored

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for own, other in self._key_prefixes(prefix):
            _move_all(state_dict, other, own)
        for name, child in self.named_children():
            if isinstance(child, Neuron):
                learned = dict(child.named_parameters())
                constants = {
                    f"{prefix}{name}.{key}": value
                    for key, value in child.state_dict().items()
                    if key not in learned
                }
                if not constants.keys() & state_dict.keys():
                    state_dict.update(constants)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _move_all(stored: Any, old: str, new: str) -> None:
    """Gives all keys of a `state_dict` with a prefix another one."""
    if old != new:
        for key in [key for key in stored if key.startswith(old)]:
            stored[new + key.removeprefix(old)] = stored.pop(key)


class ResNetBlock(_TorchKeys):
    """Two 3x3 convolutions and a shortcut, over sequences `[T, N, C, H, W]`; `SpikingResNet` has the equations.

    Args:
        kind: `"sew"`, `"spiking"` or `"ms"`.
        before, after: channels of the input and of the output.
        stride: of the first convolution and of the shortcut.
        make: function from channels to their neurons.
        join: of a SEW block, as in `SpikingResNet`.
    """

    downsample: nn.Module | None

    def __init__(
        self, kind: Kind, before: int, after: int, stride: int, make: Callable[[int], Neuron], join: str
    ) -> None:
        super().__init__()
        self.kind, self.join = kind, join
        if kind == "ms":
            self.stored_names = {"sn1": "spike1", "sn2": "spike2"}
        self.conv1, self.bn1 = _conv(before, after, 3, stride), BatchNorm2d(after)
        self.conv2, self.bn2 = _conv(after, after, 3), BatchNorm2d(after)
        self.sn1, self.sn2 = make(before if kind == "ms" else after), make(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = PerStep(*_conv(before, after, 1, stride), nn.BatchNorm2d(after))
            if kind == "sew":
                self.downsample_sn = make(after)

    def forward(self, x: Tensor) -> Tensor:
        """Returns spikes, or currents of an MS block."""
        shortcut = x if self.downsample is None else self.downsample(x)
        if self.kind == "ms":
            spikes = self.sn2(self.bn1(self.conv1(self.sn1(x))))
            return self.bn2(self.conv2(spikes)) + shortcut  # type: ignore[no-any-return]
        branch = self.bn2(self.conv2(self.sn1(self.bn1(self.conv1(x)))))
        if self.kind == "spiking":
            return self.sn2(branch + shortcut)  # type: ignore[no-any-return]
        if self.downsample is not None:
            shortcut = self.downsample_sn(shortcut)
        return JOINS[self.join](self.sn2(branch), shortcut)

    def extra_repr(self) -> str:
        """Kind, and join of a SEW block."""
        return f"{self.kind!r}" + f", join={self.join!r}" * (self.kind == "sew")


class SpikingResNet(_TorchKeys):
    """Residual net of spiking neurons, for images `[N, C, H, W]` or sequences of frames `[T, N, C, H, W]`.

    A stem of a convolution is followed by stages of blocks, each stage with twice the channels and half the size of the
    one before; then the mean of each channel and a linear layer. The output are scores `[T, N, classes]` of each step:
    average them over T. With W a convolution and its batch norm, F neurons, and a shortcut S that is x, or W x where
    the shape changes, blocks are::

        "sew"        y = join(F(W2 F(W1 x)), S x)     spikes are joined; a W in the shortcut has neurons, too
        "spiking"    y = F(W2 F(W1 x) + S x)          currents are added
        "ms"         y = W2 F(W1 F(x)) + S x          currents are added; the shortcut has no neurons

    An image is shown at each of T steps; the stem's convolution runs once, and its currents repeat. `snnlib.fuse_(net,
    x)` joins convolutions, batch norms and neurons into event-driven blocks.

    The keys of the `state_dict` are those of SpikingJelly's `SEWResNet`, `SpikingResNet` and `MSResNet` for nets of the
    same depth with `stem="large"`, so `net.load_state_dict(torch.load(file))` loads their checkpoints; neurons keep
    their own constants. Choose the neuron that the checkpoint was trained with, such as
    `snnlib.neurons.LIF(dialect="spikingjelly")`.

    Args:
        kind: `"sew"`, `"spiking"` or `"ms"`.
        depths: number of blocks of each stage, `(2, 2, 2, 2)` for ResNet18.
        classes: number of scores. Default 1000.
        join: `"add"` (default), `"and"` or `"iand"` of a SEW block, as in `snnlib.nn.Residual`.
        channels: of the input. Default 3.
        width: channels of the stem and of the first stage. Default 64.
        stem: `"large"` (default), for ImageNet: a 7x7 convolution of stride 2, then a max pool of stride 2, in place
            of which the first stage has stride 2 in `"ms"`; `"small"`, for images such as CIFAR's: a 3x3 convolution.
        neuron: a neuron, copied for every use, or a function from a number of channels to their neurons. Default
            `LIF(decay_input=False, surrogate=Triangle(1.0))`.
        time_steps: T, for images. Default 4.

    Raises:
        ValueError: a number or name out of its range, neurons with `batch_first=True`, or an input of another shape.
        TypeError: a `neuron` that is neither.

    Source: Fang et al., "Deep Residual Learning in Spiking Neural Networks", NeurIPS 2021 (`"sew"`, and `"spiking"`,
    which it is compared with); Hu et al., "Advancing Spiking Neural Networks Toward Deep Residual Learning", IEEE
    TNNLS 2024 (`"ms"`).

    >>> import torch, snnlib
    >>> net = snnlib.models.SpikingResNet("ms", (1, 1), classes=10, width=8, stem="small")
    >>> images = torch.rand(2, 3, 32, 32)
    >>> net(images).shape, net(images.expand(6, 2, 3, 32, 32)).shape
    (torch.Size([4, 2, 10]), torch.Size([6, 2, 10]))
    """

    def __init__(
        self,
        kind: Kind,
        depths: Sequence[int],
        classes: int = 1000,
        *,
        join: str = "add",
        channels: int = 3,
        width: int = 64,
        stem: Stem = "large",
        neuron: Neuron | Callable[[int], Neuron] | None = None,
        time_steps: int = 4,
    ) -> None:
        check_choice("kind", kind, "sew", "spiking", "ms")
        check_choice("join", join, "add", "and", "iand")
        check_choice("stem", stem, "large", "small")
        counts = {"classes": classes, "channels": channels, "width": width, "time_steps": time_steps}
        for name, count in counts.items():
            check_count(name, count)
        if not depths:
            raise ValueError("depths: expected the number of blocks of each stage, got none")
        super().__init__()
        make, large, ms = _maker(neuron), stem == "large", kind == "ms"
        self.kind, self.channels, self.time_steps = kind, channels, time_steps
        self.conv1 = _conv(channels, width, 7 if large else 3, 2 if large else 1)
        self.bn1 = BatchNorm2d(width)
        self.maxpool = MaxPool2d(3, 2, 1) if large and not ms else nn.Identity()
        before = width
        for number, depth in enumerate(depths):
            check_count("depths", depth)
            after, stride = width << number, 2 if number or (large and ms) else 1
            shapes = [(before, after, stride), *[(after, after, 1)] * (depth - 1)]
            stage = nn.Sequential(*(ResNetBlock(kind, *shape, make, join) for shape in shapes))
            self.add_module(f"layer{number + 1}", stage)
            before = after
        self.stages = len(depths)
        self.sn1 = make(before if ms else width)
        self.avgpool = PerStep(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = PerStep(nn.Linear(before, classes))
        if ms:
            self.stored_names = {"conv1": "stem.0", "bn1": "stem.1", "sn1": "head_lif", "fc": "head"}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, ResNetBlock) and ms:
                # The authors begin with blocks that are their shortcuts.
                nn.init.zeros_(module.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores `[T, N, classes]` of each step."""
        # A symbolic trace, as exporters make it, is one of frames.
        images = isinstance(x, Tensor) and self._are_images(x)
        current = self.bn1(self.conv1(x.unsqueeze(0) if images else x))
        if images:
            current = current.expand(self.time_steps, *current.shape[1:])
        out = current if self.kind == "ms" else self.maxpool(self.sn1(current))
        for number in range(1, self.stages + 1):
            out = getattr(self, f"layer{number}")(out)
        out = self.sn1(out) if self.kind == "ms" else out
        return self.fc(self.avgpool(out))  # type: ignore[no-any-return]

    def _are_images(self, x: Tensor) -> bool:
        if x.dim() not in (4, 5) or x.shape[-3] != self.channels:
            raise ValueError(
                f"x: expected images [N, C, H, W] or frames [T, N, C, H, W] with C = {self.channels}, got shape "
                f"{tuple(x.shape)}"
            )
        return x.dim() == 4


checks_options(SpikingResNet, _HINTS)


def _conv(before: int, after: int, size: int, stride: int = 1) -> PerStep:
    return PerStep(nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False))


def _maker(neuron: Neuron | Callable[[int], Neuron] | None) -> Callable[[int], Neuron]:
    """Returns a function from channels to their neurons."""
    if callable(neuron) and not isinstance(neuron, Neuron | type):
        return lambda channels: neuron_to_copy(neuron(channels))
    default = LIF(decay_input=False, surrogate=Triangle(_WIDTH))
    # A class, which could be called with a number of channels as well, is refused there.
    own = default if neuron is None else neuron_to_copy(cast(Neuron, neuron))
    return lambda _: deepcopy(own)


def sew_resnet18(
    classes: int = 1000, *, join: str = "add", **options: Unpack[ResNetOptions]
) -> SpikingResNet:
    """Builds a SEW-ResNet18, `SpikingResNet("sew", (2, 2, 2, 2))`, whose blocks join spikes.

    Args:
        classes, join: as in `SpikingResNet`.
        options: its `channels`, `width`, `stem`, `neuron` and `time_steps`.

    >>> import torch, snnlib
    >>> net = snnlib.models.sew_resnet18(10, stem="small", width=8)
    >>> net(torch.rand(2, 3, 32, 32)).mean(0).shape                  # scores of images, shown at four steps
    torch.Size([2, 10])
    """
    return SpikingResNet("sew", (2, 2, 2, 2), classes, join=join, **options)


def sew_resnet34(
    classes: int = 1000, *, join: str = "add", **options: Unpack[ResNetOptions]
) -> SpikingResNet:
    """Builds a SEW-ResNet34, `SpikingResNet("sew", (3, 4, 6, 3))`; arguments as in `sew_resnet18`.

    >>> import snnlib
    >>> len(snnlib.models.sew_resnet34(10, width=4).layer3)
    6
    """
    return SpikingResNet("sew", (3, 4, 6, 3), classes, join=join, **options)


def spiking_resnet18(classes: int = 1000, **options: Unpack[ResNetOptions]) -> SpikingResNet:
    """Builds a Spiking ResNet18, `SpikingResNet("spiking", (2, 2, 2, 2))`, whose blocks add currents before they fire.

    Arguments as in `sew_resnet18`.

    >>> import torch, snnlib
    >>> snnlib.models.spiking_resnet18(10, width=8)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([4, 2, 10])
    """
    return SpikingResNet("spiking", (2, 2, 2, 2), classes, **options)


def ms_resnet18(classes: int = 1000, **options: Unpack[ResNetOptions]) -> SpikingResNet:
    """Builds an MS-ResNet18, `SpikingResNet("ms", (2, 2, 2, 2))`, whose shortcuts add currents and never fire.

    Arguments as in `sew_resnet18`. SpikingJelly's `ms_resnet18` returns the mean of the scores over T.

    >>> import torch, snnlib
    >>> snnlib.models.ms_resnet18(10, width=8)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([4, 2, 10])
    """
    return SpikingResNet("ms", (2, 2, 2, 2), classes, **options)
