"""Executes a module again under the current environment, without a new process."""

import importlib.util
from types import ModuleType


def executed_again(module: ModuleType) -> ModuleType:
    """Returns a second copy of the module, which nothing else imports."""
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_again", str(module.__file__))
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again
