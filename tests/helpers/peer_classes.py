"""Recipes and forms for every neuron and layer of SpikingJelly, snnTorch and Norse, and the judge of `convert`.

A class without a recipe fails its test, so that a class of a new release cannot be missed. Weights and inputs are
multiples of 1/64, whose sums are exact in float32, so that no rounding decides about a spike.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import snnlib

STEPS, WIDTH = 6, 4
FORMS = ("chain", "class", "loop")
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


def _if(mode: str = "s") -> Any:
    return importlib.import_module(f"{BASE}.neuron").IFNode(step_mode=mode)


def _container(kind: type, mode: str) -> nn.Module:
    return kind(nn.Linear(WIDTH, WIDTH), nn.ReLU())  # type: ignore[no-any-return]


def _hidden(kind: type, mode: str) -> nn.Module:
    return kind(nn.Linear(WIDTH, WIDTH), _if())  # type: ignore[no-any-return]


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
    "StepModeContainer": Recipe(lambda kind, mode: kind(True, mode, nn.Linear(WIDTH, WIDTH), _if())),
    "ElementWiseRecurrentContainer": Recipe(lambda kind, mode: kind(_if(), lambda a, b: a + b, mode)),
    "LinearRecurrentContainer": Recipe(lambda kind, mode: kind(_if(), WIDTH, WIDTH, step_mode=mode)),
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
_CONVS: dict[int, Any] = {1: nn.Linear, 2: nn.Conv1d, 3: nn.Conv2d, 4: nn.Conv3d}


def _front(library: str, shape: tuple[int, ...], mode: str) -> nn.Module:
    """A layer with weights in front of the class."""
    kernel = () if len(shape) == 1 else (1,)
    if library in ("neuron", "layer"):
        layer = importlib.import_module(f"{BASE}.layer")
        name = _CONVS[len(shape)].__name__
        return getattr(layer, name)(shape[0], shape[0], *kernel, step_mode=mode)  # type: ignore[no-any-return]
    return _CONVS[len(shape)](shape[0], shape[0], *kernel)  # type: ignore[no-any-return]


def takes_sequences(library: str, kind: type, mode: str) -> bool:
    """Returns whether a net of a class takes whole sequences."""
    if library == "norse":
        return any(base.__name__ in ("SNN", "SNNRecurrent") for base in kind.__mro__)
    if library == "snntorch":
        return kind.__name__ in ("StateLeaky", "LinearLeaky", "AssociativeLeaky", "LeakyParallel")
    return mode == "m"


class _Class(nn.Module):
    """The class within a `forward`: of one step, or of a sequence in step mode "m"."""

    def __init__(self, front: nn.Module, node: nn.Module, end: nn.Module | None) -> None:
        super().__init__()
        self.front, self.node, self.end = front, node, end

    def forward(self, x: Tensor, *state: Any) -> Any:
        out = self.node(self.front(x) * 2.0, *state)
        return out if self.end is None else self.end(out)


class _Inside(_Class):
    """A loop over time within `forward`; with `states` it hands them from step to step."""

    def __init__(self, front: nn.Module, node: nn.Module, end: nn.Module | None, states: bool) -> None:
        super().__init__(front, node, end)
        self.states = states

    def forward(self, x: Tensor, *_: Any) -> Any:
        state: tuple[Any, ...] = ((None, None),) if self.states and hasattr(self.node, "mem_prev") else ()
        out = []
        for step in x:
            spikes = super().forward(step, *state)
            if self.states:
                spikes, state = spikes[0], spikes[not hasattr(self.node, "recurrent") :]
            out.append(spikes)
        return torch.stack(out)


class _Sums(_Class):
    """A net over sequences with a loop over its outputs."""

    def forward(self, x: Tensor, *state: Any) -> Any:
        out, total = super().forward(x, *state), 0.0
        out = out[0] if isinstance(out, tuple) else out
        for step in out:
            total = total + step
        return total


def build(library: str, kind: type, mode: str, form: str) -> nn.Module:
    """A net with a module of the class in it; raises where the library itself refuses the step mode."""
    torch.manual_seed(0)
    recipe = RECIPES[library][kind.__name__]
    node = recipe.make(kind, mode)
    modes = getattr(node, "supported_step_mode", tuple)()
    if mode and modes and mode not in modes:
        raise ValueError(f"step mode {mode!r}")
    front = _front(library, recipe.shape, mode)
    whole = takes_sequences(library, kind, mode)
    end = _if(mode) if library == "layer" else None
    hidden = library != "norse"
    if library == "snntorch" and hasattr(node, "init_hidden") and not whole:
        hidden = node.init_hidden = form != "loop"
    if form == "chain":
        parts = [part for part in (front, node, end) if part is not None]
        if library == "norse":
            net: nn.Module = importlib.import_module("norse.torch").SequentialState(*parts)
        else:
            net = nn.Sequential(*parts)
    elif form == "class":
        net = _Class(front, node, end)
    else:
        net = _Sums(front, node, end) if whole else _Inside(front, node, end, states=not hidden)
    with torch.no_grad():
        for parameter in front.parameters():
            parameter.copy_(torch.randint(-16, 80, parameter.shape) / 64)
    return net


def run(net: nn.Module, library: str, x: Tensor, form: str, whole: bool) -> Any:
    """Answers of a net as its library documents: from rest, over the whole sequence."""
    for module in net.modules():
        if library in ("neuron", "layer") and hasattr(module, "reset"):
            module.reset()  # type: ignore[operator]
        elif library == "snntorch" and hasattr(module, "reset_mem"):
            for name in ("mem", "syn", "syn_exc", "syn_inh", "spk"):
                if isinstance(getattr(module, name, None), Tensor):
                    setattr(module, name, torch.zeros(0))
            if type(module).__name__ == "DeltaLeaky":
                module.reset_mem()  # type: ignore[operator]
    if whole or form == "loop":
        out = net(x)
        out = out[0] if library == "norse" and form == "chain" else out
        # Potentials of a neuron that does not fire.
        return torch.stack(out) if form == "chain" and isinstance(out, list) else out
    outputs, state = [], None
    for step in x:
        out = net(step) if state is None else net(step, state)
        if library == "norse":
            _, state = out
            out = out[0]
        outputs.append(out)
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), outputs[0], *outputs[1:])


def _answers(run_net: Callable[[Tensor], Any], parameters: list[Tensor], x: Tensor) -> list[Tensor]:
    """Outputs, and gradients of input and parameters."""
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    # A module that writes into its input cannot have a leaf.
    leaves = [leaf for leaf in pytree.tree_leaves(run_net(x * 1.0)) if isinstance(leaf, Tensor)]
    generator = torch.Generator().manual_seed(2)
    terms = [
        (leaf * torch.randn(leaf.shape, generator=generator)).sum() for leaf in leaves if leaf.requires_grad
    ]
    wanted = [x, *parameters]
    if not terms:
        return [*leaves, *(torch.zeros_like(leaf) for leaf in wanted)]
    grads = torch.autograd.grad(torch.stack(terms).sum(), wanted, allow_unused=True)
    return [*leaves, *(torch.zeros_like(p) if g is None else g for p, g in zip(wanted, grads, strict=True))]


def _learned(net: nn.Module) -> list[Tensor]:
    return [parameter for parameter in net.parameters() if parameter.requires_grad]


def contents(net: nn.Module) -> dict[str, Any]:
    """Contents of a net's modules, copied: states, hooks and modes; statistics apart."""
    held: dict[str, Any] = {}
    for path, module in net.named_modules():
        for name, value in {**module.__dict__, **module.__dict__.get("_memories", {})}.items():
            if name not in ("_parameters", "_buffers", "_modules", "_memories"):
                held[f"{path}.{name}"] = (
                    copy.copy(value) if isinstance(value, Tensor | list | dict) else value
                )
        for name, value in module._buffers.items():
            if not isinstance(module, nn.modules.batchnorm._BatchNorm):
                held[f"{path}.{name}"] = None if value is None else value.clone()
    return held


