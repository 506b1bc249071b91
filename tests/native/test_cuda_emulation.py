"""The CUDA kernels, run as loops on the CPU, give the bits of the CPU kernels: all ops, dtypes, layouts and chunks."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import emulation
import pytest
import torch
from compare import assert_bits, assert_same_bits
from half_values import HALVES, every_value
from layouts import LAYOUTS
from op_samples import Sample
from opdb import DTYPES, OPS, OpCase
from torch import Tensor

import snnlib
from snnlib import functional as F
from snnlib import neurons, ops
from snnlib.backends import native

KERNELS = (
    "srm_forward", "srm_backward", "srm_trace", "scan_forward", "scan_backward", "scan_pool_forward",
    "scan_pool_backward", "srm_pool_forward", "srm_pool_backward",
    "spike_avg_pool", "spike_avg_pool_backward", "recurrent_forward", "recurrent_backward",
    "delay_forward", "delay_backward",
)  # fmt: skip
CALLS = [
    pytest.param(OPS[name], sample, id=f"{name}: {sample.name}")
    for name in KERNELS
    for sample in OPS[name].samples
]


assert_all_bits = partial(assert_same_bits, strides=True)
# Relative error of the weights' signal of SRM neurons, which both devices sum in another order.
_SIGNAL = {torch.float64: 1e-14, torch.float32: 3e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def assert_signals(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Compares signals of SRM neurons: all but the first, the one for the weights, bit for bit."""
    assert_same_bits(actual[1:], expected[1:], strides=True)
    # Numbers below the smallest normal one are 0 at some step.
    smallest = 4 * torch.finfo(torch.float16 if actual[0].dtype == torch.float16 else torch.float32).tiny
    torch.testing.assert_close(
        actual[0], expected[0], rtol=_SIGNAL[actual[0].dtype], atol=smallest, equal_nan=True
    )


def test_emulation_is_what_runs(emulated: Callable[..., Any]) -> None:
    assert emulated(lambda: native._kernels["cpu"].__name__) == "_C_emulated"
    assert native._kernels["cpu"].__name__ == "snnlib._C"


@pytest.mark.parametrize(("case", "sample"), CALLS)
def test_bits_of_the_cpu_kernels(case: OpCase, sample: Sample, emulated: Callable[..., Any]) -> None:
    for dtype in DTYPES:
        args = sample.arguments(dtype)
        compare = assert_signals if case.name in ("srm_backward", "srm_pool_backward") else assert_all_bits
        compare(emulated(case, *args), case(*args))


# Lengths: a step, the groups of 5 and 12 steps that are unrolled together and their neighbours, the longest that fit
# into one chunk of 48 or 96 steps and those just beyond, and sequences of several chunks with a rest.
STEPS = (1, 2, 5, 6, 11, 12, 13, 48, 49, 96, 97, 250, 1000)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)], ids=["ab", "a", "b"])
def test_any_number_of_steps(
    steps: int, dtype: torch.dtype, needs: tuple[bool, bool], emulated: Callable[..., Any]
) -> None:
    """Layers of 30 neurons have two per thread; half precision has 15 numbers, one per thread."""
    generator = torch.Generator().manual_seed(steps)
    samples = 1 + steps % 2
    current = (torch.randn(steps, samples, 3, 5, generator=generator) * 1.2 + 0.4).to(dtype)
    q = torch.randn(current.shape, generator=generator).to(dtype)
    limit = 0.5 + torch.rand(3, generator=generator, dtype=torch.promote_types(dtype, torch.float32))
    state = torch.rand(3, samples, 3, 5, generator=generator).to(limit.dtype) * 0.4
    forward = (current, limit, state, 5.0, 3.0, 3.0, 4.0, 0, True)
    assert_same_bits(emulated(OPS["srm_forward"], *forward), OPS["srm_forward"](*forward), strides=True)
    backward = (q, current, limit, state, 5.0, 3.0, 3.0, 4.0, 0, *needs)
    signals = OPS["srm_backward"](*backward)
    assert all(bool(signal.any()) == need for signal, need in zip(signals, needs, strict=True))
    assert_signals(emulated(OPS["srm_backward"], *backward), signals)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)], ids=["ab", "a", "b"])
