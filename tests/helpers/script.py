"""Programs of release/, cuda/ and docs/site/ as modules, whose functions tests call."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script(path: str) -> ModuleType:
    """Returns the module of a program, executed anew; the path is that from the project's root."""
    file = ROOT / path
    # Name made of the path, as other folders have programs of the same name.
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
