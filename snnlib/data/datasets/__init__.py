"""Data sets from a copy on disk; nothing is downloaded."""

from snnlib.data.datasets.digits import EventDigits
from snnlib.data.datasets.digits_build import build_event_digits
from snnlib.data.datasets.dvs_gesture import DVSGesture
from snnlib.data.datasets.ecg import ECG
from snnlib.data.datasets.event_files import ASLDVS, CIFAR10DVS, NCaltech101, NCars
from snnlib.data.datasets.event_folder import EventFolder
from snnlib.data.datasets.image_folder import ImageFolder, read_image
from snnlib.data.datasets.mnist import EMNIST, MNIST, FashionMNIST
from snnlib.data.datasets.nmnist import NMNIST
from snnlib.data.datasets.ntidigits import NTIDIGITS
from snnlib.data.datasets.shd import SHD, SSC
from snnlib.data.datasets.simulated_events import SimulatedEvents
from snnlib.data.datasets.spoken_digits import SpokenDigits
from snnlib.data.datasets.yin_yang import YinYang

__all__ = [
    "ASLDVS",
    "CIFAR10DVS",
    "ECG",
    "EMNIST",
    "MNIST",
    "NMNIST",
    "NTIDIGITS",
    "SHD",
    "SSC",
    "DVSGesture",
    "EventDigits",
    "EventFolder",
    "FashionMNIST",
    "ImageFolder",
    "NCaltech101",
    "NCars",
    "SimulatedEvents",
    "SpokenDigits",
    "YinYang",
    "build_event_digits",
    "read_image",
]


def __dir__() -> list[str]:
    return sorted(__all__)
