"""Shared by the data tests: real recordings from SNNLIB_DATA, and one full EventDigits build per session."""

import os
from pathlib import Path

import pytest

from snnlib.data import EventDigits


@pytest.fixture(scope="session")
def nmnist_root() -> Path:
    base = os.environ.get("SNNLIB_DATA")
    if not base:
        pytest.skip("SNNLIB_DATA is unset: no real N-MNIST recordings to read")
    root = Path(base, "nmnist_800")
    if not root.is_dir():
        pytest.skip(f"SNNLIB_DATA={base} holds no nmnist_800 folder")
    return root


@pytest.fixture(scope="session")
def digits_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("event-digits")
    EventDigits(root, progress=False)
    return root
