"""The calls into cuDNN without a GPU: geometry against the real library where it is installed, arguments, fallback.

The rest of the way, engines and runs, is in test_cudnn_engines.py with a stand-in for the library.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from op_samples import CONVS

from snnlib import ops, use_path
from snnlib.backends import cudnn, cudnn_flags, native

ONE = torch.ones(1, 1, 1, 1)
FLAGS = cudnn_flags.CudnnFlags(benchmark=False, deterministic=False, allow_tf32=True)


@pytest.fixture
def library() -> Any:
    """The module with cuDNN loaded, and proof that the library's parts load where there is no driver."""
    if cudnn.unsupported():
        pytest.skip(cudnn.unsupported())
    module = native.cudnn()
    try:
        module.ConvBackward(True, 0, False, *[(1, 1, 1, 1)] * 3, (1, 1), (0, 0), (1, 1), (4, 4, 4))
    except RuntimeError as error:
        if "SUBLIBRARY_LOADING_FAILED" in str(error):
            pytest.skip(f"this cuDNN needs a driver: {error}")
        raise
    return module


def _arguments(name: str) -> list[Any]:
    x, weight, stride, padding, dilation, _, _ = CONVS[name]
    room = [x[a + 2] + 2 * padding[a] - dilation[a] * (weight[a + 2] - 1) - 1 for a in range(2)]
    g = (x[0], weight[0], *(room[a] // stride[a] + 1 for a in range(2)))
    return [x, weight, g, stride, padding, dilation]


@pytest.mark.parametrize("name", [name for name, sizes in CONVS.items() if 0 not in sizes[0]])
def test_library_takes_every_geometry(library: Any, name: str) -> None:
    for to_input in (True, False):
        for dtype in cudnn.DTYPES:
            for channels_last in (True, False):
                code = native.DTYPE_CODES[dtype]
                library.ConvBackward(to_input, code, channels_last, *_arguments(name), (16, 4, 16))


def test_library_refuses_what_does_not_fit(library: Any) -> None:
    x, weight, g, *options = _arguments("size kept")
    library.ConvBackward(True, 0, False, x, weight, g, *options, (16, 16, 16))
    for wrong in (
        [(2, 3, 8, 6), weight, g, *options],
        [x, (4, 2, 3, 3), g, *options],
        [x, weight, (2, 4, 7, 5), *options],
        [x, weight, g, [1, 1], [0, 1], [1, 1]],
    ):
        with pytest.raises(RuntimeError, match=r"cuDNN could not describe the .*: CUDNN_STATUS_BAD_PARAM"):
            library.ConvBackward(True, 0, False, *wrong, (16, 16, 16))
    with pytest.raises(RuntimeError, match="cuDNN could not describe a tensor"):
        library.ConvBackward(True, 0, False, x, weight, g, *options, (16, 2, 16))
    with pytest.raises(ValueError, match=r"dtype: cuDNN convolves float32, bfloat16 and float16"):
        library.ConvBackward(
            True, native.DTYPE_CODES[torch.float64], False, x, weight, g, *options, (16, 16, 16)
        )


def test_without_a_device_there_are_no_engines(library: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    convolution = library.ConvBackward(True, 0, False, *_arguments("size kept"), (16, 16, 16))
    with pytest.raises(RuntimeError, match="cuDNN could not create a handle on this device: CUDNN_STATUS_"):
        convolution.find_engines(0, False, True)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1)])
def test_strides(shape: tuple[int, ...]) -> None:
    if native.cudnn() is None:
        pytest.skip("the compiled module was built without CUDA")
    for channels_last in (False, True):
        layout = torch.channels_last if channels_last else torch.contiguous_format
        strides = tuple(native.cudnn().dense_strides(shape, channels_last))
        assert strides == torch.empty(shape, memory_format=layout).stride()


def test_cpu_tensors_are_refused() -> None:
    for path in ("auto", "native"):
        with use_path(path), pytest.raises(ValueError, match=r"x: expected a CUDA tensor, got one on cpu"):
            cudnn.convolution_backward(True, ONE, ONE, ONE, [1, 1], [0, 0], [1, 1], FLAGS)


@pytest.fixture
def fresh_search() -> Iterator[None]:
    cudnn.unsupported.cache_clear()
    yield
    cudnn.unsupported.cache_clear()


@pytest.mark.usefixtures("fresh_search")
class TestObstacles:
    def test_module_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native, "_module", object())
        assert cudnn.unsupported() == "the compiled module was built without CUDA"
        assert cudnn.describe() == "not used: the compiled module was built without CUDA"

    def test_no_module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native, "_module", None)
        monkeypatch.setattr(native, "load_error", "No module named 'snnlib._C'")
        assert cudnn.unsupported() == "No module named 'snnlib._C'"

    def test_no_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load(path: str) -> None:
            raise RuntimeError(f"no {path or 'copy in memory'}")

        monkeypatch.setattr(native, "_module", SimpleNamespace(cudnn=SimpleNamespace(load=load)))
        monkeypatch.setattr(cudnn, "_packaged_libraries", lambda: ["/packages/libcudnn.so.9"])
        assert cudnn.unsupported() == (
            "cuDNN was not found: no copy in memory; no /packages/libcudnn.so.9; no libcudnn.so.9"
        )


def test_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert str(library) in cudnn._packaged_libraries()


def test_loader_says_what_is_wrong(tmp_path: Path) -> None:
    if native.cudnn() is None:
        pytest.skip("the compiled module was built without CUDA")
    with pytest.raises(RuntimeError, match=r"/nowhere/libcudnn\.so\.9: cannot open shared object file"):
        native.cudnn().load("/nowhere/libcudnn.so.9")
    broken = tmp_path / "libcudnn.so.9"
    broken.write_text("no library")
    with pytest.raises(RuntimeError, match=r"libcudnn\.so\.9: "):
        native.cudnn().load(str(broken))
    with pytest.raises(RuntimeError, match="libcudnn has no function cudnnGetVersion"):
        native.cudnn().load("libm.so.6")


class TestFallback:
    """Path of the op if cuDNN does not support the tensors of a GPU."""

    @pytest.fixture(autouse=True)
    def no_cudnn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise cudnn.UnavailableError("the reason")

        monkeypatch.setattr(cudnn, "convolution_backward", refuse)
        monkeypatch.setattr(ops.conv, "_warned", False)

    @staticmethod
    def _call(dtype: torch.dtype = torch.float32) -> bool:
        options = ([1, 1], [0, 0], [1, 1])
        return ops.conv._cudnn_backward(True, (ONE.to(dtype),) * 3, options, (None, None, None))

    def test_one_notice_with_the_reason(self) -> None:
        with pytest.warns(RuntimeWarning, match=r"goes through aten::convolution_backward: the reason\."):
            assert not self._call()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not self._call()

    def test_native_path_raises(self) -> None:
        with use_path("native"), pytest.raises(RuntimeError, match="'native' was asked for, but the reason"):
            self._call()

    def test_what_was_asked_for_needs_no_notice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not self._call(torch.float64)
        with use_path("reference"):
            assert not self._call()
        monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
        assert not self._call()
