"""Raw ops: wrong arguments are an error that names one, before memory is touched.

Each of these calls read or wrote out of bounds, or was taken without a word.
"""

from collections.abc import Callable
from typing import Any

import op_calls
import pytest
import torch
from opdb import OPS as CASES
from torch import Tensor

from snnlib.backends.flags import Flags
from snnlib.backends.geometry import ConvOptions, geometry

X, WEIGHT, ONE = torch.ones(4, 2, 3, 8, 8), torch.full((5, 3, 3, 3), 0.1), torch.ones(())
TAUS = (5.0, 3.0, 3.0)


def _neurons(name: str, current: Tensor = X, threshold: Tensor = ONE, **changes: Any) -> Any:
    state, taus, clamp, time_dim = (
        changes.get(key, value)
        for key, value in (("state", None), ("taus", TAUS), ("clamp", 4.0), ("time_dim", 0))
    )
    if name == "srm_trace":
        return op_calls.srm_trace(current, threshold, *taus, time_dim)
    if name == "srm_forward":
        return op_calls.srm_forward(current, threshold, state, *taus, clamp, time_dim, True)
    q = changes.get("grad_spikes", torch.ones(current.shape))
    return op_calls.srm_backward(q, current, threshold, state, *taus, clamp, time_dim, True, True)


NEURON_CASES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"threshold": torch.empty(0)}, ValueError, r"coefficients: expected \[P, C\] with 1 or 3 columns"),
    ({"threshold": torch.ones(2)}, ValueError, r"coefficients: .*got shape \(10, 2\)"),
    ({"current": torch.ones(4)}, ValueError, r"current: expected \[T, N, \.\.\.\], got shape \(4,\)"),
    ({"current": X.int()}, TypeError, r"current: expected one of .*got torch\.int32"),
    ({"current": X.bool()}, TypeError, r"current: expected one of .*got torch\.bool"),
    ({"current": X.to(torch.complex64)}, TypeError, r"current: .*got torch\.complex64"),
    ({"taus": (float("nan"), 3.0, 3.0)}, ValueError, r"tau_m: expected a finite .*got nan"),
    ({"taus": (5.0, -3.0, 3.0)}, ValueError, r"tau_s: expected a finite .*got -3\.0"),
    ({"taus": (5.0, 3.0, 0.0)}, ValueError, r"tau_grad: expected a finite .*got 0\.0"),
    ({"state": torch.ones(1)}, ValueError, r"state: expected shape \(3, 2, 3, 8, 8\)"),
    ({"state": torch.ones(3, 4, 2, 3, 8, 8)}, ValueError, r"state: .*for u, s and g"),
    ({"state": torch.ones(3, 2, 3, 8, 8).long()}, TypeError, r"state: expected one of"),
    ({"clamp": float("nan")}, ValueError, r"grad_clamp: expected a number > 0, got nan"),
]


@pytest.mark.parametrize("name", ["srm_forward", "srm_backward", "srm_trace"])
@pytest.mark.parametrize(("changes", "error", "message"), NEURON_CASES)
def test_neurons(name: str, changes: dict[str, Any], error: type[Exception], message: str, path: str) -> None:
    if name == "srm_trace" and {"state", "clamp"} & changes.keys():
        return
    with pytest.raises(error, match=message):
        _neurons(name, **changes)


@pytest.mark.parametrize(
    ("q", "error", "message"),
    [
        (torch.ones(4, 2, 3, 8, 8, dtype=torch.int64), TypeError, "grad_value: expected one of"),
        (torch.ones(4, 2, 3, 8, 7), ValueError, "grad_value: expected the output's shape"),
    ],
)
def test_gradient_of_neurons(q: Tensor, error: type[Exception], message: str, path: str) -> None:
    with pytest.raises(error, match=message):
        _neurons("srm_backward", grad_spikes=q)