def _equal(a: Any, b: Any) -> bool:
    leaves = pytree.tree_leaves(a), pytree.tree_leaves(b)
    return len(leaves[0]) == len(leaves[1]) and all(
        torch.equal(one, other) if isinstance(one, Tensor) else one is other or bool(one == other)
        for one, other in zip(*leaves, strict=True)
    )


def assert_same_answers(
    net: nn.Module, twin: nn.Module, made: nn.Module, run_twin: Callable[[Tensor], Any], recipe: Recipe
) -> None:
    """Assert that a converted net answers as a twin of the original and shares the original's parameters.

    In training and in evaluation mode, with two sizes of a batch and twice in a row.

    Args:
        net: the original.
        twin: a net like it.
        made: the converted net.
        run_twin: answers of the twin, from rest.
        recipe: for the shape of the input.
    """
    names = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
    shared = {id(parameter) for parameter in made.parameters()}
    for name, parameter in net.named_parameters():
        assert id(parameter) in shared, f"{name} is no parameter of the converted net"
    for training, samples, call in itertools.product((True, False), (3, 2), (1, 2)):
        batch = torch.randint(-16, 64, (STEPS, samples, *recipe.shape)) / 64
        twin.train(training)
        expected = _answers(run_twin, _learned(twin), batch)
        found = _answers(made.train(training), _learned(net), batch)
        if training and recipe.random:
            continue
        assert len(found) == len(expected), f"{len(found)} outputs and gradients for {len(expected)}"
        labels = [f"output {n}" for n in range(len(expected) - len(names) - 1)] + ["x", *names]
        # Rounding of float32 sums, of which gradients have the longest.
        close = 1e-4 * max(1e-3, *(float(a.detach().abs().nan_to_num().max()) for a in expected))
        for label, a, b in zip(labels, expected, found, strict=True):
            assert a.shape == b.shape, f"{label}: {tuple(b.shape)} for {tuple(a.shape)}"
            where = f"{label} ({training=}, {samples=}, {call=})"
            torch.testing.assert_close(
                b, a, rtol=0, atol=close, equal_nan=True, msg=lambda m, w=where: f"{w}: {m}"
            )
    mine = dict(net.named_buffers())
    for name, buffer in twin.named_buffers():
        if name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked"):
            torch.testing.assert_close(mine[name], buffer, msg=f"statistics {name}")


