"""cuDNN inside CUDA graphs: no engine is looked for there, and those that a graph starts are kept. Needs no GPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from snnlib.backends import cudnn, cudnn_flags, native

FLAGS = cudnn_flags.CudnnFlags(benchmark=False, deterministic=False, allow_tf32=True)


class _Convolution:
    """Geometry with a single engine, whose runs are counted."""

    runs = 0
    made: ClassVar[list[weakref.ref[_Convolution]]] = []

    def __init__(self, *_geometry: object) -> None:
        self.made.append(weakref.ref(self))

    def find_engines(self, *_: object) -> int:
        return 1

    def plan(self, _engine: int) -> Any:
        return SimpleNamespace(workspace_bytes=1, run=self._run)

    def _run(self, *_: object) -> None:
        _Convolution.runs += 1


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Flag that the stream is capturing, set by the test."""
    now = [False]
    monkeypatch.setattr(native, "_module", SimpleNamespace(cudnn=SimpleNamespace(ConvBackward=_Convolution)))
    monkeypatch.setattr(cudnn, "unsupported", lambda: "")
    monkeypatch.setattr(cudnn, "_check_on_gpu", lambda tensors: None)
    monkeypatch.setattr(cudnn, "_captured", set())
    monkeypatch.setattr(_Convolution, "runs", 0)
    monkeypatch.setattr(_Convolution, "made", [])
    for name, substitute in (
        ("device", lambda _: nullcontext()),
        ("current_device", lambda: 0),
        ("current_stream", lambda _: SimpleNamespace(cuda_stream=0)),
        ("is_current_stream_capturing", lambda: now[0]),
    ):
        monkeypatch.setattr(torch.cuda, name, substitute)
    cudnn._solver.cache_clear()
    yield now
    cudnn._solver.cache_clear()


def _run(frames: int = 2) -> None:
    tensors: list[Tensor] = [
        torch.zeros(shape) for shape in ((frames, 2, 5, 4), (3, 2, 3, 3), (frames, 3, 5, 4))
    ]
    cudnn.convolution_backward(True, *tensors, [1, 1], [1, 1], [1, 1], FLAGS)


def test_a_first_run_inside_a_capture_is_refused(capturing: list[bool]) -> None:
    capturing[0] = True
    with pytest.raises(
        RuntimeError, match="expected a run of this geometry before the capture of a CUDA graph"
    ) as caught:
        _run()
    # An UnavailableError would be taken for a reason to convolve by torch instead.
    assert not isinstance(caught.value, cudnn.UnavailableError)
    assert _Convolution.runs == 0
    capturing[0] = False
    _run()
    capturing[0] = True
    _run()
    assert _Convolution.runs == 2


def test_what_a_graph_starts_is_never_unloaded(capturing: list[bool]) -> None:
    for frames in (2, 3):
        capturing[0] = False
        _run(frames)
        capturing[0] = frames == 2
        _run(frames)
    cudnn._solver.cache_clear()
    gc.collect()
    in_graph, other = _Convolution.made
    assert in_graph() is not None and other() is None
