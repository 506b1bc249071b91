"""Recurrence of neurons that run as programs: spikes, states and gradients of `step`, and the same bits in any cut."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same_bits
from random_steps import RandomStep
from torch import Tensor

import snnlib
from snnlib.backends import native
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.functional.recurrent import Recurrence
from snnlib.functional.sparse import SparselyConnected
from snnlib.neurons import CLIF, KLIF, LIF, QIF, Neuron
from snnlib.surrogate import ATan, Triangle

MODELS: dict[str, Callable[[], Neuron]] = {
    "QIF": lambda: QIF(learnable=("tau", "curvature")),
    "QIF of channels": lambda: QIF(learnable=("tau", "threshold"), channels=9),
    "QIF refractory": lambda: QIF(refractory=3, surrogate=Triangle()),
    "QIF step by step": lambda: QIF(gradient_through_time=False),
    "CLIF": lambda: CLIF(learnable=("threshold",)),
    "KLIF": lambda: KLIF(scale_reset=True),
    "levels": lambda: LIF(levels=4, reset="zero", reset_value=0.2, surrogate=ATan(1.0)),
    "batch first": lambda: QIF(batch_first=True),
}
STEPS, SAMPLES, NEURONS = 13, 3, 9


def recurrence(kind: str, weight: Tensor, delay: Tensor) -> Recurrence:
    """Returns recurrent connections, and their weights and delays from those of a full matrix."""
    late: dict[str, Any] = {"max_delay": 4, "rounded": "rounded" in kind} if "delay" in kind else {}
    if "sparse" in kind:
        exists = weight.detach().t() > 0
        starts = torch.cat((torch.zeros(1, dtype=torch.int64), exists.sum(1).cumsum(0)))
        targets = exists.nonzero()[:, 1].int()
        operator = SparselyConnected(starts, targets, NEURONS)
        late |= {"delay": delay.t()[exists]} if late else {}
        return Recurrence(None, weight.t()[exists], operator, **late, eprop="e-prop" in kind)
    late |= {"delay": delay[:, 0] if "neuron" in kind else delay} if late else {}
    return Recurrence(None, weight, None, **late, eprop="e-prop" in kind)


KINDS = [
    *("full", "e-prop", "delay", "rounded delay", "delay of a neuron"),
    *("sparse", "sparse delay", "sparse rounded delay", "sparse e-prop"),
]


def results(
    neuron: Neuron,
    kind: str,
    lengths: Tensor | None = None,
    by_step: bool = False,
    dtype: torch.dtype = torch.float32,
    state: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Spikes, states and gradients of currents, weights, delays, constants and the state, with those of `step`."""
    generator = torch.Generator().manual_seed(7)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    shape = (SAMPLES, STEPS, NEURONS) if neuron.batch_first else (STEPS, SAMPLES, NEURONS)
    x = (0.5 + 0.6 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
    q = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(NEURONS, NEURONS, generator=generator, dtype=torch.float64).to(dtype) / 4
    delay = 4 * torch.rand(NEURONS, NEURONS, generator=generator, dtype=torch.float64).to(wide)
    leaves = [x, weight.requires_grad_(), *([delay.requires_grad_()] if "delay" in kind else [])]
    leaves += [getattr(neuron, name) for name in neuron.learnable]
    back = recurrence(kind, weight, delay)
    before = 6 if "delay" in kind else 1
    start = torch.rand(len(neuron.state_names), SAMPLES, NEURONS, generator=generator, dtype=torch.float64)
    if getattr(neuron, "refractory", 0):
        # No neuron rests at the start.
        start[-1] = 0
    past = (torch.rand(before, SAMPLES, NEURONS, generator=generator, dtype=torch.float64) < 0.3).to(wide)
    state = tuple(part.to(wide).requires_grad_() for part in (0.2 * start, past))
    kernel = None if by_step else neuron.kernel(x)
    assert by_step or isinstance(kernel, ProgramKernel)
    through = None
    if by_step and back.operator is not None:
        if back.delay is not None:
            pytest.skip("connections of an operator take one step where the neuron's step runs")
        through = snnlib.functional.plan.sequence_map(x, back.operator)
    order = int(neuron.batch_first)
    value, final = back.run(x.transpose(0, order), neuron, kernel, state, lengths, through)
    loss = (value * q.transpose(0, order)).sum() + sum((part**2).sum() for part in final)
    grads = torch.autograd.grad(loss, [*leaves, *state], allow_unused=True, materialize_grads=True)
    return value.detach(), *(part.detach() for part in final), *grads


def assert_close(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], tolerance: float = 1e-5) -> None:
    """Spikes of `step`, and states and gradients within 1e-5 of the largest."""
    assert torch.equal(ours[0], theirs[0])
    assert 0.02 < float((ours[0] != 0).double().mean()) < 0.98
    for place, (found, expected) in enumerate(zip(ours[1:], theirs[1:], strict=True)):
        # Terms of either sign cancel in sums over all neurons.
        within = 20 * tolerance if expected.dim() == 0 else tolerance
        assert float((found - expected).abs().max()) <= within * float(expected.abs().max()), place


