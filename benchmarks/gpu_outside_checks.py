"""Stages of gpu_check.py: tests that need a GPU, and the kernels under compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from gpu_check_tools import (
    CONSTANTS,
    DTYPES,
    OPS,
    ROOT,
    Results,
    currents,
    to_device,
)
from gpu_stages import Setting

import snnlib


def pytest(run: Setting) -> Results:
    """The tests that need a GPU, with the module that was built: the source folder must not shadow it."""
    if not run.on_gpu:
        return {"pytest": "runs the tests that need a GPU"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", folder]
        command += [
            "-c",
            os.devnull,
            # The suite's own fixtures need packages that a GPU machine may not have.
            "--noconftest",
            str(ROOT / "tests" / "test_cudnn_gpu.py"),
        ]
        path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "tests")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
    assert done.returncode == 0, done.stdout[-2500:] + done.stderr[-500:]
    return {"tests that need a GPU": done.stdout.strip().splitlines()[-1]}


def kernels(run: Setting) -> Results:
    """Every kernel of the library once, for `sanitizer`: torch's own would take most of the time."""
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
        torch.ops.snnlib.srm_backward(current, current, limit, None, *CONSTANTS, 0, True, True)
        calls += 1
    with snnlib.use_convolution("events"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = (currents(run, 5, 2, 3, 7, 6) > 1).to(dtype)
            snnlib.SRMConv2d(3, 5, 3, padding=1, stride=2).to(run.device, dtype)(x)
            calls += 1
    if run.on_gpu:
        torch.cuda.synchronize()
    return {"calls of kernels": calls}


def sanitizer(run: Setting) -> Results:
    """compute-sanitizer: no kernel accesses what is outside of a tensor, and no threads of a block race."""
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin:/opt/cuda/bin"
    )
    if tool is None or not run.on_gpu:
        return {"compute-sanitizer": "skipped: not here"}
    return {
        check: _sanitized(tool, check, kernels)
        # Threads work together in recurrent layers alone.
        for check, kernels in (("memcheck", "snnlib"), ("racecheck", "recurrent"))
    }


def _sanitized(tool: str, check: str, kernels: str) -> str:
    """The last line of a check of the kernels with such names."""
    command = [tool, "--tool", check, "--error-exitcode", "9", "--kernel-regex", f"kns={kernels}"]
    script = str(Path(__file__).with_name("gpu_check.py"))
    # Without torch's cache every tensor is an allocation of its own, and its end can be overrun.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        [*command, sys.executable, script, "--stage", "kernels"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    output = done.stdout + done.stderr
    if "Device not supported" in output:
        return "skipped: it does not support this device"
    assert done.returncode == 0, output[-2500:]
    return output.strip().splitlines()[-1].strip("= ")