CONV = {"x": X, "weight": WEIGHT, "threshold": ONE, "state": None}
CONV |= {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "pool": [1, 1]}
CONV |= {"tau_m": 5.0, "tau_s": 3.0, "tau_grad": 3.0, "grad_clamp": 4.0}
CONV |= {"time_dim": 0, "return_state": False, "keep": True, "exact": True}
CONV_CASES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X[0]}, ValueError, r"x: expected \[T, N, C, H, W\] or .*got shape \(2, 3, 8, 8\)"),
    ({"x": X.int()}, TypeError, r"x: expected one of .*got torch\.int32"),
    ({"x": torch.ones(4, 2, 3000, 8, 8)}, ValueError, r"x: expected 3 channels in dimension 2"),
    ({"x": torch.ones(4, 2, 3, 8, 2)}, ValueError, r"x: expected at least 3 cells on space axis 1"),
    ({"weight": WEIGHT.double()}, TypeError, r"weight: expected torch\.float32, got torch\.float64"),
    ({"weight": WEIGHT[0]}, ValueError, r"weight: expected \[C_out, C / groups, \.\.\.\] with 2 axes"),
    ({"weight": WEIGHT[..., :0]}, ValueError, r"weight: expected at least one tap"),
    ({"stride": [0, 1]}, ValueError, r"stride: expected 2 integers >= 1, got \[0, 1\]"),
    ({"stride": [1]}, ValueError, r"stride: expected 2 integers >= 1, got \[1\]"),
    ({"padding": [-1, 0]}, ValueError, r"padding: expected 2 integers >= 0, got \[-1, 0\]"),
    ({"padding": [0, 0, 0]}, ValueError, r"padding: expected 2 integers"),
    ({"dilation": [1, 0]}, ValueError, r"dilation: expected 2 integers >= 1"),
    ({"dilation": [2**62, 1]}, ValueError, r"dilation: expected integers up to 2147483647"),
    ({"padding": [2**62, 0]}, ValueError, r"padding: expected integers up to 2147483647"),
    ({"pool": [0, 1]}, ValueError, r"pool: expected 2 integers >= 1"),
    ({"pool": [2]}, ValueError, r"pool: expected 2 integers >= 1"),
    ({"pool": [1, 7]}, ValueError, r"kernel_size: expected windows that fit"),
    ({"groups": -1}, ValueError, r"groups: expected a divisor >= 1 of the 5 output channels, got -1"),
    ({"groups": 0}, ValueError, r"groups: expected a divisor"),
    ({"groups": 2}, ValueError, r"groups: expected a divisor"),
    ({"tau_m": float("inf")}, ValueError, r"tau_m: expected a finite"),
    ({"tau_s": 0.5}, ValueError, r"tau_s: expected a finite"),
]
FORWARD_CASES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"threshold": torch.empty(0)}, ValueError, r"coefficients: expected \[P, C\] with 1 or 5 columns"),
    ({"state": torch.ones(3, 2, 5, 6, 5)}, ValueError, r"state: expected shape \(3, 2, 5, 6, 6\)"),
    ({"state": torch.ones(1)}, ValueError, r"state: expected shape \(3, 2, 5, 6, 6\)"),
    ({"grad_clamp": -1.0}, ValueError, r"grad_clamp: expected a number > 0"),
]


def _forward(**changes: Any) -> Any:
    return op_calls.srm_conv_forward(*{**CONV, **changes}.values())


def test_the_arguments_fit(path: str) -> None:
    assert _forward()[0].any()
    for name in ("srm_forward", "srm_backward", "srm_trace"):
        _neurons(name)
    _backward()
    _backward(pool=[2, 2])


@pytest.mark.parametrize(("changes", "error", "message"), CONV_CASES + FORWARD_CASES)
def test_convolution(changes: dict[str, Any], error: type[Exception], message: str, path: str) -> None:
    with pytest.raises(error, match=message):
        _forward(**changes)


def _backward(change: Callable[[dict[str, Any]], None] | None = None, **options: Any) -> Any:
    """The backward pass of `_forward(**options)` with what `change` does to its arguments by name."""
    arguments = {**CONV, **options}
    out, _, bits, record, starts = op_calls.srm_conv_forward(*arguments.values())
    given = {"grad_output": torch.ones_like(out), **{key: arguments[key] for key in ("x", "weight")}}
    given |= {"output": out, "bits": bits, "record": record, "starts": starts}
    given |= {key: arguments[key] for key in ("stride", "padding", "dilation", "groups", "pool")}
    given |= {key: arguments[key] for key in ("tau_m", "tau_s", "tau_grad")}
    given |= {"scale": 1.0, "time_dim": arguments["time_dim"], "need_weight": True, "need_input": True}
    if change is not None:
        change(given)
    return op_calls.srm_conv_backward(*given.values())


@pytest.mark.parametrize(("changes", "error", "message"), CONV_CASES)
def test_convolution_backward(
    changes: dict[str, Any], error: type[Exception], message: str, path: str
) -> None:
    with pytest.raises(error, match=message):
        _backward(lambda given: given.update(changes))


