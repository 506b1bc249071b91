"""Engines of cuDNN found, prepared, chosen and run: everything but the GPU, with a stand-in that computes on the CPU.

`fake_cudnn.cpp` has six engines: 0 nondeterministic, 1 on tensor cores, 2 down-converting, 3 and 4 plain,
5 the fallback.
"""

import ctypes
import gc
import importlib.machinery
import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from compare import assert_close
from op_samples import CONVS, conv_backward_sample
from torch import Tensor

from snnlib import functional, ops
from snnlib.backends import cudnn, cudnn_flags, native

Flags = cudnn_flags.CudnnFlags
ANY = Flags(benchmark=False, deterministic=False, allow_tf32=True)
STREAM = 0x5EED


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The stand-in, and in `.module` a copy of the compiled module that uses it, apart from any real cuDNN."""
    if native.cudnn() is None:
        pytest.skip("the compiled module was built without CUDA")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("the stand-in for cuDNN needs g++")
    folder = tmp_path_factory.mktemp("cudnn")
    path = folder / "libfake_cudnn.so"
    source = Path(__file__).with_name("fake_cudnn.cpp")
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", path], check=True)
    binary = Path(native._module.__file__)
    copy = shutil.copy(binary, folder / binary.name)
    loader = importlib.machinery.ExtensionFileLoader("copy_of_snnlib._C", str(copy))
    module = importlib.util.module_from_spec(
        importlib.machinery.ModuleSpec("copy_of_snnlib._C", loader, origin=str(copy))
    )
    loader.exec_module(module)
    module.cudnn.load(str(path))
    library = ctypes.CDLL(str(path))
    library.fake_last_stream.restype = ctypes.c_void_p
    return SimpleNamespace(module=module, library=library)


class _Event:
    """A clock by which engine 4 takes 1 ms a run and engine n another 10 + n ms."""

    library: Any

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, _end: "_Event") -> float:
        engine = _Event.library.fake_last_engine()
        return 1.0 if engine == 4 else 10.0 + engine


@pytest.fixture(autouse=True)
def on_the_cpu(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(native, "_module", fake.module)
    monkeypatch.setattr(cudnn, "unsupported", lambda: "")
    monkeypatch.setattr(cudnn, "_check_on_gpu", lambda tensors: None)
    _Event.library = fake.library
    for name, substitute in (
        ("device", lambda _: nullcontext()),
        ("current_device", lambda: 0),
        ("current_stream", lambda _: SimpleNamespace(cuda_stream=STREAM)),
        ("is_current_stream_capturing", lambda: False),
        ("Event", _Event),
    ):
        monkeypatch.setattr(torch.cuda, name, substitute)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 10)
    fake.library.fake_recover()
    fake.library.fake_set_workspace(64)
    cudnn._solver.cache_clear()
    yield
    cudnn._solver.cache_clear()


def _run(tensors: list[Tensor], flags: Flags = ANY, to_input: bool = True) -> None:
    cudnn.convolution_backward(to_input, *tensors, [1, 1], [1, 1], [1, 1], flags)


def _tensors(frames: int = 2) -> list[Tensor]:
    shapes = ((frames, 2, 5, 4), (3, 2, 3, 3), (frames, 3, 5, 4))
    return [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]


@pytest.mark.parametrize("name", [name for name, sizes in CONVS.items() if 0 not in sizes[0]])
def test_values(name: str) -> None:
    """Pointers, sizes, strides, padding, dilation and groups arrive where they belong, in both directions."""
    for weight in (False, True):
        sample = conv_backward_sample(name, weight=weight)
        size, g, operand, stride, padding, dilation, groups, *_ = sample.arguments(torch.float32)
        layout = ops.conv._memory_format(g, operand)
        grad = torch.full(size, torch.nan).to(memory_format=layout)
        tensors = (operand, grad, g) if weight else (grad, operand, g)
        cudnn.convolution_backward(not weight, *tensors, stride, padding, dilation, ANY)
        function = functional.conv2d_weight_backward if weight else functional.conv2d_input_backward
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        assert_close(grad, function(size, g, operand, **options).double(), 1e-5)


@pytest.mark.parametrize(
    ("deterministic", "allow_tf32", "engine"), [(False, True, 0), (True, True, 1), (True, False, 3)]
)
def test_flags_choose_among_the_engines(
    fake: Any, deterministic: bool, allow_tf32: bool, engine: int
) -> None:
    _run(_tensors(), Flags(False, deterministic, allow_tf32))
    assert fake.library.fake_last_engine() == engine


def test_tensor_cores_are_no_question_for_half_precision() -> None:
    """bfloat16 with and without tf32 is one geometry, with one plan."""
    tensors = [x.bfloat16() for x in _tensors()]
    for allow_tf32 in (False, True):
        # The stand-in computes in float32 alone.
        with pytest.raises(cudnn.UnavailableError, match="BAD_PARAM"):
            _run(tensors, Flags(False, True, allow_tf32))
    assert cudnn._solver.cache_info().misses == 1


def test_engines_that_fail_are_passed_over(fake: Any) -> None:
    fake.library.fake_fail(0, 1)
    fake.library.fake_fail(1, 0)
    tensors = _tensors()
    tensors[0].fill_(torch.nan)
    _run(tensors)
    assert fake.library.fake_last_engine() == 3
    assert tensors[0].isfinite().all()


def test_out_of_memory(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for an engine's workspace: the next one is tried; one that was kept raises torch's own error."""
    empty, full = torch.empty, [True]

    def allocate(*args: Any, **kwargs: Any) -> Tensor:
        if full and full.pop():
            raise torch.OutOfMemoryError("no room")
        return empty(*args, **kwargs)

    monkeypatch.setattr(torch, "empty", allocate)
    tensors = _tensors()
    _run(tensors)
    assert fake.library.fake_last_engine() == 1
    full.append(True)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        _run(tensors)
    _run(tensors)
    assert fake.library.fake_last_engine() == 1


