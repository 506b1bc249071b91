"""Sequences that come step by step, each from rest, are named once by every neuron and layer that trains."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import MODELS

WORDS = "training calls in a row with one time step each, and every call starts from rest"
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SpikingLinear": (lambda: snnlib.SpikingLinear(3, 2), (3,)),
    "SpikingConv2d": (lambda: snnlib.SpikingConv2d(1, 2, 3), (1, 5, 5)),
    "SRMLinear": (lambda: snnlib.SRMLinear(3, 2), (3,)),
    "SRMReadout": (lambda: snnlib.SRMReadout(3, 2), (3,)),
    "SpikingRNN": (lambda: snnlib.SpikingRNN(3, 2), (3,)),
    "fused": (
        lambda: snnlib.fuse_(nn.Sequential(snnlib.SpikingConv2d(1, 2, 3), snnlib.AvgPool2d(2))),
        (1, 6, 6),
    ),
    "fused with batch norm": (
        lambda: snnlib.fuse_(
            nn.Sequential(snnlib.PerStep(nn.Conv2d(1, 2, 3)), snnlib.BatchNorm2d(2), snnlib.neurons.LIF())
        ),
        (1, 6, 6),
    ),
    **{name: (model, (3,)) for name, model in MODELS.items()},
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def _said(call: Callable[[Tensor], object], steps: Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in steps.split(1):
            call(step)
    found = [warning for warning in caught if WORDS in str(warning.message)]
    assert all(warning.filename == __file__ for warning in found), "at the user's line"
    return [str(warning.message) for warning in found]


def _steps(name: str, count: int) -> tuple[nn.Module, Tensor]:
    build, shape = LAYERS[name]
    return build(), torch.rand(count, 2, *shape)


@each_layer
def test_a_loop_over_steps_is_named_once(name: str) -> None:
    layer, steps = _steps(name, 120)
    said = _said(layer, steps)
    assert len(said) == 1 and said[0].startswith("x: expected whole sequences [T, N, ...], got 50 training")


@each_layer
def test_whole_sequences_and_loops_that_keep_the_state_are_not(name: str) -> None:
    layer, steps = _steps(name, 60)
    assert _said(layer, steps[:49]) == []
    # Not in a row.
    layer(steps)
    assert _said(layer, steps[:49]) == []
    if name != "fused with batch norm":
        # Its statistics mix steps, so that no stream takes it.
        assert _said(snnlib.Stream(_steps(name, 1)[0]), steps) == []
    assert _said(_steps(name, 1)[0].eval(), steps) == []
    with torch.no_grad():
        assert _said(_steps(name, 1)[0], steps) == []


def test_batch_first_counts_the_other_dimension() -> None:
    # Weights with which neurons fire: a silent layer warns of that, too.
    torch.manual_seed(0)
    layer = snnlib.SpikingLinear(3, 2, batch_first=True)
    # A single sample of two steps.
    assert _said(layer, torch.rand(60, 2, 3)) == []
    said = _said(lambda x: layer(x.movedim(0, 1)), torch.rand(60, 2, 3))
    assert len(said) == 1 and "[N, T, ...]" in said[0]


def test_a_net_is_named_once_in_a_line() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(3, 4), snnlib.SpikingLinear(4, 4), snnlib.SRMReadout(4, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for step in torch.rand(60, 2, 3).split(1):
            net(step)
    assert sum(WORDS in str(warning.message) for warning in caught) == 1
