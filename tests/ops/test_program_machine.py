"""The machine of programs: the same bits however it cuts its work, errors of its functions, and its reference."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from compare import assert_same_bits
from torch import Tensor

import snnlib
from snnlib.backends import native
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.neurons import CLIF, QIF, Neuron
from snnlib.neurons.base import Params, State
from snnlib.ops import scan_program


class Everything(Neuron):
    """Reads every kind of register: functions, selections, constants of channels and numbers."""

    state_names = ("v", "w", "n")

    def __init__(self) -> None:
        constants = {"a": torch.linspace(0.5, 0.9, 4), "b": 0.3, "threshold": torch.linspace(0.8, 1.2, 4)}
        super().__init__(constants, learnable=("a", "b", "threshold"))

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v, w, n = state
        a, b, threshold = params["a"], params["b"], params["threshold"]
        h = a * v + current + torch.tanh(w) - b * torch.sigmoid(n)
        h = h + 0.1 * torch.sin(h) * torch.cos(w) + torch.log1p(h.abs()) * torch.exp(-n.abs())
        spikes = snnlib.surrogate.spike(h - threshold, threshold, snnlib.surrogate.Exponential(0.5))
        w = torch.where(h > 0, w * b + spikes, torch.maximum(w, 0.1 * h))
        return spikes, (h * (1 - spikes), w.clamp(-2, 2), a * n + torch.nn.functional.softplus(h) / 4)


MODELS: dict[str, Callable[[], Neuron]] = {
    "QIF": lambda: QIF(learnable=("tau", "curvature")),
    "CLIF": CLIF,
    "everything": Everything,
}


@pytest.fixture
def native_module(isas: list[str]) -> Iterator[list[str]]:
    threads = torch.get_num_threads()
    yield isas
    torch.set_num_threads(threads)


def results(neuron: Neuron, x: Tensor, q: Tensor, time_dim: int = 0) -> tuple[Tensor, ...]:
    """Values, last state and gradients of current, constants and first state."""
    kernel = neuron.kernel(x)
    assert isinstance(kernel, ProgramKernel)
    generator = torch.Generator().manual_seed(5)
    shape = (kernel.states, *(x.shape[1:] if time_dim == 0 else (x.shape[0], *x.shape[2:])))
    dtype = kernel.constants.dtype
    start = torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    leaf, constants = x.clone().requires_grad_(), kernel.constants.detach().requires_grad_()
    value, final = scan_program.run(
        leaf.transpose(0, time_dim), replace(kernel, constants=constants, state=start)
    )
    value = value.transpose(0, time_dim)
    grads = torch.autograd.grad((value * q).sum() + (final * final).sum(), (leaf, constants, start))
    return value.detach(), final.detach(), *grads


def sample(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x, q = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return (0.4 + x / 2).to(dtype), q.to(dtype)


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_bits_depend_on_no_cut(
    name: str, dtype: torch.dtype, native_module: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a task of neurons, and a tile that is no whole one.
    neuron = MODELS[name]().to(dtype)
    x, q = sample((7, 3, 4, 19, 37), dtype)
    expected = results(neuron, x, q)
    for attribute, values in {"_TILE": (32, 64, 2048), "_CHUNK_BYTES": (1, 30 << 10)}.items():
        for value in values:
            with monkeypatch.context() as patch:
                patch.setattr(scan_program, attribute, value)
                assert_same_bits(results(neuron, x, q), expected, f"{attribute} {value}")
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert_same_bits(results(neuron, x, q), expected, f"{threads} threads")
    for isa in native_module:
        assert native._module is not None
        native._module.select_isa(isa)
        assert_same_bits(results(neuron, x, q), expected, isa)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_layouts(name: str, dtype: torch.dtype) -> None:
    neuron = MODELS[name]().to(dtype)
    x, q = sample((5, 2, 4, 3, 5), dtype)
    expected = results(neuron, x, q)
    last = x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    values, final, grad, constants, start = results(neuron, last, q)
    assert_same_bits((values, final, grad, start), (*expected[:3], expected[4]))
    torch.testing.assert_close(constants, expected[3], rtol=1e-4, atol=1e-4)
    first = [part.transpose(0, 1) for part in (x, q)]
    values, final, grad, *_ = results(neuron, first[0], first[1], 1)
    assert_same_bits((values.transpose(0, 1), final, grad.transpose(0, 1)), expected[:3])
    gaps = torch.stack((x, q), 2)[:, :, 0]
    assert_same_bits(results(neuron, gaps, q), expected)


@pytest.mark.parametrize("shape", [(0, 2, 4, 3), (3, 0, 4, 3), (1, 1, 4, 1), (4, 2, 4)])
def test_small_and_empty_sequences(shape: tuple[int, ...]) -> None:
    neuron = Everything()
    x, q = sample(shape, torch.float32)
    with snnlib.use_path("reference"):
        expected = results(neuron, x, q)
    for ours, theirs in zip(results(neuron, x, q), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_is_the_machine(name: str) -> None:
    neuron = MODELS[name]().double()
    x, q = sample((9, 2, 4, 3), torch.float64)
    with snnlib.use_path("reference"):
        expected = results(neuron, x, q)
    for ours, theirs in zip(results(neuron, x, q), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class Function(Neuron):
    """Gives a function of the current."""

    state_names = ("y",)
    gives_spikes = False

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        return self.function(current), (1.0 * state[0],)


# Errors that cpp/include/snnlib/program/functions.h states, in units in the last place, and the range of arguments.
ERRORS: dict[str, tuple[float, float, float]] = {
    "exp": (2, -87, 88.7),
    "expm1": (3, -87, 88.7),
    "log": (2, 1e-37, 1e37),
    "log1p": (3, -0.999, 1e6),
    "tanh": (6, -12, 12),
    "sigmoid": (3, -80, 80),
    "softplus": (4, -80, 30),
    "sin": (2, -100, 100),
    "cos": (2, -100, 100),
    "sqrt": (0.5, 0, 1e37),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_functions(name: str, isas: list[str]) -> None:
    bound, low, high = ERRORS[name]
    function: Any = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    even = torch.linspace(low, high, 200_001, dtype=torch.float64)
    # Small numbers of both signs as well.
    small = torch.logspace(-37, 0, 50_000, dtype=torch.float64) * min(high, 1)
    x = torch.cat((even, small, -small)).float()
    x = x[(x >= low) & (x <= high)]
    ours = Function(function)(x.reshape(1, 1, -1)).flatten().double()
    exact = function(x.double())
    unit = torch.finfo(torch.float32).eps * 2.0 ** torch.floor(torch.log2(exact.abs()))
    normal = exact.abs() > 1.2e-38
    # Sine and cosine near their zeros: units of arguments of one.
    least = 2.0**-24 if name in ("sin", "cos") else 0.0
    error = ((ours - exact).abs() / unit.clamp_min(least))[normal]
    worst = int(error.argmax())
    assert float(error[worst]) <= bound, (float(error[worst]), float(x[normal][worst]))


def test_large_angles_are_those_of_the_library() -> None:
    x = torch.tensor([8193.0, 1e5, -3e7, 1e30, torch.inf, torch.nan]).reshape(1, 1, -1)
    for function in (torch.sin, torch.cos):
        expected = function(x.double()).float()
        torch.testing.assert_close(Function(function)(x), expected, rtol=1e-7, atol=0, equal_nan=True)