def judge(library: str, kind: type, mode: str, form: str) -> tuple[str, str]:
    """Returns exact, kept, refused or not offered, with the reason.

    Raises:
        AssertionError: the converted net differs from the original, or changes it.
    """
    recipe = RECIPES[library][kind.__name__]
    if recipe.abstract:
        return "-", recipe.abstract
    try:
        net = build(library, kind, mode, form)
    except (ValueError, TypeError, AssertionError, AttributeError) as reason:
        return "-", f"not offered: {reason}"
    whole = takes_sequences(library, kind, mode)
    twin = build(library, kind, mode, form)
    twin.load_state_dict(net.state_dict())
    for module, other in zip(net.modules(), twin.modules(), strict=True):
        # Noise that NumPy has drawn without a seed.
        vars(other).update({name: value for name, value in vars(module).items() if name.startswith("eps_")})
    torch.manual_seed(3)
    x = torch.randint(-16, 64, (STEPS, 3, *recipe.shape)) / 64
    try:
        run(copy.deepcopy(net), library, x, form, whole)
    except Exception as reason:  # The library's own refusal.
        return "-", f"does not run: {type(reason).__name__}: {reason}"
    before = contents(net)
    try:
        made = snnlib.convert(net, x, quiet=True)
    except ValueError as reason:
        text = str(reason)
        assert "node" in text or kind.__name__ in text or any(f" {n}" in text for n in ("1", "2")), text
        assert_unchanged(before, net)
        return "refused", text
    assert_unchanged(before, net)
    assert_same_answers(net, twin, made, partial(run, twin, library, form=form, whole=whole), recipe)
    assert_unchanged(before, net.train())
    try:
        snnlib.convert(net, x, quiet=True, unsupported="raise")
    except ValueError as reason:
        return "kept", str(reason)
    return "exact", ""


