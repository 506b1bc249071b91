"""Checks of tensors: kind, dtype, shape, device, lengths and labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snnlib.checks.values import require

# Dtypes that kernels compute with, in the order of their codes.
KERNEL_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_tensor(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` is a dense one; torch hands None to an op for a tensor that is not given."""
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        leaf = "; torch.fx.Tracer.is_leaf_module has to return True for modules of snnlib"
        raise TypeError(f"{name}: expected a torch.Tensor, got {kind}{leaf if kind == 'Proxy' else ''}")
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested tensor" if tensor.is_nested else str(tensor.layout)
        raise TypeError(f"{name}: expected a dense tensor, got {kind}; spikes are dense tensors: .to_dense()")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` is a floating tensor."""
    check_tensor(name, tensor)
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: expected a floating dtype, got {tensor.dtype}; convert it with .float()")


def check_integers(name: str, tensor: Tensor, what: str = "an integer dtype") -> None:
    """Raise TypeError unless `tensor` holds integers; `what` says so in the message."""
    check_tensor(name, tensor)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected {what}, got {tensor.dtype}")


def check_kernel_dtype(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` has one of the dtypes that the ops compute with."""
    check_tensor(name, tensor)
    if tensor.dtype not in KERNEL_DTYPES:
        expected = ", ".join(str(dtype) for dtype in KERNEL_DTYPES)
        raise TypeError(f"{name}: expected one of {expected}, got {tensor.dtype}")


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Raise TypeError unless `tensor` has this dtype."""
    check_tensor(name, tensor)
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {tensor.dtype}")


def check_fits(count: int, dtype: torch.dtype) -> None:
    """Raise ValueError unless the dtype holds all whole numbers up to `count`."""
    # A float of m mantissa bits holds all whole numbers up to 2^m = 2 / eps.
    if dtype == torch.bool:
        largest = 1
    elif dtype.is_floating_point:
        largest = int(min(2 / torch.finfo(dtype).eps, torch.finfo(dtype).max))
    else:
        largest = torch.iinfo(dtype).max
    if count > largest:
        raise ValueError(f"dtype must hold counts up to {count}, got {dtype}, exact up to {largest}")


def check_rank(
    name: str, tensor: Tensor, layout: str, *, at_least: int = 0, at_most: int = 64, exactly: int = 0
) -> None:
    """Raise ValueError unless the number of dimensions fits `layout`, which the message shows."""
    if not at_least <= tensor.dim() <= at_most or (exactly and tensor.dim() != exactly):
        raise ValueError(f"{name}: expected {layout}, got shape {tuple(tensor.shape)}")


def check_sequence_rank(x: Tensor, layout: str, least: int = 3, most: int = 64) -> None:
    """Raise ValueError unless the number of dimensions fits `layout`; a sequence without one may be a single step."""
    if not least <= x.dim() <= most:
        hint = "; a step of a loop goes as x[None] into snnlib.Stream(net) or run(x, state), and torch's modules such "
        hint += "as nn.Flatten() stand in snnlib.PerStep, as they take time for the batch"
        raise ValueError(f"x: expected {layout}, got shape {tuple(x.shape)}{hint if x.dim() < least else ''}")


def check_shape(name: str, tensor: Tensor, shape: Sequence[int], what: str = "") -> None:
    """Raise ValueError unless `tensor` has this shape; `what` says whose it is."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name}: expected {what or 'shape'} {tuple(shape)}, got {tuple(tensor.shape)}")


def check_device(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ValueError unless both tensors are on one device."""
    check_tensor(name, tensor)
    if tensor.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {tensor.device}")


def check_gradient(name: str, tensor: Tensor, shape: Sequence[int], what: str, like: Tensor) -> None:
    """Check the gradient of a result of this shape; it may have another floating dtype."""
    check_kernel_dtype(name, tensor)
    check_device(name, tensor, like)
    check_shape(name, tensor, shape, what)


def check_lengths(lengths: Tensor, x: Tensor) -> Tensor:
    """The number of steps of each sample of a sequence x `[T, N, ...]` as int64, on x's device.

    Raises:
        TypeError: no tensor of integers.
        ValueError: not one number per sample, or one outside 0 to T.
    """
    steps, batch = x.shape[:2]
    check_integers("lengths", lengths, "integers")
    if tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths: expected shape {(batch,)}, one number of steps per sample, got {tuple(lengths.shape)}"
        )
    check_device("lengths", lengths, x)
    numbers = lengths.to(torch.int64)

    def error() -> ValueError:
        least, most = (int(bound) for bound in numbers.aminmax())
        return ValueError(f"lengths: expected numbers from 0 to {steps} steps, got {least} to {most}")

    require((numbers >= 0) & (numbers <= steps), error)
    return numbers


def check_integer_labels(target: Tensor) -> None:
    """Raise TypeError unless `target` is a tensor of integers."""
    check_integers("target", target, "integer labels")


def check_labels(target: Tensor, scores: Tensor) -> None:
    """Raise unless `target` has one label in range for every row of `scores` `[..., classes]`.

    Values are checked as by `require`.
    """
    check_integer_labels(target)
    rows, classes = tuple(scores.shape[:-1]), scores.shape[-1]
    if tuple(target.shape) != rows:
        what = "one label per sample" if len(rows) == 1 else "one label per step and sample"
        raise ValueError(f"target: expected shape {rows}, {what}, got {tuple(target.shape)}")
    check_device("target", target, scores)
    # The number of classes may not fit into the dtype of labels.
    labels = target.long()

    def error() -> ValueError:
        low, high = (int(bound) for bound in target.aminmax())
        return ValueError(f"target: expected labels from 0 to {classes - 1}, got {low} to {high}")

    require((labels >= 0) & (labels < classes), error)


def first_state(state: object) -> Tensor | None:
    """The tensor in the state that `run` of a layer returned, or None for the initial state."""
    if state is None:
        return None
    if not (isinstance(state, tuple) and state and isinstance(state[0], Tensor)):
        raise TypeError(f"state: expected the tuple that run returned, got {type(state).__name__}")
    return state[0]