def test_memory_may_be_free_again_later(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: Any, **__: Any) -> Tensor:
        raise torch.OutOfMemoryError("no room")

    tensors = _tensors()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", allocate)
        with pytest.raises(cudnn.UnavailableError, match="cuDNN: no room"):
            _run(tensors)
    _run(tensors)
    assert fake.library.fake_last_engine() == 0


def test_no_engine_at_all(fake: Any) -> None:
    for engine in range(6):
        fake.library.fake_fail(engine, 0)
    for _ in range(2):
        with pytest.raises(cudnn.UnavailableError, match=r"cuDNN: .*NOT_SUPPORTED \(engine 5 gave up\)"):
            _run(_tensors())
    made = fake.library.fake_plans_made()
    with pytest.raises(cudnn.UnavailableError):
        _run(_tensors())
    assert fake.library.fake_plans_made() == made


def test_benchmark_takes_the_fastest_and_keeps_it(fake: Any) -> None:
    tensors = _tensors()
    _run(tensors, ANY._replace(benchmark=True))
    assert fake.library.fake_last_engine() == 4
    made = fake.library.fake_plans_made()
    tensors[0].fill_(torch.nan)
    _run(tensors, ANY._replace(benchmark=True))
    assert fake.library.fake_last_engine() == 4
    assert fake.library.fake_plans_made() == made
    assert tensors[0].isfinite().all()


def test_benchmark_limit(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 2)
    _run(_tensors(), ANY._replace(benchmark=True))
    assert fake.library.fake_last_engine() == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda t: [x[:1] if x.shape[0] == 2 else x for x in t],
        lambda t: [x.to(memory_format=torch.channels_last) for x in t],
        lambda t: [torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x) for x in t],
    ],
    ids=["frames", "layout", "alignment"],
)
def test_every_geometry_has_its_own_engine(fake: Any, change: Callable[[list[Tensor]], list[Tensor]]) -> None:
    tensors = _tensors()
    _run(tensors)
    made = fake.library.fake_plans_made()
    _run(tensors)
    assert fake.library.fake_plans_made() == made
    changed = change(tensors)
    _run(changed)
    assert fake.library.fake_plans_made() == made + 1
    assert fake.library.fake_alignment_of_x() == cudnn._alignment(changed[0])


def test_alignment() -> None:
    base = torch.zeros(64)
    offset = -base.data_ptr() // 4 % 4
    assert [cudnn._alignment(base[offset + i :]) for i in range(5)] == [16, 4, 8, 4, 16]


def test_stream_handle_and_nothing_left_behind(fake: Any) -> None:
    for frames in (1, 2, 3):
        _run(_tensors(frames), ANY._replace(benchmark=True))
    assert fake.library.fake_last_stream() == STREAM
    assert fake.library.fake_handles() == 1
    assert fake.library.fake_live_descriptors() > 0
    cudnn._solver.cache_clear()
    gc.collect()
    assert fake.library.fake_live_descriptors() == 0


def test_layouts_may_not_be_mixed() -> None:
    x, weight, g = _tensors()
    with pytest.raises(ValueError, match="expected all contiguous or all channels last"):
        _run([x, weight, g.to(memory_format=torch.channels_last)])


def test_empty_and_mixed_dtypes() -> None:
    x, weight, g = _tensors()
    with pytest.raises(
        ValueError, match=r"grad_output: expected at least one element, got shape \(0, 3, 5, 4\)"
    ):
        _run([x, weight, g[:0]])
    with pytest.raises(cudnn.UnavailableError, match=r"each alone, not torch.float32, torch.float16"):
        _run([x, weight.half(), g])
    with pytest.raises(cudnn.UnavailableError, match="cuDNN convolves float32, bfloat16 and float16"):
        _run([t.double() for t in (x, weight, g)])