def assert_unchanged(before: dict[str, Any], net: nn.Module) -> None:
    """Assert that the contents of a net are what they were, modes apart."""
    after = contents(net)
    changed = [
        name for name in before.keys() | after.keys()
        if not name.endswith(".training") and not _equal(before.get(name), after.get(name))
    ]  # fmt: skip
    assert not changed, f"the original was changed: {changed}"


def outcomes(library: str, kind: type) -> dict[str, str]:
    """Outcome of each step mode and form of a class: exact, kept, refused, or nothing where it is not offered."""
    modes = ("s", "m") if library in ("neuron", "layer") else ("",)
    found = {
        f"{mode} {form}".strip(): judge(library, kind, mode, form)[0] for mode in modes for form in FORMS
    }
    if modes == ("",):
        found["takes"] = "sequences" if takes_sequences(library, kind, "") else "steps"
    return found


STORED = Path(__file__).parents[1] / "stored" / "convert_classes.json"
PAGE = Path(__file__).parents[2] / "docs" / "moving-nets.md"
BEGIN, END = "<!-- classes: written by tests/helpers/peer_classes.py -->\n", "<!-- end of classes -->\n"
TITLES = {
    "neuron": "SpikingJelly's `neuron`",
    "layer": "SpikingJelly's `layer`",
    "snntorch": "snnTorch",
    "norse": "Norse",
}


def record(library: str, name: str, found: dict[str, str]) -> None:
    """Note what became of a class, for the table of the page."""
    if path := os.environ.get("SNNLIB_PAIRS"):
        with Path(path).with_suffix(".classes").open("a", encoding="utf-8") as file:
            file.write(json.dumps([library, name, found]) + "\n")


def stored() -> dict[str, dict[str, dict[str, str]]]:
    """The outcomes that the page's table was made of, by library and class."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def _cell(found: dict[str, str], mode: str) -> str:
    """Outcomes of a mode: one word if all forms that run have the same."""
    forms = {
        form: found[f"{mode} {form}".strip()]
        for form in FORMS
        if found.get(f"{mode} {form}".strip(), "-") != "-"
    }
    words = set(forms.values())
    return (
        words.pop() if len(words) == 1 else ", ".join(f"{form} {word}" for form, word in forms.items()) or "-"
    )


def table(found: dict[str, dict[str, dict[str, str]]]) -> str:
    """Markdown of the outcomes, a row a class; classes that run in no form are left out."""
    rows = ["| library | class | step by step | whole sequences |", "| --- | --- | --- | --- |"]
    for library, classes in found.items():
        for name, outcome in sorted(classes.items()):
            if {*outcome.values()} <= {"-", "steps", "sequences"}:
                continue
            if library in ("neuron", "layer"):
                cells = [_cell(outcome, "s"), _cell(outcome, "m")]
            else:
                one = _cell({form: word for form, word in outcome.items() if form in FORMS}, "")
                whole = outcome["takes"] == "sequences"
                cells = ["-", one] if whole else [one, "-"]
            rows.append(f"| {TITLES[library]} | `{name}` | {cells[0]} | {cells[1]} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Store the outcomes of a file, and put their table into the page."""
    found: dict[str, dict[str, dict[str, str]]] = {library: {} for library in RECIPES}
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        library, name, outcome = json.loads(line)
        found[library][name] = outcome
    found = {library: dict(sorted(classes.items())) for library, classes in found.items()}
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table(found) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
