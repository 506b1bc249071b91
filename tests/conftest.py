"""Fixtures of the whole suite: paths, seeded generators, poisoned memory, the hypothesis profile."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

# `make sanitize` has the suite run with a module that was built with sanitizers in the place of the installed one.
if "SNNLIB_TEST_MODULE" in os.environ:
    _spec = importlib.util.spec_from_file_location("snnlib._C", os.environ["SNNLIB_TEST_MODULE"])
    assert _spec is not None and _spec.loader is not None
    sys.modules["snnlib._C"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["snnlib._C"])

import snnlib
from snnlib.backends import cpu_memory

# `make sanitize-threads` runs kernels on several threads, but torch's own loops, which it cannot follow, on one.
if "SNNLIB_TEST_THREADS" in os.environ:
    torch.set_num_threads(1)
    torch.get_num_threads = lambda: int(os.environ["SNNLIB_TEST_THREADS"])
    torch.set_num_threads = lambda _: None

# Written for version 0.1, whose modules it imports.
collect_ignore = ["stored/make_0_1.py"]

# Runs are repeatable; `--hypothesis-profile=explore` looks for new examples.
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=25, suppress_health_check=_CHECKS
)
settings.register_profile("explore", deadline=None, max_examples=500, suppress_health_check=_CHECKS)
settings.load_profile("repeatable")


# Files that take longest, in order: they come first, so that no core waits for another's last file.
LONGEST = [
    *(
        "test_examples.py",
        "test_ops.py",
        "test_benchmarks.py",
        "test_cli.py",
        "test_cuda_emulation.py",
        "test_gpu_check.py",
        "test_report.py",
    ),
    *("test_spike_regression.py", "test_data_digits.py", "test_neurons.py", "test_training_resume.py"),
    *("test_native.py", "test_visual.py", "test_compile.py", "test_cudnn.py"),
    *("test_models_published.py", "test_invariance.py", "test_fuzz.py"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which `--dist loadfile` hands files out."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(params=["native", "reference"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once per path of the ops."""
    with snnlib.use_path(request.param):
        yield request.param


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20240229)


def _poisoned(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        out = allocate(*args, **kwargs)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return out.fill_(torch.nan) if caller.startswith("snnlib") and out.is_floating_point() else out

    return wrapper


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory that library code asks for is full of NaN: an output that is never written cannot pass."""
    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (Tensor, "new_empty"),
        (cpu_memory, "empty_strided"),
    ):
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))
