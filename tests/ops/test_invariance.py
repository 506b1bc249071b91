"""Threads, instruction set, batch split and repetition change no bit."""

import op_calls
import opdb_exact
import opdb_neurons
import pytest
import torch
from compare import assert_same_bits
from opdb import DTYPES, OPS, OpCase
from torch import Tensor

import snnlib
from snnlib.backends import native

# Larger than a task of the kernels (8192 neurons), with an incomplete last block.
TRAIN = (5, 3, 3, 31, 37)
FRAMES = (7, 3, 31, 38)


def _delay_arguments(name: str, dtype: torch.dtype) -> tuple[object, ...]:
    generator = torch.Generator().manual_seed(3)
    # On a grid, since the reference has torch sum products of weights and shares of steps.
    delays = (torch.rand(40, 70, generator=generator) * 64).floor() / 16
    rows = (torch.rand(9, 3, 70, generator=generator) < 0.3).to(dtype)
    signal = torch.randn(9, 3, 70, generator=generator).to(dtype)
    connections = (rows, delays.to(dtype), delays, False, 0)
    return {
        "delay_forward": (rows, delays[0], False, 0),
        "delay_backward": (signal, rows, delays[0], False, 0, True, True),
        "delayed_linear_forward": connections,
        "delayed_linear_backward": (signal[..., :40].contiguous(), *connections, True, True, True),
    }[name]


def _late_arguments(name: str, dtype: torch.dtype) -> tuple[object, ...]:
    """Longer than the window of steps that the kernels keep."""
    generator = torch.Generator().manual_seed(4)
    current = torch.randn(40, 3, 70, generator=generator).to(dtype) + 1
    weight = torch.randn(70, 70, generator=generator).to(dtype) * 0.2
    delay = torch.rand(70, 70, generator=generator, dtype=torch.float64) * 6
    table = opdb_neurons.coefficients(2, 70, generator, a01=0.5, keep0=0.0, scale=0.5)
    loop = (weight, delay, table, None, None, None, opdb_neurons.COMPACT, 6, False, 0)
    if name == "delayed_recurrent_forward":
        return (current, *loop, True)
    value, final, total = op_calls.delayed_recurrent_forward(current, *loop, True)
    grads = (torch.randn(part.shape, generator=generator).to(part.dtype) for part in (value, final))
    return (*grads, total, value, *loop, True, True, True)


def _sparse_arguments(name: str, dtype: torch.dtype) -> tuple[object, ...]:
    """As many neurons as several threads share out of one sample."""
    generator = torch.Generator().manual_seed(6)
    neurons = 9000
    starts = torch.arange(neurons + 1) * 6
    # A target of each sixth of the neurons, so that they rise.
    targets = torch.randint(neurons // 6, (neurons, 6), generator=generator) + torch.arange(6) * (
        neurons // 6
    )
    rows = (torch.randn(6 * neurons, generator=generator).to(dtype), starts, targets.flatten().int())
    events = (torch.rand(5, 3, neurons, generator=generator) < 0.1).to(dtype)
    current = torch.randn(5, 3, neurons, generator=generator).to(dtype)
    if name == "sparse_forward":
        return (events, *rows, neurons)
    if name == "sparse_backward":
        return (current, events, *rows, neurons, True, True)
    table = opdb_neurons.coefficients(2, neurons, generator, a01=0.5, keep0=0.0, scale=0.5)
    if "delayed" in name:
        delay = torch.rand(6 * neurons, generator=generator, dtype=torch.float64) * 3
        late = (*rows, delay, table, None, None, None, opdb_neurons.COMPACT, 3, False, 0)
        if name == "sparse_delayed_recurrent_forward":
            return (current, *late, True)
        value, final, total = op_calls.sparse_delayed_recurrent_forward(current, *late, True)
        grads = (torch.randn(part.shape, generator=generator).to(part.dtype) for part in (value, final))
        return (*grads, total, value, *late, True, True, True)
    loop = (*rows, table, None, None, opdb_neurons.COMPACT, 0)
    if name == "sparse_recurrent_forward":
        return (current, *loop, True)
    value, final, total = op_calls.sparse_recurrent_forward(current, *loop, True)
    grads = (torch.randn(part.shape, generator=generator).to(part.dtype) for part in (value, final))
    return (*grads, total, value, *loop, True, True)


