"""Neurons that run as programs of their `step`: models, neurons of one's own, and what keeps a step from it."""

import copy
import gc
import io
import pickle
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from random_steps import RandomStep, run_both
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import snnlib
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.neurons import CLIF, IF, KLIF, LIF, QIF, SRM, Neuron
from snnlib.neurons.base import Params, State
from snnlib.neurons.program import NeuronProgram, Refused, program_of
from snnlib.neurons.trace import Trace
from snnlib.surrogate import ATan, EveryThreshold, MultiGaussian, Triangle, spike


def slope(u: Tensor) -> Tensor:
    return 1 / (1 + u.abs()) ** 2


MODELS: dict[str, Callable[[], Neuron]] = {
    "QIF": QIF,
    "QIF that subtracts": lambda: QIF(reset="subtract", learnable=("tau", "threshold", "curvature")),
    "QIF refractory": lambda: QIF(refractory=3),
    "QIF that spikes once": lambda: QIF(refractory=torch.inf),
    "QIF with a floor": lambda: QIF(floor=-0.5, compare=">"),
    "QIF of channels": lambda: QIF(learnable=("tau",), channels=3, batch_first=True),
    "QIF step by step": lambda: QIF(gradient_through_time=False),
    "CLIF": lambda: CLIF(learnable=("tau", "threshold")),
    "CLIF refractory": lambda: CLIF(refractory=2),
    "KLIF": lambda: KLIF(scale_reset=True, learnable=("k", "tau")),
    "KLIF that subtracts": lambda: KLIF(scale_reset=True, reset="subtract", k=1.3),
    "levels": lambda: LIF(levels=4, reset="zero", reset_value=0.2),
    "levels of every threshold": lambda: LIF(
        levels=3,
        reset="zero",
        reset_value=0.2,
        surrogate=EveryThreshold(Triangle(0.5)),
        learnable=("threshold",),
    ),
    "levels without bound": lambda: IF(
        levels=torch.inf, reset="zero", reset_value=0.1, level_rounding="floor", compare=">"
    ),
    "surrogate of one's own": lambda: LIF(surrogate=slope),
    "surrogate without a kernel": lambda: LIF(surrogate=MultiGaussian()),
    "triangle": lambda: QIF(surrogate=Triangle()),
    "rectangle": lambda: QIF(surrogate=snnlib.surrogate.Rectangle()),
    "fast sigmoid": lambda: QIF(surrogate=snnlib.surrogate.FastSigmoid()),
    "sigmoid": lambda: QIF(surrogate=snnlib.surrogate.Sigmoid()),
    "exponential": lambda: QIF(surrogate=snnlib.surrogate.Exponential()),
    "gaussian": lambda: QIF(surrogate=snnlib.surrogate.Erf()),
    "multi gaussian": lambda: QIF(surrogate=MultiGaussian(shift=0)),
}