@pytest.mark.parametrize("lengths", [None, torch.tensor([13, 4, 0])], ids=["whole", "lengths"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "sparse" not in kind or "delay" not in kind])
@pytest.mark.parametrize("name", MODELS)
def test_programs_equal_steps(name: str, kind: str, lengths: Tensor | None) -> None:
    neuron = MODELS[name]()
    assert_close(results(neuron, kind, lengths), results(neuron, kind, lengths, by_step=True))
    neuron = neuron.double()
    ours, theirs = (results(neuron, kind, lengths, by_step, torch.float64) for by_step in (False, True))
    assert_close(ours, theirs, 1e-12)


@pytest.mark.parametrize("lengths", [None, torch.tensor([13, 4, 0])], ids=["whole", "lengths"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["QIF of channels", "CLIF"])
def test_the_reference_is_the_kernel(name: str, kind: str, lengths: Tensor | None) -> None:
    neuron = MODELS[name]().double()
    ours = results(neuron, kind, lengths, dtype=torch.float64)
    with snnlib.use_path("reference"):
        assert_close(results(neuron, kind, lengths, dtype=torch.float64), ours, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_depend_on_no_cut(kind: str, isas: list[str]) -> None:
    neuron, threads = MODELS["QIF of channels"](), torch.get_num_threads()
    expected = results(neuron, kind)
    assert native._module is not None
    for isa in isas:
        native._module.select_isa(isa)
        assert_same_bits(results(neuron, kind), expected, isa)
    for count in (2, 3):
        torch.set_num_threads(count)
        assert_same_bits(results(neuron, kind), expected, f"{count} threads")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    neuron = CLIF()
    value, *_ = results(neuron, "full", dtype=dtype)
    assert value.dtype == dtype
    assert torch.equal(value, results(neuron, "full", by_step=True, dtype=dtype)[0])


@pytest.mark.filterwarnings("ignore:RandomStep. every neuron fires")
@pytest.mark.parametrize("seed", range(12))
def test_random_steps(seed: int) -> None:
    torch.manual_seed(seed)
    layer = snnlib.SpikingRNN(4, 3, neuron=RandomStep(seed)).double()
    x = (torch.rand(9, 2, 4) < 0.5).double().requires_grad_()
    found = []
    for path in ("auto", "reference"):
        with snnlib.use_path(path):  # type: ignore[arg-type]
            value, state = layer.run(x)
        loss = value.sum() + sum(part.sum() for part in state)
        assert isinstance(layer.layers[0].neuron.kernel(x), ProgramKernel)
        found.append((value, *torch.autograd.grad(loss, [x, *layer.parameters()], allow_unused=True)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [700, 5])
def test_segments_and_chunks_give_the_whole_sequence(steps: int) -> None:
    """More steps than a sample has room for, so that backward repeats them in segments."""
    torch.manual_seed(0)
    layer = snnlib.SpikingRNN(4, 100, neuron=QIF(surrogate=Triangle(width=0.5, height=0.4)))
    x = (torch.rand(steps, 2, 4) < 0.3).float()
    found = []
    for sizes in ([steps], [steps // 3, 1, steps - steps // 3 - 1]):
        leaf, state, values = x.clone().requires_grad_(), None, []
        for part in leaf.split(sizes):
            value, state = layer.run(part, state)
            values.append(value)
        value = torch.cat(values)
        found.append((value, *torch.autograd.grad(value.sum(), [leaf, *layer.parameters()])))
    assert torch.equal(found[0][0], found[1][0])
    for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
