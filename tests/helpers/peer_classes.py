"""Recipes for every neuron and layer of SpikingJelly, snnTorch and Norse.

A class without a recipe fails its test, so that a class of a new release cannot be missed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

STEPS, WIDTH = 6, 4
BASE = "spikingjelly.activation_based"


@dataclass(frozen=True)
class Recipe:
    """Construction of a class for a test.

    Args:
        make: of the class and a step mode makes a module.
        shape: of one sample of one step.
        random: whether training draws random numbers in another order after conversion.
        abstract: the reason for which the class cannot run by itself.
    """

    make: Callable[[type, str], nn.Module]
    shape: tuple[int, ...] = (WIDTH,)
    random: bool = False
    abstract: str = ""


def _kind(*args: Any, **options: Any) -> Callable[[type, str], nn.Module]:
    """Makes a module of a class that takes no step mode, and sets the mode if it has one."""

    def make(kind: type, mode: str) -> nn.Module:
        module: Any = kind(*args, **options)
        if hasattr(module, "step_mode"):
            module.step_mode = mode
        return module  # type: ignore[no-any-return]

    return make


def _made(arguments: Callable[[], tuple[Any, ...]]) -> Callable[[type, str], nn.Module]:
    """`_kind` for arguments that need the library."""

    def make(kind: type, mode: str) -> nn.Module:
        return _kind(*arguments())(kind, mode)

    return make


def _surrogate(name: str, *args: Any) -> Any:
    return getattr(importlib.import_module(f"{BASE}.surrogate"), name)(*args)


def _table() -> Any:
    few = importlib.import_module(f"{BASE}.neuron.few_spike")
    halves = [2.0 ** (1 - k) for k in range(STEPS)]
    return few.FewSpikeTable(halves, halves, halves)


def _flex(kind: type, mode: str) -> nn.Module:
    def core(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.5 * v + x
        spikes = _surrogate("Sigmoid")(v - 1.0)
        return spikes, v - spikes

    return kind(core, 1, step_mode=mode)  # type: ignore[no-any-return]


def _noisy(*args: Any, **options: Any) -> Callable[[type, str], nn.Module]:
    def make(kind: type, mode: str) -> nn.Module:
        module: Any = _kind(*args, **options, T=STEPS)(kind, mode)
        module.reset_noise(64)
        return module  # type: ignore[no-any-return]

    return make


def if_node(mode: str = "s") -> Any:
    return importlib.import_module(f"{BASE}.neuron").IFNode(step_mode=mode)


def _container(kind: type, mode: str) -> nn.Module:
    return kind(nn.Linear(WIDTH, WIDTH), nn.ReLU())  # type: ignore[no-any-return]


def _hidden(kind: type, mode: str) -> nn.Module:
    return kind(nn.Linear(WIDTH, WIDTH), if_node())  # type: ignore[no-any-return]


_SEQUENCE, _IMAGE, _VOLUME = (WIDTH, 6), (WIDTH, 4, 4), (WIDTH, 4, 4, 4)
_SIZES = {1: _SEQUENCE, 2: _IMAGE, 3: _VOLUME}
_BASE_CLASS = Recipe(_kind(), abstract="a base class")

NEURONS: dict[str, Recipe] = {
    **dict.fromkeys(
        ("IFNode", "LIFNode", "ParametricLIFNode", "QIFNode", "EIFNode", "SimpleIFNode", "KLIFNode",
         "CUBALIFNode", "ComplementaryLIFNode", "HalfThresholdIFNode", "IzhikevichNode", "RAFNode",
         "TernaryIFNode", "TernaryLIFNode", "OTTTLIFNode", "SLTTLIFNode", "ILIFNode", "NonSpikingIFNode",
         "NonSpikingLIFNode", "ActivationAwareIFNode"),
        Recipe(_kind()),
    ),
    **dict.fromkeys(
        ("BaseNode", "SimpleBaseNode", "AdaptBaseNode", "NonSpikingBaseNode", "MPBNBaseNode", "ILCBaseNode",
         "NoisyBaseNode", "NoisyILCBaseNode", "NoisyNonSpikingBaseNode"),
        _BASE_CLASS,
    ),
    "SimpleLIFNode": Recipe(_kind(2.0, True)),
    "LIAFNode": Recipe(_kind(nn.functional.relu, True)),
    "GatedLIFNode": Recipe(_kind(STEPS, WIDTH), _IMAGE),
    "DSRIFNode": Recipe(_kind(STEPS, 1.0)),
    "DSRLIFNode": Recipe(_kind(STEPS)),
    "FewSpikeNode": Recipe(_made(lambda: (_table(),))),
    "HGNode": Recipe(_made(lambda: ([_table(), _table()], [0.5]))),
    "OutlierAwareThresholdNode": Recipe(_made(lambda: (_table(), _table(), 1.0))),
    "FlexSN": Recipe(_flex),
    "MPBNLIFNode": Recipe(_kind(out_features=WIDTH)),
    "PSN": Recipe(_kind(STEPS)),
    "MaskedPSN": Recipe(_kind(2, STEPS, 0.5)),
    "SlidingPSN": Recipe(_kind(2)),
    "STBIFNode": Recipe(_kind(0.5, 8)),
    **dict.fromkeys(("ILCIFNode", "ILCLIFNode", "ILCCUBALIFNode"), Recipe(_kind(2, 2))),
    "NoisyCUBALIFNode": Recipe(_noisy(WIDTH)),
    "NoisyILCCUBALIFNode": Recipe(_noisy(2, 2)),
    "NoisyNonSpikingIFNode": Recipe(_noisy(WIDTH)),
}  # fmt: skip

LAYERS: dict[str, Recipe] = {
    "Linear": Recipe(_kind(WIDTH, WIDTH)),
    "WSLinear": Recipe(_kind(WIDTH, WIDTH)),
    "WSConv2d": Recipe(_kind(WIDTH, WIDTH, 3, padding=1), _IMAGE),
    "Flatten": Recipe(_kind(), _IMAGE),
    "GroupNorm": Recipe(_kind(2, WIDTH), _IMAGE),
    "Upsample": Recipe(_kind(scale_factor=2), _IMAGE),
    "NeuNorm": Recipe(_kind(WIDTH, 4, 4), _IMAGE),
    "Delay": Recipe(_kind(2)),
    "SynapseFilter": Recipe(_kind(4.0, True)),
    "Dropout": Recipe(_kind(0.5), random=True),
    "Dropout2d": Recipe(_kind(0.5), _IMAGE),
    "DropConnectLinear": Recipe(_kind(WIDTH, WIDTH, samples_num=4)),
    "VotingLayer": Recipe(_kind(2)),
    "PrintShapeModule": Recipe(_kind()),
    "SpikeCountToBinary": Recipe(_kind(2)),
    "TemporalBinSum": Recipe(_kind(2)),
    "TemporalWiseAttention": Recipe(_kind(STEPS, 2), _IMAGE),
    "MultiDimensionalAttention": Recipe(_kind(STEPS, WIDTH, 2, 2), _IMAGE),
    **dict.fromkeys(("SpikingSelfAttention", "QKAttention", "TokenQKAttention", "ChannelQKAttention"),
                    Recipe(_kind(WIDTH, 2), _SEQUENCE)),
    "SpikeDrivenSelfAttention": Recipe(_kind(WIDTH, 2), _IMAGE),
    **dict.fromkeys(("SeqToANNContainer", "TLastSeqToANNContainer"), Recipe(_container)),
    **dict.fromkeys(("MultiStepContainer", "TLastMultiStepContainer"), Recipe(_hidden)),
    "StepModeContainer": Recipe(lambda kind, mode: kind(True, mode, nn.Linear(WIDTH, WIDTH), if_node())),
    "ElementWiseRecurrentContainer": Recipe(lambda kind, mode: kind(if_node(), lambda a, b: a + b, mode)),
    "LinearRecurrentContainer": Recipe(lambda kind, mode: kind(if_node(), WIDTH, WIDTH, step_mode=mode)),
    **dict.fromkeys(("OTTTSequential", "GradwithTrace", "SpikeTraceOp"),
                    Recipe(lambda kind, mode: kind(nn.Linear(WIDTH, WIDTH)))),
}  # fmt: skip
for _d in (1, 2, 3):
    _conv, _pool = Recipe(_kind(WIDTH, WIDTH, 3, padding=1), _SIZES[_d]), Recipe(_kind(2), _SIZES[_d])
    LAYERS |= {f"{name}{_d}d": _conv for name in ("Conv", "ConvTranspose")}
    LAYERS |= {f"{name}{_d}d": _pool for name in ("MaxPool", "AvgPool", "AdaptiveAvgPool")}
    LAYERS[f"MaxUnpool{_d}d"] = Recipe(_kind(2), _SIZES[_d], abstract="a call with two inputs")
    LAYERS[f"BatchNorm{_d}d"] = Recipe(_kind(WIDTH), _SIZES[_d])
    LAYERS[f"ThresholdDependentBatchNorm{_d}d"] = Recipe(_kind(1.0, 1.0, WIDTH), _SIZES[_d])
    LAYERS[f"TemporalEffectiveBatchNorm{_d}d"] = Recipe(_kind(STEPS, WIDTH), _SIZES[_d])
    LAYERS[f"BatchNormThroughTime{_d}d"] = Recipe(_kind(STEPS, WIDTH), _SIZES[_d])

SNNTORCH: dict[str, Recipe] = {
    "Leaky": Recipe(_kind(0.75)),
    "Lapicque": Recipe(_kind(0.75)),
    "Synaptic": Recipe(_kind(0.5, 0.75)),
    "Alpha": Recipe(_kind(0.75, 0.5, 0.25)),
    "RLeaky": Recipe(_kind(0.75, linear_features=WIDTH)),
    "RSynaptic": Recipe(_kind(0.5, 0.75, linear_features=WIDTH)),
    "DeltaLeaky": Recipe(_kind(0.5, beta=0.75)),
    "SLSTM": Recipe(_kind(WIDTH, WIDTH, threshold=0.125)),
    "SConv2dLSTM": Recipe(_kind(WIDTH, WIDTH, 3, threshold=0.125), _IMAGE),
    **dict.fromkeys(("LIF", "SpikingNeuron"), _BASE_CLASS),
    "StateLeaky": Recipe(_kind(0.75, WIDTH)),
    "LinearLeaky": Recipe(_kind(0.75, WIDTH, WIDTH)),
    "AssociativeLeaky": Recipe(_kind(WIDTH, 2, 2, 4)),
    "LeakyParallel": Recipe(_kind(WIDTH, WIDTH)),
    "GradedSpikes": Recipe(_kind(WIDTH, 1.0), abstract="a layer with a weight per sample"),
}

_RECURRENT = Recipe(_kind(WIDTH, WIDTH))


def _izhikevich(*sizes: int) -> Callable[[type, str], nn.Module]:
    def make(kind: type, mode: str) -> nn.Module:
        functional = importlib.import_module("norse.torch.functional.izhikevich")
        return kind(*sizes, spiking_method=functional.tonic_spiking)  # type: ignore[no-any-return]

    return make


NORSE: dict[str, Recipe] = {
    **dict.fromkeys(("IAF", "IAFCell", "LI", "LIBoxCell", "LICell", "LIF", "LIFAdEx", "LIFAdExCell",
                     "LIFAdExRefracCell", "LIFBoxCell", "LIFCell", "LIFEx",
                     "LIFExCell", "LIFRefracCell", "LSNN", "LSNNCell"),
                    Recipe(_kind())),
    **dict.fromkeys(("LIFAdExRecurrent", "LIFAdExRecurrentCell", "LIFAdExRefracRecurrent", "LIFAdExRefracRecurrentCell",
                     "LIFExRecurrent", "LIFExRecurrentCell", "LIFMCRecurrentCell", "LIFMCRefracRecurrentCell",
                     "LIFRecurrent", "LIFRecurrentCell", "LIFRefracRecurrent", "LIFRefracRecurrentCell",
                     "LSNNRecurrent", "LSNNRecurrentCell", "CobaLIFCell", "LILinearCell"), _RECURRENT),
    **dict.fromkeys(("Izhikevich", "IzhikevichCell"), Recipe(_izhikevich())),
    **dict.fromkeys(("IzhikevichRecurrent", "IzhikevichRecurrentCell"), Recipe(_izhikevich(WIDTH, WIDTH))),
    "LIFCorrelation": Recipe(_kind(WIDTH, WIDTH), abstract="a call with weights as arguments"),
}  # fmt: skip
# Modules of Norse's package that are no neurons.
_NORSE_OTHERS = (
    "encode",
    "receptive_field",
    "sequential",
    "conv",
    "lift",
    "regularization",
    "mobilenet",
    "vgg",
)
_NORSE_OTHERS += ("spikes_to_times_decoder",)


def found(library: str) -> dict[str, type]:
    """Classes of a library's neurons and layers, by name: found, not listed."""
    module = importlib.import_module(
        {
            "neuron": f"{BASE}.neuron",
            "layer": f"{BASE}.layer",
            "snntorch": "snntorch",
            "norse": "norse.torch",
        }[library]
    )
    return {
        name: kind
        for name, kind in sorted(vars(module).items())
        if inspect.isclass(kind)
        and issubclass(kind, nn.Module)
        and not (library == "norse" and kind.__module__.rpartition(".")[2] in _NORSE_OTHERS)
    }


RECIPES = {"neuron": NEURONS, "layer": LAYERS, "snntorch": SNNTORCH, "norse": NORSE}
