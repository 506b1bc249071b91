"""Choice of the path with its reason; contents and loading of the compiled module."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executed_again import executed_again

import snnlib
from snnlib.backends import algorithm, cpu_memory, native
from snnlib.backends.arguments import Windows
from snnlib.ops.pool_layout import geometry

READELF = shutil.which("readelf")
on_linux_with_module = pytest.mark.skipif(
    native._module is None or not sys.platform.startswith("linux") or READELF is None,
    reason="needs the compiled module, Linux and readelf",
)


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)


def test_use_path_restores_what_was_before() -> None:
    with snnlib.use_path("reference"):
        with pytest.raises(ZeroDivisionError), snnlib.use_path("native"):
            assert native.explain_path()[0] == "native"
            raise ZeroDivisionError
        assert native.explain_path() == ("reference", "asked for by SNNLIB_PATH or use_path")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (snnlib.use_path, "path: expected one of auto, native, reference, got 'fast'"),
        (snnlib.use_convolution, "choice: expected one of auto, events, dense, got 'fast'"),
    ],
)
def test_blocks_refuse_other_names(use: Callable[[str], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message), use("fast"):
        pass


def test_native_path_says_why_it_cannot_run() -> None:
    for name, tensor, message in (
        ("exact_forward", torch.zeros(1, device="meta"), r"'native' .* no native kernels for device meta"),
        ("exact_forward", torch.zeros(1, dtype=torch.int32), r"no native kernels for torch\.int32"),
        ("warp_drive", torch.zeros(1), r"no warp_drive kernel for device cpu"),
    ):
        with snnlib.use_path("native"), pytest.raises(RuntimeError, match=message):
            native.kernel(name, tensor)
    with snnlib.use_path("auto"):
        assert native.kernel("exact_forward", torch.zeros(1, device="meta")) is None


def test_arguments_of_another_version_say_to_build_again() -> None:
    """Python code that is newer than the module, or older: fields of a struct, also of one within another."""
    kernel = native.plain_function("count_nonzero")
    assert kernel is not None
    known = {
        "dtype": 0,
        "frames": 0,
        "cells": 0,
        "frame_stride": 0,
        "parts": 0,
        "elements": None,
        "counts": None,
    }
    assert kernel(**known, executor=1)
    with pytest.raises(
        TypeError, match=r"^executor: expected as an argument .*: build the module again \(`make env`"
    ):
        kernel(**known)
    with pytest.raises(TypeError, match=r"expected 8 arguments .*, 'more'\]; .* build the module again"):
        kernel(**known, executor=1, more=1)
    winograd = native.plain_function("winograd_adjoint")
    assert winograd is not None
    with pytest.raises(TypeError, match=r"^frames: expected as an argument"):
        winograd(shape={"height": 1}, signal=None, weight=None, out=None, executor=1)


def test_tensors_of_two_devices(path: str) -> None:
    """An address on another device would be read as one of this device."""
    train, elsewhere = torch.zeros(3, 2, 4), torch.zeros((), device="meta")
    with pytest.raises(ValueError, match=r"threshold: expected a tensor on cpu, got one on meta"):
        native.kernel("srm_forward", train, threshold=elsewhere, state=None)


def test_built_without_cuda_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if native._module is None:
        pytest.skip("the compiled module is not available")
    monkeypatch.setattr(native, "_kernels", {"cpu": native._module})
    assert native.explain_path("cuda") == ("reference", "the compiled module was built without CUDA")
    assert native.module_info()["CUDA"] == "built without CUDA"


def test_a_launch_that_fails_is_reported() -> None:
    """Without a driver nothing crashes: the launch is checked, and says which kernel did not start."""
    cuda = native._kernels.get("cuda")
    if cuda is None or cuda.info()["devices"]:
        pytest.skip("needs a module built with CUDA, and no GPU")
    one = torch.zeros(1, 1, 1, 1)
    sizes = geometry(one, one, Windows.apart([1, 1]))
    options = {"count_include_pad": True, "divisor_override": 0}
    with pytest.raises(
        RuntimeError, match=r"pool_forward: CUDA driver version is insufficient|no CUDA-capable device"
    ):
        cuda.pool_forward(**sizes, **options, input=None, output=None, executor=0)


def test_a_module_older_than_its_sources_says_so(tmp_path: Path) -> None:
    """An editable installation whose sources moved on calls functions with other arguments than they have."""
    module, source = tmp_path / "_C.so", tmp_path / "kernels.cpp"
    module.touch()
    source.touch()
    os.utime(module, (1000, 1000))
    assert native._age(module, tmp_path) == ", older than cpp/bindings/kernels.cpp: build it again"
    os.utime(source, (999, 999))
    assert native._age(module, tmp_path) == ""
    assert native._age(module, tmp_path / "absent") == ""


def test_cuda_kernels_take_the_arguments_of_the_cpu() -> None:
    """Op code is the same for both: every CUDA function has the name and signature of a CPU function."""
    cuda = native._kernels.get("cuda")
    if cuda is None:
        pytest.skip("the compiled module was built without CUDA")
    for name, function in vars(cuda).items():
        pools = (f"{kind}_pool_{way}" for kind in ("scan", "srm") for way in ("forward", "backward"))
        own = ("info", "problem", "use_device", "event_currents", *pools)
        if callable(function) and name not in own:
            assert function.__doc__ == getattr(native._module, name).__doc__
    assert re.fullmatch(
        r"built with \d+\.\d+ for \S.*; (no driver|driver takes up to \d+\.\d+); .+",
        native.module_info()["CUDA"],
    )


def test_poison_is_in_place() -> None:
    """Memory that library code allocates is NaN in this suite; the tests' own is not touched."""
    assert cpu_memory.empty_like(torch.zeros(3)).isnan().all()


