"""op x path x dtype x sample against float64 answers; native against reference; registration."""

import pytest
import torch
from compare import assert_close, assert_same_bits
from op_samples import Sample
from opdb import DTYPES, OPS, OpCase

import snnlib

CALLS = [
    pytest.param(case, sample, id=f"{case.name}: {sample.name}")
    for case in OPS.values()
    for sample in case.samples
]
# Share of neurons that may come too near to the threshold to compare; more would empty the test.
MAX_DOUBTFUL = 0.05


def test_every_registered_op_has_a_case() -> None:
    registered = {
        name.removeprefix("snnlib::").split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("snnlib::")
    }
    called = {
        case.resolve(*case.samples[0].arguments(torch.float32)).op.__name__
        for case in OPS.values()
        if case.registered
    }
    assert called >= {"scan_forward", "pool_backward"}
    assert registered == called, "every op of torch.ops.snnlib needs an OpCase in tests/helpers/opdb.py"


# The reference only where its bits are not compared with the native ones.
VALUES = [
    pytest.param(*call.values, path, id=f"{call.id}-{path}")
    for call in CALLS
    for path in ("native", "reference")
    if path == "native" or not call.values[0].bit_equal
]


@pytest.mark.parametrize(("case", "sample", "path"), VALUES, indirect=["path"])
def test_value(case: OpCase, sample: Sample, path: str) -> None:
    for dtype in DTYPES:
        args = sample.arguments(dtype)
        doubtful = case.doubtful(*args)
        if doubtful is not None and doubtful.numel():
            assert doubtful.double().mean() <= MAX_DOUBTFUL
        outputs, answers = case(*args), case.answer(*args)
        for number, (out, answer) in enumerate(zip(outputs, answers, strict=True)):
            if answer is None:
                continue
            if doubtful is not None and out.shape == doubtful.shape:
                out, answer = out[~doubtful], answer[~doubtful]  # noqa: PLW2901
            assert_close(out, answer, case.tolerance[dtype], f"{case.name} in {dtype}, output {number}")


@pytest.mark.parametrize(("case", "sample"), [call for call in CALLS if call.values[0].bit_equal])
def test_native_equals_reference_bit_for_bit(case: OpCase, sample: Sample) -> None:
    for dtype in DTYPES:
        args = sample.arguments(dtype)
        with snnlib.use_path("native"):
            native = case(*args)
        with snnlib.use_path("reference"):
            reference = case(*args)
        assert_same_bits(native, reference, f"{case.name} in {dtype}")


def _differentiable(case: OpCase, sample: Sample) -> list[object]:
    args = list(sample.arguments(torch.float32))
    if case.differentiable:
        args[case.events].requires_grad_()
    return args


# Every sample by the kernels, and each op's first ones by the reference: what is checked depends on shapes.
SCHEMAS = [
    pytest.param(*call.values, path, id=f"{call.id}-{path}")
    for call in CALLS
    for path in ("native", "reference")
    if call.values[0].registered
    if path == "native" or call.values[1] in call.values[0].samples[:3]
]


@pytest.mark.parametrize(("case", "sample", "path"), SCHEMAS, indirect=["path"])
def test_schema_and_fake(case: OpCase, sample: Sample, path: str) -> None:
    """Nothing is mutated or aliased, and the fake gives the shape, dtype and strides of the real output."""
    call = case.resolve(*_differentiable(case, sample))
    torch.library.opcheck(call.op.default, call.arguments, test_utils=("test_schema", "test_faketensor"))


# opcheck's dispatch through AOT autograd with dynamic shapes takes half a second a call.
TRACED = (
    "state",
    "batch first",
    "overlap and borders",
    "3-D",
    "no frames",
    "depthwise, channels last",
    "groups of planes",
)


# Newer versions copy the arguments and read `.grad` of the copies. They hide the warning, but not where
# warnings are errors.
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf Tensor is being accessed:UserWarning"
)
@pytest.mark.parametrize(
    ("case", "sample"),
    [call for call in CALLS if call.values[0].registered and call.values[1].name in TRACED],
)
def test_traced(case: OpCase, sample: Sample) -> None:
    call = case.resolve(*_differentiable(case, sample))
    torch.library.opcheck(
        call.op.default,
        call.arguments,
        test_utils=("test_autograd_registration", "test_aot_dispatch_dynamic"),
    )
