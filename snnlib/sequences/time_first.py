"""Door of modules and functions with `batch_first`: what is below them has sequences `[T, N, ...]` alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from torch import Tensor

from snnlib.checks import check_flag

Method = TypeVar("Method", bound=Callable[..., Any])


def time_first(x: Tensor, batch_first: bool) -> Tensor:
    """Returns a sequence `[N, T, ...]` as a view `[T, N, ...]`, or back; without `batch_first` the sequence itself."""
    # A check below names the layout that a tensor of fewer dimensions lacks, and objects that are no tensors.
    return x.transpose(0, 1) if batch_first and isinstance(x, Tensor) and x.dim() > 1 else x


def runs_time_first(method: Method) -> Method:
    """Gives a method of a module with `batch_first` its sequence, the first argument, as `[T, N, ...]`.

    The sequence that it returns, alone or first in a named tuple, comes back as `[N, T, ...]`, in memory too.

    >>> import torch
    >>> class Last(torch.nn.Module):
    ...     batch_first = True
    ...     @runs_time_first
    ...     def forward(self, x):
    ...         return x[-1:]
    >>> Last()(torch.ones(3, 5, 2)).shape
    torch.Size([3, 1, 2])
    """

    @wraps(method)
    def run(self: Any, x: Tensor, *others: Any, **named: Any) -> Any:
        if self.batch_first is False or not check_flag("batch_first", self.batch_first):
            return method(self, x, *others, **named)
        found = method(self, time_first(x, True), *others, **named)
        if isinstance(found, Tensor):
            return time_first(found, True)
        return found._replace(value=time_first(found.value, True))

    return cast(Method, run)


def takes_time_first(*sequences: str, gives: bool = False) -> Callable[[Method], Method]:
    """Gives a function with `batch_first` these arguments as `[T, N, ...]`; if it `gives` sequences, they come back.

    Raises:
        TypeError: a `batch_first` that is not True or False.

    >>> import torch
    >>> @takes_time_first("x")
    ... def last(x, *, batch_first=False):
    ...     return x[-1]
    >>> last(torch.ones(3, 5, 2), batch_first=True).shape
    torch.Size([3, 2])
    """

    def door(function: Method) -> Method:
        names = tuple(signature(function).parameters)
        place = names.index("batch_first") if "batch_first" in names else len(names)

        @wraps(function)
        def run(*values: Any, **named: Any) -> Any:
            batch_first = values[place] if len(values) > place else named.get("batch_first", False)
            if not check_flag("batch_first", batch_first):
                return function(*values, **named)
            given = {**dict(zip(names, values, strict=False)), **named, "batch_first": False}
            for name in sequences:
                if isinstance(given.get(name), Tensor):
                    given[name] = time_first(given[name], True)
            found = function(**given)
            if not gives:
                return found
            if isinstance(found, Tensor):
                return time_first(found, True)
            parts = (time_first(part, True) for part in found)
            return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)

        return cast(Method, run)

    return door