def test_unknown_instruction_set_is_refused() -> None:
    module = native._module
    if module is None:
        pytest.skip("the compiled module is not available")
    before = module.isa()
    with pytest.raises(ValueError, match=r"instruction set: expected one of .*, got sse9"):
        module.select_isa("sse9")
    assert module.isa() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SNNLIB_PATH", "expected one of auto, native, reference, got 'odd'"),
        ("SNNLIB_ISA", "instruction set: expected one of "),
        ("SNNLIB_CONVOLUTION", "expected one of auto, events, dense, got 'odd'"),
    ],
)
def test_wrong_environment(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "SNNLIB_ISA" and native._module is None:
        pytest.skip("the compiled module is not available")
    monkeypatch.setenv(name, "odd")
    with pytest.raises(ValueError, match=f"environment variable {name}: {message}"):
        executed_again(algorithm if name == "SNNLIB_CONVOLUTION" else native)


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNNLIB_PATH", "SNNLIB_ISA", "SNNLIB_CONVOLUTION"):
        monkeypatch.setenv(name, "")
    assert executed_again(native)._path.value == "auto"
    assert executed_again(algorithm).chosen() == "auto"


def test_environment_chooses_path_and_instruction_set() -> None:
    if native._module is None:
        pytest.skip("the compiled module is not available")
    code = "from snnlib.backends import native; print(native.explain_path(), native._module.isa())"
    # The narrowest, which is not chosen by itself; a build for this machine has one alone.
    isa = native._module.available_isas()[0]
    run = _python(code, SNNLIB_PATH="reference", SNNLIB_ISA=isa)
    assert run.stdout == f"('reference', 'asked for by SNNLIB_PATH or use_path') {isa}\n", run.stderr


WITHOUT_MODULE = """
import sys, warnings
sys.modules["snnlib._C"] = None
import torch, snnlib
from snnlib.backends import native
x = torch.full((8, 1, 1), 1.2, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        spikes = snnlib.functional.srm_neuron(x)
    snnlib.functional.spike_avg_pool1d(spikes[:, :, None], 1).sum().backward()
print([str(w.message).split(":")[0] for w in caught if "snnlib" in str(w.message)])
print(spikes.flatten().tolist(), bool(x.grad.any()), native.explain_path()[0])
try:
    with snnlib.use_path("native"):
        snnlib.functional.srm_neuron(x)
except RuntimeError as error:
    print(str(error).split(" (")[0])
"""


def test_without_the_compiled_module() -> None:
    """The library works on its reference path, forward and backward, and says so once."""
    run = _python(WITHOUT_MODULE)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "['snnlib runs on its slow reference path']",
        "[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0] True reference",
        "path 'native' was asked for, but the compiled module is not available",
    ]


def _elf(option: str) -> list[str]:
    command = [READELF, "-W", option, native._module.__file__]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@on_linux_with_module
def test_module_links_neither_torch_nor_cuda() -> None:
    """Every Linux has the libraries that the module needs: it loads beside any torch and without a driver."""
    needed = [line.split("[")[1].split("]")[0] for line in _elf("-d") if "(NEEDED)" in line]
    assert needed
    allowed = ("libc.", "libm.", "libstdc++.", "libgcc_s.", "libgomp.", "libpthread.", "ld-linux")
    assert [name for name in needed if not name.startswith(allowed)] == []


@on_linux_with_module
def test_module_has_no_symbol_of_torch() -> None:
    undefined = [line.split()[-1] for line in _elf("--dyn-syms") if " UND " in line]
    assert any(name.startswith("Py") for name in undefined)
    foreign = ("torch", "c10", "at6Tensor", "cuda", "cudnn", "cu", "_ZN2at", "_ZN3c10")
    assert [
        name for name in undefined if name.startswith(foreign) or "5torch" in name or "3c10" in name
    ] == []


