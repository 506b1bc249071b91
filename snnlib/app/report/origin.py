"""Where a report comes from: date, versions, commit, machine and seed."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime

import torch
from torch import nn

from snnlib import __version__
from snnlib.inspect.environment import processor_name


def origin(net: nn.Module, seed: int | None) -> dict[str, str]:
    """Facts for the header of a report, by name; what is not known is left out."""
    device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
    commit = commit_here()
    threads = torch.get_num_threads()
    processor = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{processor_name()}, {threads} thread{'s' * (threads != 1)}"
    )
    return {
        "date": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        "snnlib": __version__,
        **({"commit of the working directory": commit} if commit else {}),
        "torch, Python": f"{torch.__version__}, {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {processor}",
        "device": str(device),
        "seed": "not given" if seed is None else str(seed),
    }


def commit_here() -> str:
    """The commit that is checked out in the working directory, with `-dirty` for changes; empty without one."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
