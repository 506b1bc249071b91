"""Stages of check.py: tests that need a GPU, and the kernels under compute-sanitizer."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import op_calls
import torch

import snnlib

from .build import cuda_tool
from .stages import Setting
from .tools import (
    CONSTANTS,
    DTYPES,
    OPS,
    ROOT,
    Results,
    currents,
    relayed,
    to_device,
)


def pytest(run: Setting) -> Results:
    """The tests that need a GPU, with the module that was built: the source folder must not shadow it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            "-c",
            os.devnull,
        ]
        # The suite's own fixtures need packages that a GPU machine may not have.
        command += ["--noconftest", str(ROOT / "tests" / "backends" / "test_cudnn_gpu.py")]
        path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "tests" / "helpers")]
        status, lines = relayed(command, {**os.environ, "PYTHONPATH": os.pathsep.join(path)}, folder)
    assert status == 0, "\n".join(lines[-40:])
    return {"tests that need a GPU": lines[-1]}


def kernels(run: Setting) -> Results:
    """Every kernel of the library once, for compute-sanitizer: torch's own would take most of the time."""
    calls = 0
    scans = ("scan_forward", "scan_backward", "scan_pool_forward", "scan_pool_backward")
    scans += ("srm_pool_forward", "srm_pool_backward", "recurrent_forward", "recurrent_backward")
    for name in ("srm_forward", "srm_backward", "srm_trace", *scans):
        for sample in OPS[name].samples:
            for dtype in DTYPES:
                OPS[name](*(to_device(run.device, value) for value in sample.arguments(dtype)))
                calls += 1
    for name in ("spike_avg_pool", "spike_avg_pool_backward"):
        for sample in OPS[name].samples:
            OPS[name](*(to_device(run.device, value) for value in sample.arguments(torch.float32)))
            calls += 1
    for steps in (49, 97, 300):
        current = currents(run, steps, 2, 3, 40)
        limit = torch.ones((), device=run.device)
        op_calls.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
        calls += 1
    with snnlib.use_convolution("events"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = (currents(run, 5, 2, 3, 7, 6) > 1).to(dtype)
            snnlib.SRMConv2d(3, 5, 3, padding=1, stride=2).to(run.device, dtype)(x)
            calls += 1
    if run.on_gpu:
        torch.cuda.synchronize()
    return {"calls of kernels": calls}


def memcheck(run: Setting) -> Results:
    """compute-sanitizer: no kernel accesses what is outside of a tensor."""
    return _sanitized(run, "memcheck", "snnlib")


def racecheck(run: Setting) -> Results:
    """compute-sanitizer: no threads of a block race; they work together in recurrent layers alone."""
    return _sanitized(run, "racecheck", "recurrent")


def _sanitized(run: Setting, check: str, names: str) -> Results:
    """The last line of a check of the kernels with such names; on a CPU the calls of the kernels alone."""
    command = [sys.executable, str(Path(__file__).parent), "--stage", "kernels"]
    command += ["--device", run.device.type]
    # Without torch's cache every tensor is an allocation of its own, and its end can be overrun.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    tool = cuda_tool("compute-sanitizer")
    if run.on_gpu:
        if tool is None:
            return {check: "skipped: there is no compute-sanitizer"}
        command = [tool, "--tool", check, "--error-exitcode", "9", "--kernel-regex", f"kns={names}", *command]
    elif not run.whole:
        command += ["--help"]
    status, lines = relayed(command, environment)
    if any("Device not supported" in line for line in lines):
        return {check: "skipped: compute-sanitizer does not support this device"}
    assert status == 0, "\n".join(lines[-40:])
    return {check: lines[-1].strip("= ")}
