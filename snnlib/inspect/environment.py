"""Facts about an installation: versions, the machine, and the backend of every op with the reason."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable

import torch

from snnlib.backends import cudnn, native
from snnlib.files.cache_dir import user_cache_dir

# Packages that the library uses, with the extra that brings the optional ones.
_PACKAGES = (
    ("snnlib", ""),
    ("torch", ""),
    ("numpy", ""),
    ("scikit-learn", "data"),
    ("lightning", "train"),
    ("tensorboard", "train"),
    ("matplotlib", "train"),
    ("jinja2", "train"),
    ("typer", "train"),
    ("rich", "train"),
)


def print_report() -> None:
    """Prints all facts; works without any extra installed."""
    for title, facts in (
        ("Versions", _versions()),
        ("Machine", _machine()),
        ("Native code", [*native.module_info().items(), ("cuDNN", cudnn.describe())]),
        ("Paths of the ops", _paths()),
        ("Data", _data()),
        ("Environment", _environment()),
    ):
        rows = list(facts)
        width = max((len(name) for name, _ in rows), default=0)
        print(title)
        for name, value in rows:
            print(f"{name:{width}}  {value}".rstrip())
        print()


def _versions() -> Iterable[tuple[str, str]]:
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for package, extra in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield (
                package,
                f"not installed: pip install 'snnlib[{extra}]'" if extra else "not installed as a package",
            )


def _machine() -> Iterable[tuple[str, str]]:
    yield "system", platform.platform()
    yield "processor", f"{processor_name()}, {os.cpu_count()} logical cores"
    yield "threads", f"{torch.get_num_threads()} (torch.set_num_threads or OMP_NUM_THREADS)"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        yield "CUDA", f"{torch.version.cuda}: {', '.join(names)}"
    else:
        yield "CUDA", "no device" if torch.version.cuda else "this torch is built without CUDA"
    driver = _version_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    yield "NVIDIA driver", f"least {native.least_driver()}, to run CUDA kernels; here {driver}"
    toolkit = _version_by("nvcc", "--version")
    yield "CUDA toolkit", f"least {_LEAST_TOOLKIT}, to compile them from sources; here {toolkit}"


def _version_by(program: str, *options: str) -> str:
    """Returns the first version with a dot that a program prints, or what kept it from printing one."""
    path = shutil.which(program)
    if path is None:
        return f"no {program}"
    try:
        done = subprocess.run([path, *options], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no answer from {program}: {error}"
    found = re.search(r"\d+\.[\d.]+", done.stdout)
    return found[0] if found else f"{program} failed: {' '.join((done.stdout or done.stderr).split())}"


def processor_name() -> str:
    """Returns the processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


# The kernels have been compiled by no older one.
_LEAST_TOOLKIT = "13.0"

# Names that users know, and the kernel that stands for each family.
_FAMILIES = {
    "SRM neurons": "srm_forward",
    "SRM layers, event-driven": "layer_forward",
    "other neurons": "scan_forward",
    "recurrent layers": "recurrent_forward",
    "spike pooling": "pool_forward",
}


def _paths() -> Iterable[tuple[str, str]]:
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for family, kernel in _FAMILIES.items():
            path, reason = native.explain_path(device, kernel)
            yield f"{family} on {device}", f"{path}: {reason}"


def _data() -> Iterable[tuple[str, str]]:
    folder = user_cache_dir()
    yield "cache folder", str(folder)
    builds = sorted(path.parent.name for path in folder.glob("event-digits-*/Train.zip"))
    yield "embedded digits", ", ".join(builds) or "not made yet: the first `snnlib train` makes them"


def _environment() -> Iterable[tuple[str, str]]:
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith("SNNLIB_"))
    return variables or [("SNNLIB_*", "none set")]
