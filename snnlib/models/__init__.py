"""Published nets, and nets from the papers' own notation."""

from snnlib import guesses
from snnlib.models.notation import from_notation
from snnlib.models.published import (
    cifar10_dvs_vgg,
    cifar10_resnet,
    cifar10_vgg,
    cifar100_resnet,
    cifar100_vgg,
    dvs_gesture_net,
    fashion_mnist_net,
    mnist_net,
    nmnist_net,
)
from snnlib.models.resnet import SpikingResNet, ms_resnet18, sew_resnet18, sew_resnet34, spiking_resnet18
from snnlib.models.spikformer import spikformer
from snnlib.models.trained import Card, TrainedNet, load

__all__ = [
    "Card",
    "SpikingResNet",
    "TrainedNet",
    "cifar10_dvs_vgg",
    "cifar10_resnet",
    "cifar10_vgg",
    "cifar100_resnet",
    "cifar100_vgg",
    "dvs_gesture_net",
    "fashion_mnist_net",
    "from_notation",
    "load",
    "mnist_net",
    "ms_resnet18",
    "nmnist_net",
    "sew_resnet18",
    "sew_resnet34",
    "spikformer",
    "spiking_resnet18",
]

guesses.publish(__name__, __all__)