def test_pooled_srm_neurons_of_any_number_of_steps(
    dtype: torch.dtype, needs: tuple[bool, bool], emulated: Callable[..., Any]
) -> None:
    """Both layouts, channels two by two, chunks of 12 to 48 steps with rests, a neuron that needs exact reciprocals."""
    for number, steps in enumerate((1, 4, 13, 24, 25, 48, 49, 250)):
        generator = torch.Generator().manual_seed(steps)
        time_dim, channels = number % 2, 4 if number in (1, 2, 5, 6) else 3
        shape = (2, steps, channels, 4, 2) if time_dim else (steps, 2, channels, 4, 2)
        current = torch.randn(shape, generator=generator) * 1.2 + 0.4
        limit = 0.5 + torch.rand(
            channels, generator=generator, dtype=torch.promote_types(dtype, torch.float32)
        )
        if dtype == torch.float32:
            current[:, :, 0] *= 1e-38
            limit[0] *= 1e-38
        options = (limit, 5.0, 3.0, 3.0)
        for x in (current.to(dtype), current.to(dtype).movedim(2, -1).contiguous().movedim(-1, 2)):
            means = OPS["srm_pool_forward"](x, *options, time_dim)
            assert_same_bits(emulated(OPS["srm_pool_forward"], x, *options, time_dim), means, strides=True)
            q = torch.randn(means[0].shape, generator=generator).to(dtype)
            backward = (q, x, *options, 4.0, time_dim, *needs)
            signals = OPS["srm_pool_backward"](*backward)
            assert steps < 13 or all(bool(s.any()) == need for s, need in zip(signals, needs, strict=True))
            assert_signals(emulated(OPS["srm_pool_backward"], *backward), signals)


@pytest.mark.parametrize("scale", [1e-42, 1e-38, 1e-36, 1e-30, 1e30, 1e37, 1e38])
@pytest.mark.parametrize("neurons", [6, 7])
def test_reciprocals_beyond_the_range_of_fast_ones(
    scale: float, neurons: int, emulated: Callable[..., Any]
) -> None:
    """Steps of the potential that are denormal, which is 0, or nearly overflow, beside neurons with ordinary ones."""
    generator = torch.Generator().manual_seed(2)
    current = torch.randn(60, 1, neurons, generator=generator) * 1.2 + 0.4
    limit = torch.ones(neurons)
    current[..., ::2] *= scale
    limit[::2] *= scale
    current = current[..., None]
    q = torch.randn(current.shape, generator=generator)
    backward = (q, current, limit, None, 5.0, 3.0, 6.0, math.inf, 0, True, True)
    signals = OPS["srm_backward"](*backward)
    # Beyond, a step or its reciprocal is 0.
    learn = range(neurons) if 1e-37 < scale < 1e38 else range(1, neurons, 2)
    assert all(bool(signal[:, :, column].any()) for signal in signals for column in learn)
    assert_signals(emulated(OPS["srm_backward"], *backward), signals)


def _decaying_gradient(x: Tensor) -> Tensor:
    leaf = (x + 0.01).requires_grad_()
    potential = neurons.LIF(2.0).free_potential(leaf)
    return torch.autograd.grad((potential[-1] * x[0]).sum(), leaf)[0]


DECAYING: dict[str, Callable[[Tensor], Any]] = {
    "LIF": lambda x: neurons.LIF(2.0).run(x),
    "CubaLIF": lambda x: neurons.CubaLIF(4.0, 2.0).run(x),
    "Izhikevich": lambda x: neurons.Izhikevich().run(x),
    "SRM": lambda x: neurons.SRM(5.0, 3.0).run(x),
    "recurrence": lambda x: F.spiking_recurrent(x, x.new_full((8, 8), 0.1), neurons.LIF(2.0)),
    "pool": lambda x: F.spike_avg_pool2d(x.reshape(8, 2, 2, 2, 2), 2),
    "gradient": _decaying_gradient,
}


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="the processor cannot flush denormal numbers")
@pytest.mark.parametrize(
    ("dtype", "flush"),
    [(dtype, flush) for dtype in DTYPES for flush in (False, True) if dtype != torch.float64 or not flush],
)
@pytest.mark.parametrize("name", DECAYING)
def test_denormal_numbers(name: str, dtype: torch.dtype, flush: bool, emulated: Callable[..., Any]) -> None:
    """States that decay through them are 0 in float32 and half types, whatever the caller's mode.

    In float64 a GPU keeps them, and a CPU where the caller does.
    """
    # After eight steps a part of them is denormal.
    x = torch.zeros(8, 2, 8, dtype=dtype)
    x[0] = torch.full((), torch.finfo(dtype).tiny, dtype=dtype) * 2 ** torch.arange(16).reshape(2, 8)
    torch.set_flush_denormal(flush)
    try:
        found = torch.utils._pytree.tree_leaves((emulated(DECAYING[name], x), DECAYING[name](x)))
    finally:
        torch.set_flush_denormal(False)
    half = len(found) // 2
    assert any(bool(part.any()) for part in found[half:])
    assert_same_bits(found[:half], found[half:])