def _set(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda given: given.update(
        {key: value(given[key]) if callable(value) else value for key, value in changes.items()}
    )


RECORD_CASES: list[tuple[Callable[[dict[str, Any]], None], type[Exception], str]] = [
    (_set(bits=lambda bits: bits[:0]), ValueError, r"bits: expected shape \(4, 2, 6, 2\)"),
    (_set(bits=lambda bits: bits[..., :1]), ValueError, r"bits: expected shape \(4, 2, 6, 2\)"),
    (_set(bits=lambda bits: bits.int()), TypeError, r"bits: expected torch\.int16"),
    (_set(record=lambda record: record[:, :0]), ValueError, r"starts: .* at most 0, the spikes on record"),
    (_set(record=lambda record: record[0]), ValueError, r"record: expected shape \[2, spikes\]"),
    (_set(record=lambda record: record.long()), TypeError, r"record: expected one of"),
    (_set(starts=lambda starts: starts.int()), TypeError, r"starts: expected torch\.int64, got torch\.int32"),
    (_set(starts=lambda starts: starts[:1]), ValueError, r"starts: expected at least \d+ numbers"),
    (_set(starts=lambda starts: starts + 2**40), ValueError, r"starts: expected numbers that rise from 0"),
    (_set(starts=lambda starts: starts - 5), ValueError, r"starts: expected numbers that rise from 0"),
    (_set(starts=lambda starts: starts.flip(0)), ValueError, r"starts: expected numbers that rise from 0"),
    (_set(grad_output=lambda q: q[..., :1]), ValueError, r"grad_output: expected the output's shape"),
    (_set(grad_output=lambda q: q.long()), TypeError, r"grad_output: expected one of"),
]


@pytest.mark.parametrize(("change", "error", "message"), RECORD_CASES)
def test_record(
    change: Callable[[dict[str, Any]], None], error: type[Exception], message: str, path: str
) -> None:
    with pytest.raises(error, match=message):
        _backward(change)


def _one_flipped(bits: Tensor) -> Tensor:
    flipped = bits.clone()
    flipped[-1, -1, -1, 0] ^= 1
    return flipped


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "bits",
    [lambda bits: torch.full_like(bits, -1), torch.zeros_like, _one_flipped],
    ids=["all", "none", "one"],
)
@pytest.mark.usefixtures("isas")
def test_bits_that_do_not_fit_the_record(bits: Callable[[Tensor], Tensor], threads: int) -> None:
    """Only the kernels count the bits: what they find crosses their threads."""
    torch.set_num_threads(threads)
    for needs in ({"need_weight": False}, {"need_input": False}):
        with pytest.raises(ValueError, match=r"bits: expected as many spikes of each task as starts says"):
            _backward(lambda given, needs=needs: given.update(needs, bits=bits(given["bits"])))


def test_bits_behind_the_last_neuron(path: str) -> None:
    """A row of 30 neurons leaves two bits of its words, which may stand for none."""

    def move_a_spike(given: dict[str, Any]) -> None:
        bits = given["bits"]
        t, n, y, _ = torch.nonzero(bits[..., 1:] & 1)[0].tolist()
        bits[t, n, y, 1] += -(2**15) - 1

    assert geometry(X, WEIGHT, ConvOptions([1, 1], [0, 0], [1, 1], 1)).row == 30
    with pytest.raises(ValueError, match=r"bits: expected as many spikes"):
        _backward(move_a_spike)


@pytest.mark.parametrize("name", ["srm_conv_forward", "layer_forward"])
def test_windows_do_not_reach_from_plane_to_plane(name: str, path: str) -> None:
    """Rows that a window leaves over would join the next plane's."""
    op = CASES[name]
    sample = next(sample for sample in op.samples if sample.name == "three axes")
    call = op.resolve(*sample.arguments(torch.float32))
    with pytest.raises(
        ValueError, match=r"pool: expected windows of 3 rows or a divisor of it with three space"
    ):
        call.changed(pool=[2, 1])()
    pooled = call.changed(pool=[3, 2])()[0]
    whole = call.changed(pool=[1, 1])()[0]
    expected = torch.nn.functional.avg_pool3d(whole.flatten(0, 1), (1, 3, 2)).reshape(pooled.shape)
    torch.testing.assert_close(pooled, expected)


def test_pooled_backward_wants_the_output(path: str) -> None:
    with pytest.raises(ValueError, match=r"output: expected the forward pass's beside a pool, got None"):
        _backward(_set(output=None), pool=[2, 2])
    with pytest.raises(ValueError, match=r"output: expected the output's shape \(4, 2, 5, 3, 3\)"):
        _backward(_set(output=lambda out: out[:1]), pool=[2, 2])
    with pytest.raises(TypeError, match=r"output: expected one of"):
        _backward(_set(output=lambda out: out.bool()), pool=[2, 2])


def test_output_in_another_layout() -> None:
    """Its address alone says nothing of its strides."""
    expected = _backward(pool=[2, 2])
    got = _backward(_set(output=lambda out: out.contiguous(), bits=lambda bits: bits.clone()), pool=[2, 2])
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


