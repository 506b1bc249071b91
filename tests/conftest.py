"""Fixtures of the whole suite: paths, seeded generators, poisoned memory, the hypothesis profile."""

import gc
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import bytecode  # noqa: F401 - before torch is imported.
import durations
import jitter
import part
import pytest
import torch

# Before a first op does, which would have the compiler see functions of torch that fill memory with NaN.
import torch._dynamo
from hypothesis import HealthCheck, settings
from torch import Tensor

# `make sanitize` has the suite run with a module that was built with sanitizers in the place of the installed one.
if "SNNLIB_TEST_MODULE" in os.environ:
    _spec = importlib.util.spec_from_file_location("snnlib._C", os.environ["SNNLIB_TEST_MODULE"])
    assert _spec is not None and _spec.loader is not None
    sys.modules["snnlib._C"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["snnlib._C"])

import snnlib
from snnlib.backends import cpu_memory, native

# `make sanitize-threads` runs kernels on several threads, but torch's own loops, which it cannot follow, on one.
if "SNNLIB_TEST_THREADS" in os.environ:
    torch.set_num_threads(1)
    torch.get_num_threads = lambda: int(os.environ["SNNLIB_TEST_THREADS"])
    torch.set_num_threads = lambda _: None

# Runs are repeatable; `--hypothesis-profile=explore` looks for new examples.
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=25, suppress_health_check=_CHECKS
)
settings.register_profile("explore", deadline=None, max_examples=500, suppress_health_check=_CHECKS)
settings.load_profile("repeatable")


class Durations:
    """Has the files that took longest in the last whole run come first, and notes how long they take in this one."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        before = durations.read()
        items.sort(key=lambda item: -before.get(item.nodeid.split("::")[0], 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.split("::")[0]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        config = session.config
        whole = config.args_source is config.ArgsSource.TESTPATHS and not (
            config.option.keyword or config.option.part
        )
        # Workers of pytest-xdist report to the one process that has started them.
        if whole and not hasattr(config, "workerinput") and exitstatus <= pytest.ExitCode.TESTS_FAILED:
            durations.write(self.seconds)


def pytest_addoption(parser: pytest.Parser) -> None:
    jitter.add_option(parser)
    part.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations())
    if config.getoption("--jitter"):
        jitter.install()
    if config.getoption("--part"):
        config.pluginmanager.register(part.Part(config.getoption("--part")))


def pytest_collection_finish() -> None:
    """Tells the collector that modules and tests stay: it would look through millions of objects, 3 % of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["native", "reference"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test once per path of the ops."""
    with snnlib.use_path(request.param):
        yield request.param


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(20240229)


@pytest.fixture
def isas() -> Iterator[list[str]]:
    """Instruction sets of this processor; the one in use is put back after the test."""
    module = native._module
    if module is None:
        pytest.skip("needs the compiled module")
    isa = module.isa()
    yield module.available_isas()
    module.select_isa(isa)


@pytest.fixture(autouse=True)
def threads_put_back() -> Iterator[None]:
    """Puts the number of threads back: two workers with two threads each wait for each other, for most of the time."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


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


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a report are made, but not drawn, which takes most of the time of a short run."""
    monkeypatch.setattr("snnlib.app.report.page.png_of", lambda figure: b"")