def test_states_above_the_threshold_and_numbers_that_are_none(emulated: Callable[..., Any]) -> None:
    """The first step may spike without a rise; a NaN stays with its neuron."""
    generator = torch.Generator().manual_seed(3)
    current = torch.randn(20, 1, 8, generator=generator) * 1.2 + 0.4
    state = torch.zeros(3, 1, 8)
    state[0, 0, :4] = torch.tensor([1.0, 1.5, 3.0, 100.0])
    current[0, 0, :4] = torch.tensor([0.6, -2.0, -9.0, 0.0])
    current[5, 0, 4], current[6, 0, 5], current[7, 0, 6] = torch.nan, torch.inf, -torch.inf
    q = torch.randn(current.shape, generator=generator)
    backward = (q, current, torch.tensor(1.0), state, 5.0, 3.0, 6.0, 4.0, 0, True, True)
    assert_signals(emulated(OPS["srm_backward"], *backward), OPS["srm_backward"](*backward))


@pytest.mark.parametrize("steps", [4, 30, 48])
def test_what_a_launch_asks_for(steps: int, emulated: Callable[..., Any]) -> None:
    """Backward has its scratch in shared memory, and asks for all of it where it needs much; forward needs none."""
    current = torch.zeros(steps, 1, 1000)
    neuron = (current, torch.tensor(1.0), None, 5.0, 3.0, 3.0, 4.0, 0)
    last_launch = emulation.module().last_launch
    emulated(OPS["srm_backward"], current, *neuron, True, True)
    assert last_launch() == {
        "blocks": 8, "threads": 64, "shared bytes": 64 * 16 * steps,
        "shared memory in per cent": 100 if steps > 8 else -1,
    }  # fmt: skip
    emulated(OPS["srm_forward"], *neuron, False)
    assert last_launch() == {"blocks": 2, "threads": 128, "shared bytes": 0, "shared memory in per cent": -1}