POOL = {"kernel": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False}
POOL_CASES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X}, ValueError, r"padding|kernel: expected 3 integers >= 1"),
    ({"x": torch.ones(2, 3, 4, 4, 4, 4)}, ValueError, r"x: expected \[N, C, \*space\] with 1 to 3 axes"),
    ({"x": torch.ones(2, 3)}, ValueError, r"x: expected \[N, C, \*space\]"),
    ({"x": torch.ones(2, 3, 0, 4)}, ValueError, r"x: expected at least one cell on each axis"),
    ({"x": X[0].long()}, TypeError, r"x: expected one of .*got torch\.int64"),
    ({"kernel": [-1, -1]}, ValueError, r"kernel: expected 2 integers >= 1, got \[-1, -1\]"),
    ({"kernel": [2]}, ValueError, r"kernel: expected 2 integers"),
    ({"kernel": [9, 2]}, ValueError, r"kernel: expected windows that fit into \(8, 8\), got \(9, 2\)"),
    ({"stride": [0, 2]}, ValueError, r"stride: expected 2 integers >= 1"),
    (
        {"stride": [2, 2**40]},
        ValueError,
        r"stride: expected integers up to 2147483647, got \[2, 1099511627776\]",
    ),
    ({"kernel": [2**31, 2]}, ValueError, r"kernel: expected integers up to 2147483647"),
    ({"padding": [0, -1]}, ValueError, r"padding: expected 2 integers >= 0"),
    ({"padding": [2, 0]}, ValueError, r"padding: expected at most half of kernel \[2, 2\], got \[2, 0\]"),
]


@pytest.mark.parametrize(("changes", "error", "message"), POOL_CASES)
def test_pool(changes: dict[str, Any], error: type[Exception], message: str, path: str) -> None:
    x, *options = {"x": X[0], **POOL, **changes}.values()
    with pytest.raises(error, match=message):
        op_calls.spike_avg_pool(x, *options, True, None)
    with pytest.raises(error, match=message):
        op_calls.spike_avg_pool_backward(torch.ones(2, 3, 4, 4), x, *options)


def test_pool_divisor_and_gradient(path: str) -> None:
    x, options = X[0], list(POOL.values())
    with pytest.raises(ValueError, match=r"divisor_override: expected an integer other than 0"):
        op_calls.spike_avg_pool(x, *options, True, 0)
    with pytest.raises(TypeError, match=r"grad_output: expected one of"):
        op_calls.spike_avg_pool_backward(torch.ones(2, 3, 4, 4).long(), x, *options)
    with pytest.raises(ValueError, match=r"grad_output: expected the output's shape \(2, 3, 4, 4\)"):
        op_calls.spike_avg_pool_backward(torch.ones(2, 3, 4, 3), x, *options)


@pytest.mark.parametrize("name", ["layer_forward", "layer_backward"])
@pytest.mark.parametrize("flag", ["reset_next", "membrane", "rectified", "quadratic"])
def test_layers_of_one_state_refuse_what_their_kernels_do_not_know(name: str, path: str, flag: str) -> None:
    case = CASES[name]
    call = case.resolve(*case.samples[0].arguments(torch.float32))
    flags = Flags(*call.arguments[call.names.index("flags")])
    with pytest.raises(ValueError, match="flags: expected a reset in the same step"):
        call.changed(flags=list(flags._replace(**{flag: 1})))()


NOWHERE = X.to("meta")
# State, options of the convolution, pool, flags, time_dim, and what is kept.
_LAYER = (None, [1, 1], [0, 0], [1, 1], 1, [1, 1], [0] * 9, 0, True, True, True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: _neurons("srm_forward", torch.ones(()), ONE.to("meta")),
            r"current: expected \[T, N, \.\.\.\]",
        ),
        (
            lambda: _neurons("srm_backward", torch.ones(()), ONE.to("meta")),
            r"current: expected \[T, N, \.\.\.\]",
        ),
        (
            lambda: _neurons("srm_forward", X, ONE.to("meta")),
            "coefficients: expected a tensor on cpu, got one on meta",
        ),
        (
            lambda: op_calls.srm_conv_forward(*{**CONV, "x": NOWHERE}.values()),
            "weight: expected a tensor on meta, got one on cpu",
        ),
        (
            lambda: op_calls.layer_forward(NOWHERE, WEIGHT, torch.ones(13, 1), *_LAYER),
            "weight: expected a tensor on meta, got one on cpu",
        ),
        (
            lambda: op_calls.max_pool_backward(None, NOWHERE[0], [8, 8], [2, 2], [2, 2], [0, 0]),
            "grad_output: expected a torch.Tensor, got NoneType",
        ),
    ],
)
def test_mixed_devices_and_missing_tensors(call: Callable[[], Any], message: str, path: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("name", ["srm_forward", "srm_backward", "srm_trace"])
def test_sparse_tensors(name: str, path: str) -> None:
    with pytest.raises(TypeError, match=r"current: expected a dense tensor, got torch\.sparse_coo"):
        _neurons(name, X.to_sparse(), **{"grad_spikes": X})
