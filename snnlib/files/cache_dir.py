"""The folder where made data is kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["user_cache_dir"]


def user_cache_dir() -> Path:
    """The library's cache folder (not created here).

    The environment variable `SNNLIB_CACHE` decides; else `XDG_CACHE_HOME/snnlib`; else the platform's own
    place: `~/.cache/snnlib` (Linux), `~/Library/Caches/snnlib` (macOS), `%LOCALAPPDATA%/snnlib/Cache`
    (Windows).

    Example:
        >>> user_cache_dir().is_absolute()
        True
    """
    chosen = os.environ.get("SNNLIB_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG rule: a relative path is to be ignored.
    if xdg and Path(xdg).is_absolute():
        return Path(xdg, "snnlib")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "snnlib"
    local = os.environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local:
        return Path(local, "snnlib", "Cache")
    return Path.home() / ".cache" / "snnlib"