def _with_gradients(value: Tensor, state: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    loss = (value * torch.linspace(-1, 1, value.numel()).reshape(value.shape)).sum() + state.sum()
    return [value, state, *torch.autograd.grad(loss, leaves)]


# Neurons of one to three states, resets at once and later, with gradients of constants and without: chunks of 96 steps
# down to 6.
SCANS: dict[str, Callable[..., neurons.Neuron]] = {
    "LIF": partial(neurons.LIF, learnable=("tau", "threshold")),
    "LIF, next": partial(neurons.LIF, reset_time="next"),
    "LIF, rectangle": partial(neurons.LIF, surrogate=snnlib.surrogate.Rectangle(0.5)),
    "LIF, triangle": partial(neurons.LIF, surrogate=snnlib.surrogate.Triangle(0.5)),
    "LIF, fast sigmoid": partial(neurons.LIF, surrogate=snnlib.surrogate.FastSigmoid()),
    "LIF, sigmoid": partial(neurons.LIF, surrogate=snnlib.surrogate.Sigmoid()),
    # Options that most nets do not have, one by one: the loops with constants are not for them.
    "LIF, floor": partial(neurons.LIF, floor=-0.5),
    "LIF, strict": partial(neurons.LIF, compare=">"),
    "LIF, gradient of the reset": partial(neurons.LIF, detach_reset=False),
    "LIF, no gradient through time": partial(neurons.LIF, gradient_through_time=False),
    "LIF, four spikes": partial(neurons.LIF, levels=4, learnable=("tau", "threshold")),
    "LIF, two spikes, triangles": partial(
        neurons.LIF, levels=2, surrogate=snnlib.surrogate.EveryThreshold(snnlib.surrogate.Triangle())
    ),
    "KLIF": neurons.KLIF,
    "KLIF, constant": partial(neurons.KLIF, learnable=(), reset="subtract", detach_reset=False),
    "CubaLIF": neurons.CubaLIF,
    "BRF": partial(neurons.BRF, 6.0, 0.5, dt=0.125, learnable=("omega", "offset", "threshold")),
    "BRF, constant": partial(neurons.BRF, 6.0, 0.5, dt=0.125, learnable=()),
    "Izhikevich": partial(
        neurons.Izhikevich, a=0.5, b=0.25, learnable=("tau_m", "tau_a", "a", "b", "curvature", "threshold")
    ),
    "Izhikevich, constant": partial(neurons.Izhikevich, a=0.5, b=0.25, integration="euler"),
    "Alpha, next": partial(neurons.Alpha, reset_time="next", learnable=("tau_decay",)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_scans_of_any_number_of_steps(name: str, dtype: torch.dtype, emulated: Callable[..., Any]) -> None:
    threshold = 0.5 + torch.rand(3, generator=torch.Generator().manual_seed(7))
    for steps in (1, 2, 7, 48, 49, 193, 1000):
        for batch_first in (False, True):
            neuron = SCANS[name](threshold=threshold, batch_first=batch_first)
            generator = torch.Generator().manual_seed(steps)
            shape = (2, steps, 3, 5) if batch_first else (steps, 2, 3, 5)
            x = (torch.randn(shape, generator=generator) * 3 + 2).to(dtype).requires_grad_()

            def run(neuron: neurons.Neuron = neuron, x: Tensor = x) -> list[Tensor]:
                value, (state, *_) = neuron.run(x)
                return _with_gradients(value, state, [x, *neuron.parameters()])

            expected = run()
            assert steps < 25 or all(bool(tensor.any()) for tensor in expected)
            assert_same_bits(emulated(run), expected, strides=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name", ["LIF", "LIF, triangle", "LIF, fast sigmoid", "LIF, sigmoid", "KLIF, constant"]
)
def test_pooled_scans_of_any_number_of_steps(
    name: str, dtype: torch.dtype, emulated: Callable[..., Any]
) -> None:
    """Both layouts, an even and an odd number of channels, whole chunks and rests."""
    for number, steps in enumerate((1, 3, 9, 48, 49, 193, 500)):
        channels, time_dim, generator = 3 + number % 2, number // 2 % 2, torch.Generator().manual_seed(steps)
        neuron = SCANS[name](
            threshold=0.5 + torch.rand(channels, generator=generator), batch_first=bool(time_dim)
        )
        shape = (2, steps, channels, 2, 6) if time_dim else (steps, 2, channels, 2, 6)
        x = (torch.randn(shape, generator=generator) * 3 + 2).to(dtype)
        for layout in (x, x.movedim(2, -1).contiguous().movedim(-1, 2)):
            current = layout.requires_grad_()

            def run(neuron: neurons.Neuron = neuron, x: Tensor = current) -> list[Tensor]:
                kernel = neuron.kernel(x)
                assert kernel is not None
                value, state = ops.scan.run(x.transpose(0, int(neuron.batch_first)), kernel, (2, 2))
                return _with_gradients(value, state, [x, *neuron.parameters()])

            expected = run()
            assert steps < 9 or all(bool(tensor.any()) for tensor in expected)
            assert_same_bits(emulated(run), expected, strides=True)


def test_pooled_scans_of_other_windows_are_scans_and_pools(emulated: Callable[..., Any]) -> None:
    """The kernels of a GPU know windows of 2 x 2 cells alone."""
    neuron = neurons.LIF()
    x = torch.randn(7, 2, 16, 6, 9, generator=torch.Generator().manual_seed(5)) * 3
    current = x.contiguous().movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    kernel = neuron.kernel(current)
    assert kernel is not None

    def run() -> list[Tensor]:
        value, state = ops.scan.run(current, kernel, (2, 3))
        return [value, state, *torch.autograd.grad(value.square().sum() + state.sum(), current)]

    expected = run()
    assert expected[0].any() and ops.scan_pool.can_fuse(current, kernel, (2, 3))
    assert_same_bits(emulated(run), expected, strides=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("surrogate", [snnlib.surrogate.ATan(), snnlib.surrogate.FastSigmoid()], ids=str)
def test_slopes_beyond_the_range_of_fast_reciprocals(
    surrogate: snnlib.surrogate.Surrogate, dtype: torch.dtype, emulated: Callable[..., Any]
) -> None:
    """Far from the threshold 1 + z^2 has a subnormal reciprocal or overflows; numbers that are none stay in place."""
    neuron = neurons.LIF(surrogate=surrogate, tau=1.0)
    x = (torch.randn(20, 1, 8, generator=torch.Generator().manual_seed(4)) * 3).to(dtype)
    scale = 1e4 if dtype == torch.float16 else 1e18
    for column, size in enumerate(
        (scale, 4 * scale, 8 * scale, 40 * scale, torch.inf, -torch.inf, torch.nan)
    ):
        x[3 + column, 0, column] = size
    x.requires_grad_()

    def run() -> list[Tensor]:
        value = neuron(x)
        return [value, *torch.autograd.grad(value.sum(), x)]

    assert_same_bits(emulated(run), run(), strides=True)


@pytest.mark.parametrize("neurons", [1, 7, 8, 16, 127, 128, 129, 1024])
@pytest.mark.parametrize("time_dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_number_of_neurons(
    neurons: int, time_dim: int, dtype: torch.dtype, emulated: Callable[..., Any]
) -> None:
    """Packs of 16 bytes where all rows allow them, single neurons elsewhere; whole blocks and rests."""
    current = (torch.randn(9, 3, neurons, generator=torch.Generator().manual_seed(neurons)) + 0.4).to(dtype)
    args = (current, torch.tensor(1.0), None, 5.0, 3.0, 3.0, 4.0, time_dim, True)
    expected = OPS["srm_forward"](*args)
    assert neurons < 16 or expected[0].any()
    assert_same_bits(emulated(OPS["srm_forward"], *args), expected, strides=True)
    backward = (current, *args[:-1], True, True)
    assert_signals(emulated(OPS["srm_backward"], *backward), OPS["srm_backward"](*backward))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(
    layout: Callable[[Tensor], Tensor], dtype: torch.dtype, emulated: Callable[..., Any]
) -> None:
    generator = torch.Generator().manual_seed(8)
    current = layout((torch.randn(6, 2, 8, 4, 4, generator=generator) + 0.4).to(dtype))
    limit = 0.5 + torch.rand(8, generator=generator)
    frames = layout((torch.rand(6, 8, 8, 8, generator=generator) < 0.3).to(dtype))

    def run() -> list[Tensor]:
        spikes = F.srm_neuron(current, threshold=limit)
        signals = F.srm_backward(current, current, threshold=limit)
        return [*signals, spikes, F.spike_avg_pool2d(frames[None], 3, 2, 1)]

    assert_signals(emulated(run), run())


# Rows of whole vectors, of half ones and of whole windows, a column and a row in no window, one window, more channels
# than a vector.
PAIRED = (
    (2, 3, 4, 16),
    (1, 2, 6, 6),
    (2, 3, 5, 9),
    (1, 1, 2, 2),
    (2, 16, 4, 6),
    (3, 24, 2, 32),
    (2, 12, 2, 12),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", PAIRED, ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_pools_of_two_by_two(
    shape: tuple[int, ...], layout: torch.memory_format, dtype: torch.dtype, emulated: Callable[..., Any]
) -> None:
    """Amplitudes of both signs, so that windows cancel; silent windows; zeros of both signs; divisors of one's own."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randint(-2, 3, shape, generator=generator) * torch.rand(shape, generator=generator).round()
    x = (x * -0.75).to(dtype).contiguous(memory_format=layout)

    def run() -> list[Tensor]:
        frames = x.clone(memory_format=torch.preserve_format).requires_grad_()
        outputs = []
        for divisor in (None, 2, 3):
            out = F.spike_avg_pool2d(frames[None], 2, divisor_override=divisor)
            q = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(dtype)
            outputs += [out.detach(), *torch.autograd.grad((out * q).sum(), frames)]
        return outputs

    assert_same_bits(emulated(run), run(), strides=True)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("divisor", [1, 3, 1024, 65536, -3])
def test_conversions_of_half_types(dtype: torch.dtype, divisor: int, emulated: Callable[..., Any]) -> None:
    x = every_value(dtype)
    out = emulated(F.spike_avg_pool2d, x, 1, divisor_override=divisor)
    assert_bits(out, F.spike_avg_pool2d(x, 1, divisor_override=divisor))