@pytest.mark.parametrize(
    ("use", "now"),
    [
        (snnlib.use_path, native.asked_path),
        (snnlib.use_convolution, algorithm.chosen),
    ],
    ids=["use_path", "use_convolution"],
)
def test_blocks_of_two_threads_that_overlap(use: Callable[[str], Any], now: Callable[[], str]) -> None:
    """Whichever ends first, nothing of them is left."""
    before, names = now(), {native.asked_path: ("reference", "native"), algorithm.chosen: ("events", "dense")}
    first, second = names[now]
    for first_ends_first in (True, False):
        entered, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def other_thread(entered=entered, may_end=may_end, ended=ended) -> None:  # type: ignore[no-untyped-def]
            with use(second):
                entered.set()
                may_end.wait(60)
            ended.set()

        thread = threading.Thread(target=other_thread)
        with use(first):
            thread.start()
            assert entered.wait(60)
            assert now() == second
            if not first_ends_first:
                may_end.set()
                assert ended.wait(60)
                assert now() == first
        may_end.set()
        thread.join(60)
        assert now() == before


def test_warning_of_the_reference_path_points_at_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Custom ops add frames of torch's own."""
    monkeypatch.setattr(native, "_module", None)
    monkeypatch.setattr(native, "_kernels", {})
    layers = (snnlib.SRMLinear(3, 2), snnlib.SpikeAvgPool1d(1))
    for layer, x in zip(layers, (torch.zeros(4, 1, 3), torch.zeros(4, 1, 1, 3)), strict=True):
        monkeypatch.setattr(native, "_warned", False)
        with pytest.warns(RuntimeWarning, match="slow reference path") as caught:
            layer(x)
        assert [warning.filename for warning in caught] == [__file__]


def _on_gpu(number: int, kernels: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-in of a tensor on the GPU of this number, which has these kernels."""
    monkeypatch.setitem(native._kernels, "cuda", kernels)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: number)
    monkeypatch.setattr(native, "_usable_gpus", set())
    return types.SimpleNamespace(device=torch.device("cuda", number), dtype=torch.float32)


def test_gpu_that_the_kernels_cannot_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver too old or a GPU without machine code: the reference path, one warning, and the truth when asked."""
    problem = "CUDA driver version is insufficient for CUDA runtime version"
    cuda = types.SimpleNamespace(problem=lambda: problem, srm_forward=None, use_device=lambda index: None)
    tensor = _on_gpu(0, cuda, monkeypatch)
    monkeypatch.setattr(native, "_warned", False)
    with pytest.warns(RuntimeWarning, match=f"reference path: .*{problem}") as caught:
        assert native.kernel("srm_forward", tensor) is None
        assert native.kernel("srm_forward", tensor) is None
    assert len(caught) == 1
    assert native.explain_path("cuda") == ("reference", f"CUDA kernels cannot run on this GPU: {problem}")
    assert not native.has_kernel("srm_forward", tensor)
    with snnlib.use_path("native"), pytest.raises(RuntimeError, match=problem):
        native.kernel("srm_forward", tensor)
    cuda.problem = lambda: ""
    # A passing error does not leave the reference path on for good.
    assert native.explain_path("cuda", "srm_forward")[0] == "native"
    cuda.problem = lambda: problem
    assert native.has_kernel("srm_forward", tensor)


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (12040, "driver takes up to 12.4; needs a driver of 580 or newer"),
        (13010, "driver takes up to 13.1; 2 usable devices"),
        (0, "no driver; needs a driver of 580 or newer"),
    ],
)
def test_the_driver_that_a_module_needs(driver: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"runtime": 13000, "driver": driver, "devices": 2, "problem": ""}
    cuda = types.SimpleNamespace(info=lambda: info, architectures="75, 90")
    monkeypatch.setitem(native._kernels, "cuda", cuda)  # type: ignore[arg-type]
    assert native.module_info()["CUDA"] == f"built with 13.0 for 75, 90; {said}"


def test_a_kernel_runs_on_the_device_of_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module has a runtime of its own, which is told the device in whatever thread a kernel starts."""
    calls: list[object] = []
    cuda = types.SimpleNamespace(
        problem=lambda: "", use_device=calls.append, srm_forward=lambda **arguments: calls.append(arguments)
    )
    tensor = _on_gpu(1, cuda, monkeypatch)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=7))
    kernel = native.kernel("srm_forward", tensor)
    assert kernel is not None
    kernel(current="current")
    assert calls == [1, 1, {"current": "current", "executor": 7}]
