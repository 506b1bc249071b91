"""Old names of functions that change a net in place, whose names now end in `_`; they last until version 1.0."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from snnlib.nn.fusion import fuse_, unfuse_
from snnlib.nn.normalization import fold_standardization_, standardize_weights_

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _renamed(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` under its name without the underscore; its first call warns."""
    new = function.__name__
    old = new.removesuffix("_")
    warned = False

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal warned
        if not warned:
            warned = True
            text = f"{old} is now called {new}, as it changes the net in place; the old name will go in version 1.0"
            warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    return call


fuse = _renamed(fuse_)
unfuse = _renamed(unfuse_)
standardize_weights = _renamed(standardize_weights_)
fold_standardization = _renamed(fold_standardization_)