def currents(seed: int = 0, shape: tuple[int, ...] = (12, 2, 3, 11)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return 0.4 + 0.6 * torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def assert_as_step(
    neuron: Neuron, x: Tensor, q: Tensor, tolerance: float = 1e-5, of_sums: float = 1e-5
) -> None:
    """Spikes of `step`, and states and gradients within 1e-5 of the largest; those of constants are sums."""
    ours, theirs = run_both(neuron, x, q)
    assert torch.equal(ours[0], theirs[0])
    names = ["states", "dL/dcurrent", *(f"dL/d{name}" for name in neuron.learnable)]
    for name, found, expected in zip(names, ours[1:], theirs[1:], strict=True):
        within = tolerance if name in names[:2] else of_sums
        assert float((found - expected).abs().max()) <= within * float(expected.abs().max()), name


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_models_without_a_kernel_run_as_programs(name: str, path: Any) -> None:
    neuron = MODELS[name]()
    x, q = currents()
    with snnlib.use_path(path):
        assert isinstance(neuron.kernel(x), ProgramKernel)
        if neuron.batch_first:
            x, q = x.transpose(0, 1), q.transpose(0, 1)
        assert_as_step(neuron, x, q)


@pytest.mark.filterwarnings("ignore:RandomStep. every neuron fires")
@pytest.mark.parametrize("seed", range(24))
def test_random_steps(seed: int) -> None:
    _check_random(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:RandomStep. every neuron fires")
def test_many_random_steps() -> None:
    for seed in range(24, 424):
        _check_random(seed)


def _check_random(seed: int) -> None:
    neuron = RandomStep(seed)
    x, q = (2 * part for part in currents(seed))
    found = program_of(neuron, x)
    assert isinstance(found, NeuronProgram), (seed, found)
    # Terms of either sign cancel in sums of float32.
    assert_as_step(neuron, x, q, of_sums=2e-3)
    assert_as_step(neuron.double(), x.double(), q.double(), 1e-10, 1e-10)


@pytest.mark.parametrize("model", [QIF, CLIF, lambda **options: KLIF(scale_reset=True, **options)])
def test_gradients_in_float64_are_differences(model: Callable[..., Neuron]) -> None:
    neuron = model(surrogate=Triangle(height=0), learnable=("tau", "threshold"), tau=2.5).double()
    # Spikes and their surrogate slope are no derivative: currents stay below the threshold.
    x = (0.1 * currents(3, (5, 2, 3))[0]).double().requires_grad_()
    constants = [neuron.tau, neuron.threshold]
    start = torch.full((len(neuron.state_names), 2, 3), 0.2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, start: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        value, (state,) = neuron.run(x, (start,))
        return value, state

    assert isinstance(neuron.kernel(x), ProgramKernel)
    assert torch.autograd.gradcheck(run, (x, start, *constants))


class Own(Neuron):
    """Leaky neuron of somebody else."""

    state_names = ("v",)

    def __init__(self, **options: Any) -> None:
        super().__init__({"beta": 0.9, "threshold": 1.0}, **options)
        self.turn, self.seen, self.scale = 0, list[Any](), 1.0
        self.weight = torch.tensor(0.5)

    def charge(self, v: Tensor, current: Tensor, params: Params) -> Tensor:
        return params["beta"] * v + current

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        v = self.charge(state[0], current, params)
        s = spike(v - params["threshold"], params["threshold"], ATan())
        return s, (v * (1 - s.detach()),)


class OwnSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        return (u > 0).to(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 0.5 * grad


def own(charge: Callable[..., Tensor]) -> Neuron:
    return type("Charged", (Own,), {"charge": charge})()


def _turns(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    self.turn += 1
    return params["beta"] * v + (current if self.turn % 2 else 0 * current)


def _notes(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    self.seen.append(v)
    return params["beta"] * v + current


def _branches(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    return current if v.max() > 3 else params["beta"] * v + current


def _branches_on_a_constant(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    return current if params["beta"] > 1 else params["beta"] * v + current


def _in_place(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    v *= params["beta"]
    return v + current


def _by_chance(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    return params["beta"] * v + random.random() * current


def _of_views(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
    a = v.clone()
    b = a.detach()
    a += current
    return params["beta"] * a + b


REFUSED: dict[str, tuple[Callable[..., Tensor], str]] = {
    "a random number": (
        lambda s, v, x, p: p["beta"] * v + 0.1 * torch.randn_like(x) * x,
        "draws random numbers",
    ),
    "dropout": (lambda s, v, x, p: p["beta"] * v + torch.dropout(x, 0.5, True), "draws random numbers"),
    "a sum over neurons": (lambda s, v, x, p: p["beta"] * v + x - 0.1 * x.sum(1, keepdim=True), r"calls sum"),
    "a branch": (_branches, "calls max"),
    "a branch on a constant": (_branches_on_a_constant, "reads a value, in a branch"),
    "another tensor": (
        lambda s, v, x, p: p["beta"] * v + s.weight * x,
        "neither current, state nor constant",
    ),
    "an unknown operation": (lambda s, v, x, p: torch.fmod(v, 1.0) + x, "calls fmod"),
    "a decimal": (lambda s, v, x, p: torch.round(v, decimals=1) + x, "calls round with decimals"),
    "hidden state": (_turns, "changes self.turn"),
    "a recorder": (_notes, "changes self.seen"),
    "a write into the state": (
        _in_place,
        "leaf Variable that requires grad is being used in an in-place operation",
    ),
    "a write that a view sees": (_of_views, "writes into a tensor that others see"),
    "Python's random numbers": (_by_chance, "gives other"),
    "a gradient of one's own": (
        lambda s, v, x, p: p["beta"] * v + x * OwnSpike.apply(v),
        "Function OwnSpike",
    ),
    "float64": (
        lambda s, v, x, p: (p["beta"].double() * v + x.double()).float(),
        "computes in torch.float64",
    ),
    "a shape": (lambda s, v, x, p: p["beta"] * v + x * torch.ones(x.shape), "take torch.zeros_like"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_steps_run_as_written_and_say_why(name: str) -> None:
    charge, sentence = REFUSED[name]
    x, _ = currents()
    neuron = own(charge)
    found = program_of(neuron, x)
    assert isinstance(found, Refused)
    assert sentence in found.reason
    layer = snnlib.SpikingLinear(3, 3, neuron=neuron)
    frames = torch.rand(4, 2, 3)
    assert f"Charged with its options runs by its step, which {found.reason}" in str(
        layer.plan(frames, layer.weight)
    )
    # The first call looks at the neuron at rest.
    neuron(x)
    torch.manual_seed(1)
    random.seed(1)
    neuron.turn = 0
    expected = neuron.reference(x).value
    torch.manual_seed(1)
    random.seed(1)
    neuron.turn = 0
    assert torch.equal(neuron(x), expected)


def test_a_trace_leaves_no_mark() -> None:
    for charge in (_turns, _notes, _by_chance, REFUSED["a random number"][0], Own.charge):
        neuron = own(charge)
        neuron.register_buffer("count", torch.zeros(()))
        before, numbers = copy.deepcopy(vars(neuron)), (random.getstate(), torch.get_rng_state())
        program_of(neuron, currents()[0])
        assert random.getstate() == numbers[0]
        assert torch.equal(torch.get_rng_state(), numbers[1])
        assert neuron.turn == 0
        assert neuron.seen == []
        assert {*vars(neuron)} - {*before} == {"_programs"}


def test_a_trace_keeps_nothing() -> None:
    x, _ = currents()
    for make in (QIF, Own, lambda: SRM(reset_states="membrane"), lambda: own(REFUSED["a random number"][0])):
        neuron = make()
        gc.collect()
        traces = sum(type(each) is Trace for each in gc.get_objects())
        saved = []
        for _ in range(2):
            with snnlib.save_packed() as bytes_of:
                neuron(x.clone().requires_grad_())
            saved.append(bytes_of.given)
        # The first call traces and compares, which is nothing that the net saves.
        assert saved[0] == saved[1]
        gc.collect()
        assert sum(type(each) is Trace for each in gc.get_objects()) == traces


def test_an_object_at_the_address_of_a_former_one_has_a_program_of_its_own() -> None:
    x, q = currents()
    scaled = type("Scaled", (Own,), {"charge": lambda s, v, x, p: p["beta"] * v + s.scale.value * x})()
    scaled.scale = SimpleNamespace(value=0.5)
    address, others = id(scaled.scale), []
    assert_as_step(scaled, x, q)
    scaled.scale = None
    while len(others) < 100 and (not others or id(others[-1]) != address):
        others.append(SimpleNamespace(value=1.5))
    scaled.scale = others[-1]
    assert_as_step(scaled, x, q)


def test_a_step_with_hidden_state_is_traced_once() -> None:
    calls = list[int]()

    def charge(self: Own, v: Tensor, current: Tensor, params: Params) -> Tensor:
        calls.append(1)
        return _turns(self, v, current, params)

    neuron = own(charge)
    x, _ = currents()
    neuron(x)
    first = len(calls)
    neuron(x)
    assert len(calls) - first == len(x)


def test_programs_end_with_what_they_depend_on() -> None:
    x, q = currents()
    neuron = Own(learnable=("beta",))
    scaled = type("Scaled", (Own,), {"charge": lambda s, v, x, p: p["beta"] * v + s.scale * x})()
    for changed in (neuron, scaled):
        assert_as_step(changed, x, q)
    scaled.scale = 0.5
    assert_as_step(scaled, x, q)
    with torch.no_grad():
        neuron.beta.fill_(0.5)
        scaled.beta.fill_(0.25)
    for changed in (neuron, scaled, copy.deepcopy(neuron), pickle.loads(pickle.dumps(QIF()))):
        assert_as_step(changed, x, q)
    neuron.gradient_through_time = False
    assert_as_step(neuron, x, q)
    kernel = neuron.double().kernel(x.double())
    assert isinstance(kernel, ProgramKernel)
    assert kernel.constants.dtype == torch.float64
    other = Own(learnable=("beta",))
    stored = io.BytesIO()
    torch.save(neuron.state_dict(), stored)
    stored.seek(0)
    other.load_state_dict(torch.load(stored))
    assert_as_step(other, x, q)


def test_training_and_evaluation_have_programs_of_their_own() -> None:
    neuron = type(
        "Gated", (Own,), {"charge": lambda s, v, x, p: p["beta"] * v + (x if s.training else 0.5 * x)}
    )()
    x, q = currents()
    for mode in (True, False, True, False):
        assert_as_step(neuron.train(mode), x, q)
    assert len(vars(neuron)["_programs"]) == 2


def test_sequences_in_chunks_of_different_lengths_and_in_half_precision() -> None:
    x, _ = currents()
    neuron = CLIF(refractory=1)
    whole, (last,) = neuron.run(x)
    state, parts = None, []
    for part in (x[:5], x[5:6], x[6:6], x[6:]):
        value, state = neuron.run(part, state)
        parts.append(value)
    assert torch.equal(torch.cat(parts), whole)
    assert state is not None
    assert torch.equal(state[0], last)
    lengths = torch.tensor([4, 12])
    value, (final,) = neuron.run(x, None, lengths)
    assert torch.equal(value[:4, 0], whole[:4, 0])
    assert not bool(value[4:, 0].any())
    assert torch.equal(final[:, 0], neuron.run(x[:4])[1][0][:, 0])
    for dtype in (torch.bfloat16, torch.float16):
        narrow = x.to(dtype).requires_grad_()
        value = neuron(narrow)
        assert value.dtype == dtype
        assert torch.equal(value, neuron.reference(narrow).value)
        value.sum().backward()
        assert narrow.grad is not None
        assert narrow.grad.dtype == dtype
        wide = x.to(dtype).float().requires_grad_()
        neuron(wide).sum().backward()
        assert wide.grad is not None
        assert torch.equal(narrow.grad, wide.grad.to(dtype))


def test_dispatch_modes_and_fake_tensors_see_the_step() -> None:
    x, _ = currents()
    neuron = QIF()
    with FlopCounterMode(display=False):
        assert neuron.kernel(x) is None
        expected = neuron(x)
    assert isinstance(neuron.kernel(x), ProgramKernel)
    assert torch.equal(neuron(x), expected)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert neuron(mode.from_tensor(x)).shape == x.shape


def test_layers_say_what_they_run() -> None:
    layer = snnlib.SpikingLinear(4, 3, neuron=QIF())
    x = torch.rand(5, 2, 4)
    assert "currents -> scan (QIF runs as a program of 9, 10 and 7 instructions; not layer: " in str(
        snnlib.explain_dispatch(layer, x)
    )
    recurrent = snnlib.SpikingRNN(4, 3, neuron=QIF(surrogate=Triangle(height=0.4)))
    assert "currents -> scan (QIF runs as a program of 9, 10 and 7 instructions; not layer: " in str(
        snnlib.explain_dispatch(recurrent, x)
    )
    frames = snnlib.SpikingConvRNN2d(4, 3, 3, padding=1, neuron=QIF(surrogate=Triangle(height=0.4)))
    assert "currents -> steps (QIF runs as" not in str(snnlib.explain_dispatch(frames, x[..., None, None]))
