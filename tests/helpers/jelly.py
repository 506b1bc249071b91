"""SpikingJelly's modules for tests that compare with them, which skip where it is not installed."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest

_BASE = "spikingjelly.activation_based"


def jelly(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a module of SpikingJelly.

    Its residual nets import a loader of weights from torchvision, which does not import beside torch's build for CPUs;
    a stand-in module has that function alone, which no test calls.
    """
    pytest.importorskip(f"{_BASE}.neuron", reason="compares with spikingjelly, which is not installed")
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        loader: Any = ModuleType("torchvision._internally_replaced_utils")
        loader.load_state_dict_from_url = None
        monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
        monkeypatch.setitem(sys.modules, loader.__name__, loader)
    return importlib.import_module(f"{_BASE}.{name}")
