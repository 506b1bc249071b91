"""Neurons against spikes, membranes and gradients that were computed by hand-written float64 loops and other libraries.

Six steps of one neuron, `dL/ds` given, surrogate `max(0, 1 - |u|)`. Spikes and binary fractions are exact, other
numbers have six decimals.
"""

import math
import re
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import snnlib
from snnlib.neurons import (
    ALIF,
    BRF,
    IF,
    KLIF,
    LIF,
    AdLIF,
    Alpha,
    CubaLIF,
    Integrator,
    Izhikevich,
    Neuron,
    Resonate,
)
from snnlib.surrogate import PiecewiseQuadratic

INPUT = (0.75, 0.75, 0.5, 0.25, 1.5, 0.5)
GRADIENT = (1.0, 2.0, -1.0, 1.0, 0.5, 1.0)
TRIANGLE = PiecewiseQuadratic(1.0)


def lif(**options: object) -> LIF:
    usual = {"decay_input": False, "surrogate": TRIANGLE, "detach_reset": False}
    return LIF(2.0, learnable=("tau", "threshold"), **{**usual, **options})


def cuba(**options: object) -> CubaLIF:
    usual = {"decay_input": False, "surrogate": TRIANGLE, "detach_reset": False}
    return CubaLIF(4.0, 2.0, learnable=("tau_m", "tau_s"), **{**usual, **options})


# Time constants whose `exp(-1/tau)` is 1/2 and 3/4.
HALF, THREE_QUARTERS = 1 / math.log(2), 1 / math.log(4 / 3)
# The derivative of `1 - 1/tau` at decays of 1/2 and 3/4.
PER_TAU_2, PER_TAU_4 = 1 / 4, 1 / 16


def adlif(integration: str, **options: object) -> AdLIF:
    usual = {"a": 1.0, "b": 2.0, "rho": 1.0, "surrogate": TRIANGLE}
    return AdLIF(HALF, THREE_QUARTERS, integration=integration, **{**usual, **options})