def _exact_arguments(name: str, dtype: torch.dtype) -> tuple[object, ...]:
    """Returns arguments of the linear family's neurons with other constants."""
    generator = torch.Generator().manual_seed(5)
    if "layer" not in name:
        scan = (opdb_exact.coefficients(3, generator, own=True), None, [0, 0, 0, 0], 0)
        *grads, current = _arguments("scan_backward", dtype)[:3]
        return (current, *scan) if name == "exact_forward" else (*grads, current, *scan)
    x, weight, _, *conv = _arguments("layer_forward", dtype)[:9]
    table = opdb_exact.coefficients(20, generator, gain_m=1.0, leak=0.125, fall=-0.125, reset=0.25)
    layer = (x, weight, table, *conv, [0, 1, 1, 0], 0)
    if name == "exact_layer_forward":
        return (*layer, True, True, True)
    out, _, *record = op_calls.exact_layer_forward(*layer, False, True, True)
    q = torch.randn(out.shape, generator=generator).to(dtype)
    return (q, *layer[:3], out, *record, *layer[4:], True, True)


def _arguments(name: str, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    own = {
        "exact": _exact_arguments,
        "sparse": _sparse_arguments,
        "delayed_recurrent": _late_arguments,
        "delay": _delay_arguments,
    }
    for prefix, arguments in own.items():
        if name.startswith(prefix):
            return arguments(name, dtype)
    generator = torch.Generator().manual_seed(3)
    current = (torch.randn(TRAIN, generator=generator) * 1.2 + 0.5).to(dtype)
    q = torch.randn(TRAIN, generator=generator).to(dtype)
    limit = torch.tensor([0.5, 1.0, 1.5])
    frames = (torch.rand(FRAMES, generator=generator) * 4).floor().to(dtype)
    g = torch.randn(7, 3, 15, 19, generator=generator).to(dtype)
    events = (torch.rand(TRAIN, generator=generator) < 0.2).to(dtype)
    weight = (torch.randn(20, 3, 3, 3, generator=generator) * 0.6).to(dtype)
    conv = (events, weight, torch.tensor(1.0), None, [1, 1], [1, 0], [1, 1], 1, [2, 2], 5.0, 3.0, 3.0, 4.0, 0)
    if name == "srm_conv_backward":
        out, _, *record = op_calls.srm_conv_forward(*conv, False, True, True)
        q = torch.randn(out.shape, generator=generator).to(dtype)
        return (q, *conv[:2], out, *record, *conv[4:12], 1.0, 0, True, True)
    table = opdb_neurons.coefficients(1, 20, generator, keep0=0.0, offset0=0.25, scale=2.0)
    layer = (*conv[:2], table, None, *conv[4:9], opdb_neurons.COMPACT, 0)
    if name == "layer_backward":
        out, _, *record = op_calls.layer_forward(*layer, False, True, True)
        q = torch.randn(out.shape, generator=generator).to(dtype)
        return (q, *layer[:3], *record, *layer[4:], True, True)
    if name == "currents_backward":
        q = torch.randn(*TRAIN[:2], 20, 31, 35, generator=generator).to(dtype)
        return (q, *conv[:2], *conv[4:8], 0, True, True)
    scan = (
        current,
        opdb_neurons.coefficients(2, 3, generator, a01=1.0, keep0=0.0),
        None,
        opdb_neurons.WIDE,
        0,
    )
    states = torch.randn(2, *TRAIN[1:], generator=generator)
    recurrent = torch.randn(5, 3, 70, generator=generator).to(dtype) + 1
    table = opdb_neurons.coefficients(2, 70, generator, a01=0.5, keep0=0.0, scale=0.5)
    loop = (torch.randn(70, 70, generator=generator).to(dtype) * 0.2, table, None, None)
    options = (opdb_neurons.COMPACT, 0, True)
    if name == "recurrent_backward":
        value, final, total = op_calls.recurrent_forward(recurrent, *loop, *options)
        grads = (torch.randn(part.shape, generator=generator).to(part.dtype) for part in (value, final))
        return (*grads, total, value, *loop, *options[:2], True, True)
    taps = torch.randint(0, 4, g.shape, generator=generator, dtype=torch.uint8)
    thresholds = opdb_neurons.coefficients(1, 3, generator, keep0=0.0)
    pooled = (current[..., :30, :36].contiguous(), thresholds, None, opdb_neurons.COMPACT, 0)
    of_pools = q[..., :15, :18].contiguous()
    return {
        "srm_forward": (current, limit, None, 5.0, 3.0, 3.0, 4.0, 0, True),
        "srm_backward": (q, current, limit, None, 5.0, 3.0, 3.0, 4.0, 0, True, True),
        "srm_trace": (current, limit, 5.0, 3.0, 3.0, 0),
        "srm_conv_forward": (*conv, True, True, True),
        "scan_forward": scan,
        "scan_backward": (q, states, *scan, False),
        "scan_pool_forward": pooled,
        "scan_pool_backward": (of_pools, states[:1, ..., :30, :36].contiguous(), *pooled),
        "srm_pool_forward": (pooled[0], limit, 5.0, 3.0, 3.0, 0),
        "srm_pool_backward": (of_pools, pooled[0], limit, 5.0, 3.0, 3.0, 4.0, 0, True, True),
        "recurrent_forward": (recurrent, *loop, *options),
        "layer_forward": (*layer, True, True, True),
        "currents_forward": (*conv[:2], *conv[4:8], 0),
        "spike_avg_pool": (frames, [2, 2], [2, 2], [0, 0], False, True, None),
        "spike_avg_pool_backward": (g, frames, [2, 2], [2, 2], [0, 0], False),
        "max_pool": (frames, [2, 3], [2, 1], [1, 1], True),
        "max_pool_backward": (g, taps, [31, 38], [2, 2], [2, 2], [0, 0]),
    }[name]


CASES = {name: case for name, case in OPS.items() if case.own_kernels}
every_op = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@every_op
def test_threads(case: OpCase, isas: list[str]) -> None:
    args = _arguments(case.name)
    torch.set_num_threads(1)
    with snnlib.use_path("native"):
        expected = case(*args)
        for count in (2, 3, 8):
            torch.set_num_threads(count)
            assert_same_bits(case(*args), expected, f"{count} threads")


@every_op
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_instruction_sets(case: OpCase, dtype: torch.dtype, isas: list[str]) -> None:
    args = _arguments(case.name, dtype)
    results = {}
    with snnlib.use_path("native"):
        for isa in isas:
            native._module.select_isa(isa)
            assert native._module.isa() == isa
            results[isa] = case(*args)
    for isa in isas[1:]:
        assert_same_bits(results[isa], results[isas[0]], isa)


@pytest.mark.parametrize("longest", [1, 9, 70])
@pytest.mark.parametrize("rounded", [False, True])
def test_instruction_sets_behind_delays(longest: int, rounded: bool, isas: list[str]) -> None:
    """As many outputs as fit into a cache are added up at a time: how many depends on the vectors and the delays."""
    generator = torch.Generator().manual_seed(4)
    x = (torch.rand(90, 3, 70, generator=generator) < 0.3).float()
    weight, signal = torch.randn(37, 70, generator=generator), torch.randn(90, 3, 37, generator=generator)
    delay = torch.rand(37, 70, generator=generator) * longest
    backward = op_calls.delayed_linear_backward
    with snnlib.use_path("native"):
        results = []
        for isa in isas:
            native._module.select_isa(isa)
            results.append(backward(signal, x, weight, delay, rounded, 0, True, True, True))
    for result in results[1:]:
        assert_same_bits(result, results[0], "another instruction set")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_trains(dtype: torch.dtype, isas: list[str]) -> None:
    """Outputs that are stored past the caches have the bits of those that go through them."""
    generator = torch.Generator().manual_seed(4)
    steps, part, parts = 11, 65 * 64, 192 * 4 // dtype.itemsize
    current = torch.randn(steps, 1, part, generator=generator).to(dtype) + 0.5
    q = torch.randn(steps, 1, part, generator=generator).to(dtype)
    limit = torch.tensor(1.0)
    constants = (5.0, 3.0, 3.0, 4.0, 0)

    def run(current: Tensor, q: Tensor) -> list[Tensor]:
        spikes, state = op_calls.srm_forward(current, limit, None, *constants, True)
        backward = op_calls.srm_backward
        both = backward(q, current, limit, None, *constants, True, True)
        weight, _ = backward(q, current, limit, None, *constants, True, False)
        return [spikes, state, *both, weight]

    large = [x.repeat(1, 1, parts) for x in (current, q)]
    assert large[0].nbytes > 32 << 20
    with snnlib.use_path("native"):
        for isa in isas:
            native._module.select_isa(isa)
            expected = run(current, q)
            for out, one in zip(run(*large), expected, strict=True):
                assert torch.equal(out.view(-1, parts, part), one.view(-1, 1, part).expand(-1, parts, -1)), (
                    isa
                )


def test_large_currents(isas: list[str]) -> None:
    """Currents that are stored past the caches have the bits of those that go through them."""
    generator = torch.Generator().manual_seed(4)
    x = (torch.rand(9, 2, 2, 128, 128, generator=generator) < 0.1).float()
    weight = torch.randn(32, 2, 3, 3, generator=generator)
    options = ([1, 1], [1, 1], [1, 1], 1, 0)
    with snnlib.use_path("native"):
        for isa in isas:
            native._module.select_isa(isa)
            whole = op_calls.currents_forward(x, weight, *options)
            assert whole.nbytes > 32 << 20
            parts = [op_calls.currents_forward(part, weight, *options) for part in x.split(1, 1)]
            assert torch.equal(whole, torch.cat(parts, 1)), isa


@pytest.mark.parametrize("sample_name", ["state", "batch first", "equal time constants", "signed", "3-D"])
def test_instruction_sets_on_small_samples(sample_name: str, isas: list[str]) -> None:
    for case in OPS.values():
        for sample in case.samples:
            if sample.name != sample_name:
                continue
            args = sample.arguments(torch.float32)
            with snnlib.use_path("native"):
                results = []
                for isa in isas:
                    native._module.select_isa(isa)
                    results.append(case(*args))
            for result in results[1:]:
                assert_same_bits(result, results[0], "another instruction set")


@every_op
@pytest.mark.usefixtures("isas")
def test_batch_split(case: OpCase, path: str) -> None:
    """A sample alone gives the bits that it gives in a batch."""
    # Several threads share torch's products out by their size, which changes the order of their sums.
    torch.set_num_threads(1)
    whole = _arguments(case.name)
    # Neither weights nor coefficients have a batch.
    of_layers = ("srm_conv_forward", "layer_forward", "exact_layer_forward", "currents_forward")
    of_layers += ("recurrent_forward", "delayed_recurrent_forward")
    shared = {id(whole[1])} if case.name in of_layers else set()
    shared |= {id(x) for x in whole if isinstance(x, Tensor) and x.dtype == torch.float64}
    dim = 0 if case.name.startswith(("spike", "max_pool")) else 1
    size = (FRAMES if dim == 0 else TRAIN)[dim]
    shared |= {id(x) for x in whole[1:3]} if case.name == "delayed_linear_forward" else set()
    sums = ("srm_conv_backward", "layer_backward", "exact_layer_backward", "currents_backward")
    sums += (
        "recurrent_backward",
        "delayed_recurrent_backward",
        "sparse_backward",
        "sparse_recurrent_backward",
        "sparse_delayed_recurrent_backward",
    )
    if case.name in (*sums, "delay_backward", "delayed_linear_backward"):
        pytest.skip("its weight gradient sums over the batch")
    # The record of spikes that follows is in an order of its own.
    compared = 2 if case.name in of_layers[:3] else None
    for sample in range(size):
        part = [
            x.narrow(dim, sample, 1) if isinstance(x, Tensor) and x.dim() > 1 and id(x) not in shared else x
            for x in whole
        ]
        # The final state [3, N, ...] and spikes [T, N, ...] have the batch in dimension 1, what has no time in 0.
        expected = [
            out.narrow(dim - (out.dim() < whole[0].dim()), sample, 1) if out.numel() else out
            for out in case(*whole)[:compared]
        ]
        assert_same_bits(case(*part)[:compared], expected, f"sample {sample} alone")


@every_op
def test_twenty_calls(case: OpCase, path: str) -> None:
    args = _arguments(case.name)
    expected = case(*args)
    repetitions = 20 if path == "native" else 3
    for _ in range(repetitions):
        assert_same_bits(case(*args), expected, "the same arguments again")


def test_deterministic_algorithms() -> None:
    """No op is refused by torch's switch, or computed otherwise; torch fills fresh memory then."""
    expected = {name: case(*_arguments(name)) for name, case in CASES.items()}
    torch.use_deterministic_algorithms(True)
    try:
        for name, case in CASES.items():
            assert_same_bits(case(*_arguments(name)), expected[name], f"{name}, deterministic algorithms")
    finally:
        torch.use_deterministic_algorithms(False)
