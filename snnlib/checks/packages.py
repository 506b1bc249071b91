"""Packages that only some functions need."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["import_extra"]


def import_extra(module: str, extra: str, what: str) -> Any:
    """Returns a module of a package that an extra of snnlib installs.

    Raises:
        ImportError: it is not installed; says what needs it, and what installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"{what} need the package {error.name}, which is not installed: pip install 'snnlib[{extra}]'"
        raise ImportError(text) from error