# Neurons, by which number the currents are multiplied, and gradients of learnable constants.
NEURONS: dict[str, tuple[Neuron, float, dict[str, float]]] = {
    "LIF without a reset": (lif(reset="none"), 1, {"tau": 2.931274 * PER_TAU_2, "threshold": -2.953125}),
    "LIF, zero": (lif(), 1, {"tau": 1.687788 * PER_TAU_2, "threshold": -2.568025}),
    "LIF, zero, detached": (lif(detach_reset=True), 1, {"tau": 1.65625 * PER_TAU_2, "threshold": -3.125}),
    "LIF, reset value": (lif(reset_value=-0.25, rest=-0.25), 1, {"threshold": -2.106676}),
    "LIF, subtract": (lif(reset="subtract"), 1, {"tau": 2.516333 * PER_TAU_2, "threshold": -2.833618}),
    "LIF, subtract, detached": (
        lif(reset="subtract", detach_reset=True),
        1,
        {"tau": 2.662476 * PER_TAU_2, "threshold": -3.831543},
    ),
    "LIF, zero in the next step": (
        lif(reset_time="next"),
        1,
        {"tau": 1.266088 * PER_TAU_2, "threshold": -1.365331},
    ),
    "LIF, zero in the next step, detached": (
        lif(reset_time="next", detach_reset=True),
        1,
        {"tau": 1.359375 * PER_TAU_2, "threshold": -2.9375},
    ),
    "LIF, subtract in the next step": (
        lif(reset="subtract", reset_time="next"),
        1,
        {"tau": 1.991102 * PER_TAU_2, "threshold": -2.060928},
    ),
    "LIF, subtract in the next step, detached": (
        lif(reset="subtract", reset_time="next", detach_reset=True),
        1,
        {"tau": 2.206421 * PER_TAU_2, "threshold": -3.702148},
    ),
    # The input's gain is 1/tau, which falls as the decay rises.
    "LIF, input scaled": (lif(decay_input=True), 2, {"tau": (1.687788 - 5.092925) * PER_TAU_2}),
    "LIF, several spikes, threshold 1/2": (
        lif(reset="subtract", threshold=0.5, levels=math.inf, level_rounding="floor"),
        1,
        {},
    ),
    "CubaLIF, zero": (cuba(), 1, {"tau_s": 1.570986 * PER_TAU_2, "tau_m": 0.91997 * PER_TAU_4}),
    "CubaLIF as in Norse": (cuba(decay_input=True), 4, {}),
    "CubaLIF as in snnTorch, zero in the next step": (
        cuba(reset_time="next", detach_reset=True, compare=">"),
        1,
        {"tau_s": 1.884766 * PER_TAU_2, "tau_m": 0.46875 * PER_TAU_4},
    ),
    "CubaLIF from a state and with its gradient": (cuba(), 1, {}),
    "LSNN": (ALIF(4.0, 4.0, 0.5, tau_s=2.0, dialect="lsnn", surrogate=TRIANGLE), 4, {}),
    "ALIF": (
        ALIF(
            2.0,
            4.0,
            2.0,
            threshold=0.5,
            discretisation="euler",
            compare=">",
            detach_reset=False,
            surrogate=TRIANGLE,
        ),
        2,
        {},
    ),
    "AdLIF, symplectic": (adlif("symplectic"), 4, {}),
    "AdLIF, Euler": (adlif("euler"), 4, {}),
    "AdLIF of Bittar and Garner": (
        AdLIF(HALF, THREE_QUARTERS, a=0.25, b=0.5, dialect="sparch", surrogate=TRIANGLE),
        4,
        {},
    ),
    "Alpha": (Alpha(4.0, 2.0, threshold=0.25, dialect="snntorch", surrogate=TRIANGLE), 1, {}),
    # Values of snnTorch 1.0.0 in float64, with a spike function of this surrogate.
    "Alpha, subtract": (
        Alpha(4.0, 2.0, threshold=0.25, reset="subtract", dialect="snntorch", surrogate=TRIANGLE),
        1,
        {},
    ),
    "Resonate": (
        Resonate(0.5, -0.25, discretisation="euler", threshold=0.5, detach_reset=False, surrogate=TRIANGLE),
        1,
        {},
    ),
    "KLIF": (KLIF(k=1.5, decay_input=False, detach_reset=False, surrogate=TRIANGLE), 1, {"k": 1.803611}),
    "Quadratic integrate-and-fire": (
        Izhikevich(rest=0.0, critical=0.5, reset_value=-0.25, detach_reset=False, surrogate=TRIANGLE),
        2,
        {},
    ),
    "Izhikevich": (
        Izhikevich(a=0.5, b=0.25, rest=0.0, critical=0.5, detach_reset=False, surrogate=TRIANGLE),
        2,
        {},
    ),
    "BRF": (BRF(6.0, 0.5, dt=0.125, surrogate=TRIANGLE), 12, {}),
    "floor": (lif(reset="subtract", detach_reset=True, floor=-0.25), 0, {}),
}
# Spikes and gradients of the currents.
NUMBERS = """
LIF without a reset: 011011  1.509033 1.518066 -.463867 .947266 .332031 .554688
LIF, zero: 010010  1.166222 1.902727 -.310303 .505859 .015625 .5
LIF, zero, detached: 010010  1.625 1.75 -.21875 .5625 .125 .5
LIF, reset value: 000010  1.044985 1.743951 -.77429 .558965 .094757 .25
LIF, subtract: 010010  0.965446 1.723565 -.422954 .637923 .455139 .882812
LIF, subtract, detached: 010010  1.585693 1.671387 -.157227 .810547 .558594 .882812
LIF, zero in the next step: 010010  0.191194 1.625618 0 .267578 .1875 0
LIF, zero in the next step, detached: 010010  1.625 1.75 0 .34375 .1875 0
LIF, subtract in the next step: 010010  .320193 1.71923 .082054 .33041 .224731 .320312
LIF, subtract in the next step, detached: 010010  1.665771 1.831543 .163086 .451172 .339844 .320312
LIF, input scaled: 010010  0.583111 .951364 -.155151 .252930 .0078125 .25
LIF, several spikes, threshold 1/2: 111031  1.084466 1.07029 -.522791 .975861 .457031 .914062
CubaLIF, zero: 011011  1.500503 .696032 -1.061188 .919922 .277344 .554688
CubaLIF as in Norse: 011011  .375126 .174008 -.265297 .22998 .069336 .138672
CubaLIF as in snnTorch, zero in the next step: 010010  1.628906 .820312 .390625 .78125 0 0
CubaLIF from a state and with its gradient: 111011  -.051898 2.206403 -1.006144 .98502 .376289 .752579
LSNN: 001011  .268679 -.095334 .13613 -.015691 .173828 0
ALIF: 101010  .324079 1.020921 -.549276 .058667 .117335 .168945
AdLIF, symplectic: 110010  .160891 .762375 -.2825 .150853 0 .244995
AdLIF, Euler: 110010  .266841 .459759 -.376175 .14505 0 .314453
AdLIF of Bittar and Garner: 110010  .24551 .635493 -.287349 .049594 .162429 .433144
Alpha: 010001  .794467 0 0 .437056 .203166 0
Alpha, subtract: 010111  .838381 .272591 .099132 -.059032 0 0
Resonate: 001111  .609453 .041846 .582559 .272095 .145752 0
KLIF: 110010  -.987176 3.114904 -.663574 1.40625 0 1.125
Quadratic integrate-and-fire: 010010  .692689 .590271 .07487 .283447 0 .171875
Izhikevich: 010010  .566794 .46697 .02061 .134761 .074091 .062555
BRF: 100000  .023875 .140914 -.024611 -.005047 .01963 .026694
floor: 001001  0 .961426 -.577148 .720703 .378906 .242188
"""
# Input of "floor" in place of a multiple of INPUT.
WITH_FLOOR = (-1.0, 0.75, 0.75, 0.5, 0.25, 1.5)
# An initial state, the gradient of the last one, and that of the initial one.
FROM_STATE = "CubaLIF from a state and with its gradient"
START, FINAL_GRADIENT, START_GRADIENT = (0.5, 0.25), (1.0, 1.0), (-0.866325, -0.025949)


