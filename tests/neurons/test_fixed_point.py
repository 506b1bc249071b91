"""Neurons in the fixed-point arithmetic of Loihi, against integers of Python."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from compare import assert_bits
from torch import Tensor

import snnlib
from snnlib.functional.quantize import fixed_point_weight
from snnlib.neurons import LoihiCubaLIF, LoihiIntegrator, LoihiLIF, from_config
from snnlib.neurons.models.loihi import decay_of

# Integers of decays, threshold and bias current.
CONSTANTS = [
    (1024, 128, 80, 0),
    (17, 3, 700, 5),
    (4095, 4096, 25, -40),
    (0, 0, 3000, 1),
    (2049, 1, 131071, 0),
    (333, 2000, 1, 0),
]


def chip(
    inputs: Sequence[int], i_decay: int, v_decay: int, threshold: int, bias: int, refractory: int = 0
) -> tuple[list[int], list[int]]:
    """Spikes and voltages before the reset, of inputs in units of the state."""

    def decayed(z: int, decay: int) -> int:
        size = (abs(z) * (4096 - decay)) >> 12
        return size if z >= 0 else -size

    u = v = left = 0
    spikes, voltages = [], []
    for x in inputs:
        u = decayed(u, i_decay) + x
        moved = decayed(v, v_decay) + u + 64 * bias
        fires = moved > 64 * threshold and not left
        voltages.append(moved)
        spikes.append(int(fires))
        if fires or left:
            left = refractory if fires else left - 1
            v = 0
        else:
            v = moved
    return spikes, voltages


def neuron(i_decay: int, v_decay: int, threshold: int, bias: int, **options: Any) -> LoihiCubaLIF:
    def tau(decay: int) -> float:
        return 4096 / decay if decay else math.inf

    return LoihiCubaLIF(
        tau(v_decay), tau(i_decay), threshold=threshold / 64, bias_current=bias / 64, **options
    )


def integers(*shape: int, largest: int, seed: int = 0) -> Tensor:
    return torch.randint(-largest, largest + 40, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("constants", CONSTANTS)
@pytest.mark.parametrize("way", ["native", "reference", "step"])
def test_integers_of_the_chip(way: str, constants: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    given = neuron(*constants)
    x = integers(400, 3, 5, largest=2000 if constants[0] > 100 else 100)
    current = x.to(dtype) / 4096
    with snnlib.use_path("reference" if way == "reference" else "auto"):
        fired = given.reference(current).value if way == "step" else given(current)
        potential = None if way == "step" else given.potential(current) * 4096
    for n in range(3):
        for c in range(5):
            spikes, voltages = chip(x[:, n, c].tolist(), *constants)
            assert fired[:, n, c].tolist() == spikes
            assert potential is None or potential[:, n, c].tolist() == voltages


@pytest.mark.parametrize("i_decay", [1024, 4096])
@pytest.mark.parametrize("refractory", [1, 3])
def test_the_current_runs_on_through_a_refractory_time(i_decay: int, refractory: int) -> None:
    constants = i_decay, 128, 80, 2
    x = integers(300, 1, 1, largest=900)
    spikes, _ = chip(x.flatten().tolist(), *constants, refractory)
    assert neuron(*constants, refractory=refractory)(x / 4096).flatten().tolist() == spikes
    if i_decay == 4096:
        alone = LoihiLIF(32.0, threshold=80 / 64, bias_current=2 / 64, refractory=refractory)
        assert alone(x / 4096).flatten().tolist() == spikes


@pytest.mark.parametrize("options", [{}, {"gradient_through_time": False}])
@pytest.mark.parametrize("model", [LoihiLIF, LoihiCubaLIF])
def test_gradients_pass_the_rounding(model: Any, options: dict[str, Any]) -> None:
    """Gradients of kernels, reference and `step` are equal if only the states round."""
    names = ("tau", "threshold") if model is LoihiLIF else ("tau_m", "tau_s", "threshold")
    given = model(learnable=names, channels=6, bias_current=0.25, **options)
    x = (integers(30, 4, 6, 3, largest=3000) / 4096).requires_grad_()
    q = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    found = []
    for path, by_step in (("native", False), ("reference", False), ("auto", True)):
        with snnlib.use_path(path):
            twin = copy.deepcopy(given)
            x.grad = None
            (q * (twin.reference(x).value if by_step else twin(x))).sum().backward()
            assert x.grad is not None
            found.append([x.grad, *(parameter.grad for parameter in twin.parameters())])
    for native, reference, stepped in zip(*found, strict=True):
        torch.testing.assert_close(native, reference, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(native, stepped, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", ["native", "reference"])
def test_chunks_have_the_bits_of_the_whole(path: Any) -> None:
    layer = snnlib.SpikingLinear(20, 8, neuron=LoihiCubaLIF())
    x = (torch.rand(40, 3, 20) < 0.3).float()
    with snnlib.use_path(path):
        first, state = layer.run(x[:17])
        second, _ = layer.run(x[17:], state)
        assert_bits(torch.cat((first, second)), layer(x))


def test_sums_on_the_grid_may_be_taken_in_any_order() -> None:
    """Rounding by a sum in another order is rounded back."""
    given = neuron(1024, 128, 80, 0)
    x = integers(100, 1, 40, largest=1000) / 4096
    assert_bits(given(x + 1e-5 * torch.randn(x.shape)), given(x))


@pytest.mark.parametrize("path", ["native", "reference"])
@pytest.mark.parametrize("model", [LoihiLIF, LoihiCubaLIF])
def test_states_beyond_23_bits_raise(path: Any, model: Any) -> None:
    given = model(surrogate=snnlib.surrogate.Triangle(width=0.5, height=0.4))
    layer = snnlib.SpikingLinear(5, 4, neuron=given)
    recurrent = snnlib.SpikingRNN(5, 4, neuron=copy.deepcopy(given))
    with snnlib.use_path(path):
        for x in (torch.full((9, 1, 4), -4e3), torch.full((9, 1, 4), math.nan), torch.full((9, 1, 4), 1e30)):
            with pytest.raises(
                OverflowError, match=r"^state: expected 23 bits and a sign, sizes below 2048, got"
            ):
                given(x)
        # Once is enough, also where nothing follows.
        x = torch.zeros(50, 1, 4)
        x[3, 0, 2] = -2049
        with pytest.raises(OverflowError):
            given(x)
        assert not given(x.clamp(min=-2047 / (8 if model is LoihiCubaLIF else 1))).any()
        for net in (layer, recurrent):
            with pytest.raises(
                OverflowError, match=r"^(SpikingLinear|RecurrentLayer)\( 5, 4 .*: state: expected"
            ):
                net(torch.full((9, 1, 5), 1e6))


def test_half_precision_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^current: expected torch.float32 or torch.float64, .*got torch.bfloat16"
    ):
        LoihiLIF()(torch.zeros(3, 1, 2, dtype=torch.bfloat16))


def test_weights_have_eight_bits() -> None:
    weight = torch.tensor([-5.0, -4.0, -0.02, -0.01, 0.0, 0.02, 3.9, 4.5], requires_grad=True)
    found = fixed_point_weight(weight, -5)
    assert (found * 32).tolist() == [-128, -128, -1, 0, 0, 1, 125, 127]
    found.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [0, 1, 1, 1, 1, 1, 1, 0]
    # The finest grid that the largest fits into, and what is on it stays.
    assert (fixed_point_weight(weight, None) * 16).tolist() == [-80, -64, 0, 0, 0, 0, 62, 72]
    assert fixed_point_weight(torch.tensor([1e-4, 0.031]), None).tolist() == [0.0, 127 / 4096]
    for exponent in range(-12, 3):
        weight = torch.tensor([-127.0, 3.0]) * 2.0**exponent
        assert_bits(fixed_point_weight(weight, None), weight)
    assert fixed_point_weight(torch.tensor([1e6]), None).tolist() == [508.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("ends", "coarser"),
    [
        ((-128.0, 127.0), 0),
        ((-128.2, 127.4), 0),
        ((-128.5, 1.0), 0),
        ((-128.6, 1.0), 1),
        ((-1.0, 127.4), 0),
        ((-1.0, 127.5), 1),
        ((-128.2, 127.5), 1),
        ((-257.0, 3.0), 1),
        ((-257.2, 3.0), 2),
        ((-1.0, 1e9), 14),
        ((0.0, 0.0), 0),
    ],
)
def test_the_finest_grid_that_both_ends_round_into(
    ends: tuple[float, float], coarser: int, dtype: torch.dtype
) -> None:
    for finest in (-12, -5, 2):
        weight = (torch.tensor(ends, dtype=torch.float64) * 2.0**finest).to(dtype)
        if dtype == torch.bfloat16 and not torch.equal(
            weight.double(), torch.tensor(ends).double() * 2.0**finest
        ):
            continue
        grid = 2.0 ** (min(finest + coarser, 2) if any(ends) else -12)
        expected = (weight.double() / grid).round().clamp(-128, 127) * grid
        assert torch.equal(fixed_point_weight(weight, None).double(), expected)


def test_layers_use_them() -> None:
    layer = snnlib.SpikingConv2d(2, 4, 3, neuron=LoihiCubaLIF(weight_exponent=-6))
    layer.weight.data.mul_(0.01)
    layer.gain.fill_(16.0)
    assert_bits(layer.effective_weight, fixed_point_weight(layer.weight * 16, -6))
    low = snnlib.surrogate.Triangle(width=0.5, height=0.4)
    recurrent = snnlib.SpikingRNN(5, 4, neuron=LoihiCubaLIF(surrogate=low)).layers[0]
    spikes = torch.eye(4).unsqueeze(1)
    sent = recurrent.sent_back(spikes)[1:, 0].T
    assert_bits(sent, fixed_point_weight(recurrent.recurrent_weight, None)[:, :3])


@pytest.mark.parametrize("model", [LoihiLIF, LoihiCubaLIF, LoihiIntegrator])
def test_errors(model: Any) -> None:
    message = "weight_exponent: expected an integer from -12 to 2, or None, got 3"
    with pytest.raises(ValueError, match=f"^{message}"):
        model(weight_exponent=3)
    # The chip has one reset, one comparison and one way to round a decay.
    for name, value in (("decay_input", True), ("reset", "subtract"), ("floor", 0.0), ("compare", ">=")):
        with pytest.raises(
            TypeError, match=f"^{name}: expected an option of {model.__name__}, got an unknown"
        ):
            model(**{name: value})


def test_constants_act_as_the_chip_has_them() -> None:
    given = LoihiCubaLIF(33.1, 4.001, threshold=1.2501, bias_current=0.1, weight_exponent=-5)
    acting = given.constants()
    assert (acting["threshold"] * 64).item() == 80 and (acting["bias_current"] * 64).item() == 6
    assert (decay_of(acting["tau_m"]) * 4096).item() == 4096 - 124
    # The given value is kept.
    again = from_config(snnlib.neurons.config(given))
    assert str(again) == str(given) and again.threshold == 1.2501 and again.weight_exponent == -5
