"""Memo of results that the kinds of arguments determine: checks that passed, and sizes and options for kernels.

The kind of a tensor is its shape, strides, dtype and device. Packed arguments count by their `key`, others, such as
options, by type and value. A call whose kinds were met before skips the checks of

- dtypes, devices, layouts, ranks and shapes,
- options of convolutions, windows and neurons, with the time constants of SRM neurons.

Checks of values are not behind the memo and run in every call: ranges of constants and delays, lengths, labels, indices
of sparse connections, first numbers of a record, overflow of fixed-point states, NaN. Plans of layers and prepared
kernels (`native.prepare`) are results of such memos. A memo holds no tensors. It starts anew after `MOST` kinds, so
that sequences of many lengths do not fill it. Threads share it: two of them that meet a new kind at a time compute
equal results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

MOST = 1024


def kind(argument: Any) -> Any:
    """Returns the key of an argument; raises TypeError for a tensor without strides."""
    return kinds((argument,))[0]


def kinds(arguments: Iterable[Any]) -> tuple[Any, ...]:
    """Returns the keys of arguments, in one call but for those within tuples."""
    found: list[Any] = []
    for one in arguments:
        of = type(one)
        if of is int:
            found.append(one)
        elif of is tuple or of is list:
            found.append(kinds(one))
        elif not isinstance(one, Tensor):
            # 1, 1.0 and True are equal, and not all of them are right.
            found.append((of, getattr(one, "key", one)))
        elif one.layout is not torch.strided or one.is_nested:
            raise TypeError(f"layout: expected torch.strided, got {one.layout}")
        else:
            found.append((one.shape, one.stride(), one.dtype, one.device))
    return tuple(found)


def once(function: Function) -> Function:
    """Remembers the results of a function of positional arguments, which their kinds determine; errors are not kept.

    >>> import torch
    >>> steps = once(lambda x: print("looks") or len(x))
    >>> steps(torch.ones(3, 2)), steps(torch.zeros(3, 2)), steps(torch.ones(4, 2))
    looks
    looks
    (3, 3, 4)
    """
    results: dict[Any, Any] = {}

    @functools.wraps(function)
    def remembered(*arguments: Any) -> Any:
        # Sizes are tensors within torch.jit.trace.
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return function(*arguments)
        try:
            key = kinds(arguments)
            return results[key]
        except KeyError:
            pass
        except TypeError:
            # Sizes that a compiler does not know yet have no hash.
            return function(*arguments)
        result = function(*arguments)
        if len(results) >= MOST:
            results.clear()
        results[key] = result
        return result

    return cast(Function, remembered)


def kept(results: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """Returns the result of a key, made at its first use: `once` for a caller that knows a short key of its calls."""
    found = results.get(key)
    if found is None:
        found = make()
        if len(results) >= MOST:
            results.clear()
        results[key] = found
    return found