class Vector(NamedTuple):
    name: str
    spikes: str
    dx: str


VECTORS = [Vector(*row) for row in re.findall(r"^(.+): (\d+)  (.*)$", NUMBERS, re.MULTILINE)]


# float32 takes the kernels of this processor, float64 the portable ones.
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def numbers(text: str) -> Tensor:
    return torch.tensor([float(number) for number in text.split()], dtype=torch.float64)


def assert_decimals(value: Tensor, expected: Tensor) -> None:
    """Equal to six decimals; in float32 but for some ten roundings of numbers of about 1."""
    precision = 6e-7 if value.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(value.double().flatten(), expected.double(), rtol=0, atol=precision)


def run(neuron: Neuron, by_step: bool, *args: object) -> snnlib.neurons.Output:
    return neuron.reference(*args) if by_step else neuron.run(*args)


def currents(vector: Vector, dtype: torch.dtype) -> Tensor:
    factor = NEURONS[vector.name][1]
    values = [x * factor for x in INPUT] if factor else WITH_FLOOR
    return torch.tensor(values, dtype=dtype).reshape(6, 1, 1)


@every_dtype
@pytest.mark.parametrize("by_step", [False, True], ids=["kernel", "step"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_vector(vector: Vector, by_step: bool, dtype: torch.dtype, path: str) -> None:
    neuron, _, learned = NEURONS[vector.name]
    neuron.zero_grad()
    x, state = currents(vector, dtype).requires_grad_(), None
    if vector.name == FROM_STATE:
        start = torch.tensor(START, dtype=dtype).reshape(-1, 1, 1)
        state = (start.requires_grad_(),)
    out = run(neuron, by_step, x, state)
    assert "".join(str(int(s)) for s in out.value.flatten()) == vector.spikes
    loss = (out.value.flatten() * torch.tensor(GRADIENT, dtype=dtype)).sum()
    if state is not None:
        loss = loss + (out.state[0].flatten() * torch.tensor(FINAL_GRADIENT)).sum()
    loss.backward()
    assert_decimals(x.grad, numbers(vector.dx))
    if state is not None:
        assert_decimals(state[0].grad, torch.tensor(START_GRADIENT))
    for name, expected in learned.items():
        found = getattr(neuron, name).grad.item()
        assert found == pytest.approx(expected, abs=2e-6, rel=1e-6), name


def test_every_neuron_has_numbers() -> None:
    assert [vector.name for vector in VECTORS] == list(NEURONS)


@every_dtype
def test_integrator_vector(dtype: torch.dtype, path: str) -> None:
    neuron = Integrator(4.0, tau_s=2.0)
    x = (torch.tensor(INPUT, dtype=dtype) * 4).reshape(6, 1, 1).requires_grad_()
    v = neuron(x)
    assert_decimals(v.detach(), numbers(".75 1.6875 2.328125 2.527344 3.786133 4.284912"))
    v.flatten().backward(torch.tensor(GRADIENT, dtype=dtype))
    assert_decimals(x.grad, numbers("1.097412 .817383 .464844 .703125 .4375 .25"))


@every_dtype
def test_event_gradient_vector(dtype: torch.dtype, path: str) -> None:
    """EventProp's adjoint for gradients of spike times: 1 for the first spike and 2 for the second."""
    neuron = CubaLIF(4.0, 2.0, gradient="event", grad_clamp=math.inf)
    x = torch.tensor([3.0, 2, 0, 0, 4, 0], dtype=dtype).reshape(6, 1, 1).requires_grad_()
    spikes = neuron(x)
    assert spikes.flatten().tolist() == [0, 1, 0, 0, 1, 0]
    # A gradient towards more or earlier spikes is minus that of the spike's time.
    spikes.flatten().backward(-torch.tensor([0, 1, 0, 0, 2, 0], dtype=dtype))
    assert_decimals(x.grad, numbers("-.952172 -.94487 -.610442 -.64257 -.514056 0"))


def test_at_the_threshold(path: str) -> None:
    x = torch.ones(1, 1, 1)
    assert IF()(x).item() == 1
    assert IF(compare=">")(x).item() == 0
