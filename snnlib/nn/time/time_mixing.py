"""Decides whether a module may run in chunks and on padding: by its `mixes_time`, else by a list of known modules."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from snnlib.nn.layers.per_step import PerStep

_KNOWN_LIBRARIES = ("torch", "snnlib")
# They mix steps, or do so along the dimension that they were told.
_MIXING_OF_TORCH = (nn.MultiheadAttention, nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.GLU)


def runs_with_state(module: nn.Module) -> bool:
    """Returns whether a class has `run(x, state)`, as neurons and layers of neurons have."""
    run = getattr(type(module), "run", None)
    return callable(run) and list(inspect.signature(run).parameters)[:3] == ["self", "x", "state"]


def check_time_steps(argument: str, net: nn.Module, *, padded: bool = False) -> None:
    """Raises ValueError for a net with a module that mixes time steps, or lacks `mixes_time`.

    Modules with `run(x, state)` continue from their state. Modules of torch and of this library are known. `mixes_time
    = False` of a class covers its own `forward`; `PerStep` and `run` also cover the modules inside.

    Args:
        argument: name of the caller's argument.
        net: the net that will run.
        padded: False for nets that run in chunks; True for nets that run on padded sequences, where modules with
            `takes_padding = True` are also accepted.
    """
    for path, module, is_spoken_for in _with_paths(net):
        name = _name(path, module)
        reason = _why_it_mixes(module, padded, is_spoken_for)
        if reason and padded:
            raise ValueError(f"{argument}: expected modules that padding cannot reach, got {name}: {reason}")
        if reason:
            raise _refusal(argument, name, reason)
        if not is_spoken_for and not _is_known(module):
            raise ValueError(
                f"{argument}: {name} does not say whether it mixes time steps. If its own forward treats every step "
                f"alike and by itself, write `mixes_time = False` into class {type(module).__name__}, else "
                "`mixes_time = True`; one that carries a state needs a method run(x, state=None) that returns "
                "neurons.Output"
            )


def check_steps_kept(argument: str, net: nn.Module, x: Tensor, out: Tensor) -> None:
    """Raises ValueError for an output whose number of steps differs from the input `x` `[T, N, ...]`."""
    if out.shape[:1] != x.shape[:1]:
        seen = f"{len(x)} time steps came in, an output of shape {tuple(out.shape)} came out"
        raise _refusal(argument, _name("", net), seen)


def _with_paths(
    module: nn.Module, path: str = "", is_spoken_for: bool = False
) -> Iterator[tuple[str, nn.Module, bool]]:
    """Yields all modules of a net, and whether a module around them covers them."""
    yield path, module, is_spoken_for
    is_spoken_for = is_spoken_for or isinstance(module, PerStep) or runs_with_state(module)
    for name, child in module.named_children():
        # Functions of weights, not of sequences.
        if not isinstance(child, ParametrizationList):
            yield from _with_paths(child, f"{path}.{name}" if path else name, is_spoken_for)


def _why_it_mixes(module: nn.Module, padded: bool, is_spoken_for: bool) -> str | None:
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and (
        module.training or module.running_mean is None
    ):
        return "it normalises by statistics over the steps of a call"
    declared = getattr(module, "mixes_time", None)
    if declared:
        takes_padding = padded and getattr(module, "takes_padding", False)
        return None if takes_padding else "it says mixes_time = True"
    if declared is not None or is_spoken_for:
        return None
    if isinstance(module, nn.RNNBase) and not (padded and not module.bidirectional):
        return "within a net it starts each call from rest, at both ends if bidirectional"
    if isinstance(module, _MIXING_OF_TORCH):
        return "it may read along time; snnlib.PerStep runs it on every step by itself"
    return None


def _is_known(module: nn.Module) -> bool:
    if getattr(module, "mixes_time", None) is not None or runs_with_state(module):
        return True
    library = getattr(inspect.getattr_static(type(module), "forward", None), "__module__", None) or ""
    return library.split(".")[0] in _KNOWN_LIBRARIES and not isinstance(module, torch.jit.ScriptModule)


def _name(path: str, module: nn.Module) -> str:
    return f"module {path or 'net'} ({type(module).__name__})"


def _refusal(argument: str, name: str, reason: str) -> ValueError:
    return ValueError(
        f"{argument}: {name} mixes time steps, so its sequence cannot be cut into chunks: {reason}"
    )
