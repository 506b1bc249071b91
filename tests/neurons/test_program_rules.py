"""Operations of programs beside torch: values and gradients at zeros, bounds, ties, NaN and infinities."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import snnlib
from snnlib.neurons.base import Params, State
from snnlib.neurons.lowering import LOWERED
from snnlib.neurons.program import NeuronProgram, program_of

Function = Callable[[Tensor, Tensor], Tensor]


class Pointwise(snnlib.neurons.Neuron):
    """Gives a function of the current and the state, which stays."""

    state_names = ("y",)
    gives_spikes = False

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        return self.function(current, state[0]), (state[0] * 1.0,)


def _in_place(x: Tensor, y: Tensor) -> Tensor:
    v = x.clone()
    v *= 3
    v -= y
    return v


FUNCTIONS: dict[str, Function] = {
    "add": lambda x, y: torch.add(x, y, alpha=3),
    "sub": lambda x, y: torch.sub(x, y, alpha=0.5),
    "rsub": lambda x, y: 1 - x,
    "mul": lambda x, y: x * y,
    "square": lambda x, y: x * x + y**2,
    "div": lambda x, y: x / y,
    "by a number": lambda x, y: x / 3 + 0.1 * y,
    "neg": lambda x, y: -x,
    "reciprocal": lambda x, y: torch.reciprocal(x),
    "number by": lambda x, y: 2 / x,
    "exp": lambda x, y: torch.exp(x),
    "expm1": lambda x, y: torch.expm1(x),
    "log": lambda x, y: torch.log(x),
    "log1p": lambda x, y: torch.log1p(x),
    "sqrt": lambda x, y: torch.sqrt(x),
    "rsqrt": lambda x, y: torch.rsqrt(x),
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "tanh": lambda x, y: torch.tanh(x),
    "sin": lambda x, y: torch.sin(x),
    "cos": lambda x, y: torch.cos(x),
    "softplus": lambda x, y: F.softplus(x),
    "softplus of beta": lambda x, y: F.softplus(x, beta=2.0),
    "silu": lambda x, y: F.silu(x),
    "relu": lambda x, y: torch.relu(x),
    "leaky relu": lambda x, y: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: torch.sign(x) * y,
    "floor": lambda x, y: torch.floor(x) * y,
    "ceil": lambda x, y: torch.ceil(x) * y,
    "round": lambda x, y: torch.round(x) * y,
    "clamp": lambda x, y: x.clamp(-1, 1),
    "clamp low": lambda x, y: x.clamp(min=0.5),
    "clamp high": lambda x, y: x.clamp(max=0.5),
    "clamp_min": lambda x, y: torch.clamp_min(x, 0.5),
    "clamp_max": lambda x, y: torch.clamp_max(x, 0.5),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": lambda x, y: x**1.5,
    "cube": lambda x, y: x**3,
    "root": lambda x, y: x**0.5,
    "base": lambda x, y: torch.pow(2.0, x),
    "powers": torch.pow,
    "lerp": lambda x, y: torch.lerp(x, y, 0.25) + torch.lerp(x, y, 0.75),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "where": lambda x, y: torch.where(x > y, x, y),
    "where of a number": lambda x, y: torch.where(x > 0, -65.1, y),
    "masked_fill": lambda x, y: x.masked_fill(x >= y, 0.5),
    "masks": lambda x, y: torch.where((x > 0) & (y > 0) | ~(x < 1) ^ (y == 1), x, y),
    "logical": lambda x, y: torch.where(torch.logical_and(x, y > 0), x, y),
    "either": lambda x, y: torch.where(torch.logical_or(x < 0, y < 0), x, y),
    "one of": lambda x, y: torch.where(torch.logical_xor(x < 0, torch.logical_not(y)), x, y),
    "number as mask": lambda x, y: torch.where(x.bool(), x, y),
    "view": lambda x, y: x[...] * y,
    "mask as number": lambda x, y: (x > y).to(x.dtype) * x + (x != y) * y,
    "compare": lambda x, y: (x <= y).to(x) - 2 * (x >= y).to(x) + 4 * (x == y).to(x) + 0 * x,
    "filled": lambda x, y: x * torch.ones_like(x) + torch.full_like(y, 0.1) * torch.zeros_like(x),
    "in place": _in_place,
    "detached": lambda x, y: x.detach() * x + y,
    "no gradient": lambda x, y: _without_gradient(x) * y,
    "of numbers": lambda x, y: x * (torch.ones(()) * 0.3) + torch.tensor(0.7),
}


def _without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


# Zeros of both signs, bounds, ties with a state of the same numbers, and what is no finite number.
SPECIAL = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    2.0,
    -2.5,
    3.0,
    20.0,
    21.0,
    -30.0,
    torch.inf,
    -torch.inf,
    torch.nan,
]


def _pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    values = torch.tensor(SPECIAL, dtype=dtype)
    x, y = torch.cartesian_prod(values, values).T.contiguous()
    return x.reshape(1, 1, -1), y.reshape(1, 1, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    neuron = Pointwise(FUNCTIONS[name])
    x, y = _pairs(dtype)
    assert isinstance(program_of(neuron, x), NeuronProgram)
    found = []
    for run in (neuron.run, neuron.reference):
        current, state = x.clone().requires_grad_(), y.clone().requires_grad_()
        value, _ = run(current, (state,))
        found.append([value.detach(), *torch.autograd.grad(value.sum(), (current, state), allow_unused=True)])
    for what, ours, theirs in zip(("value", "dL/dx", "dL/dy"), *found, strict=True):
        if theirs is None:
            assert ours is None or not bool(ours.nan_to_num().any())
            continue
        assert ours is not None
        relative, absolute = (2e-6, 2e-7) if dtype == torch.float32 else (1e-14, 1e-16)
        same = torch.isclose(ours, theirs, rtol=relative, atol=absolute, equal_nan=True)
        cases = torch.stack((x, y, ours, theirs))[:, ~same].T[:3].tolist()
        assert not cases, f"{what}: [x, y, ours, torch's] {cases}"


class Noting(dict[str, Any]):
    """Operations, with those that were looked up."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.seen = set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an operation and notes it."""
        self.seen.update({name} & self.keys())
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)


def test_every_operation_is_traced_in_this_version_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """`release/versions.py` runs this file with each torch that is supported."""
    noting = Noting(LOWERED)
    monkeypatch.setattr("snnlib.neurons.trace.LOWERED", noting)
    x, _ = _pairs(torch.float32)
    for name, function in FUNCTIONS.items():
        found = program_of(Pointwise(function), x)
        assert isinstance(found, NeuronProgram), f"{name}: {found}"
    # A tensor without values is of no use to a step.
    assert {*LOWERED} - noting.seen == {"empty_like"}
