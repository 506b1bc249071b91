"""The CUDA kernels in the place of the CPU's."""

from collections.abc import Callable, Iterator
from typing import Any

import emulation
import pytest

import snnlib
from snnlib.backends import native


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`emulated(f, *args)` calls f with the CUDA kernels, the threads of a block from the first to the last or back."""
    kernels = emulation.module()
    kernels.run_backwards(getattr(request, "param", False))

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(native, "_kernels", {"cpu": kernels})
            return function(*args, **kwargs)

    with snnlib.use_path("native"):
        yield call
    kernels.run_backwards(False)
