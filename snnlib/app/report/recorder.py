"""Find the spiking layers of any net by what they give, and record their inputs and spikes in a forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.readout import SRMReadout
from snnlib.sequences.spike_count import is_graded


@dataclass(frozen=True)
class Recorded:
    """Input and spikes of one layer in one forward pass, both time first `[T, N, ...]`."""

    input: Tensor
    spikes: Tensor


@torch.no_grad()
def spiking_layers(net: nn.Module, x: Tensor) -> dict[str, nn.Module]:
    """Modules that turn something else into spikes, or that have weights of their own and give spikes, in call order.

    A module gives spikes if its output is `[T, N, ...]` of zeros and ones, or of whole numbers where neurons of snnlib
    have several levels, with the first two dimensions of `x`. Layers of torch itself never spike, though a silent input
    makes their output zero. Of a module and its parent with one output, the layer with the weights is taken, else the
    innermost.
    """
    found: list[tuple[str, nn.Module, Tensor, bool]] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor):
                source = next((value for value in inputs if isinstance(value, Tensor)), None)
                if output.dim() > 2 and output.shape[:2] == x.shape[:2] and _holds_spikes(output, module):
                    found.append((name, module, output, _makes_spikes(module, source)))

        return hook

    with ExitStack() as hooks:
        for name, module in net.named_modules():
            hooks.callback(module.register_forward_hook(of_this_thread(watch(name))).remove)
        net(x)
    return _one_per_output(found)


@contextmanager
def recording(
    net: nn.Module, layers: dict[str, nn.Module], batch_first: bool
) -> Iterator[dict[str, Recorded]]:
    """Inputs and spikes of `layers` in the last forward pass of a `with` block."""
    seen: dict[str, Recorded] = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            seen[name] = Recorded(
                *(value.transpose(0, 1) if batch_first else value for value in (inputs[0], output))
            )

        return hook

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_hook(of_this_thread(keep(name))).remove)
        yield seen


def is_output_of_spikes(output: Tensor, recorded: dict[str, Recorded], batch_first: bool) -> bool:
    """Returns whether a net's output `[T, N, K]` holds zeros and ones, or the spikes of its last spiking layer."""
    last = next((layer.spikes for layer in reversed(recorded.values())), None)
    time_first = output.transpose(0, 1) if batch_first else output
    return _holds_spikes(output) or (last is not None and torch.equal(time_first, last.flatten(2).to(output)))


def _holds_spikes(value: Tensor, module: nn.Module | None = None) -> bool:
    if module is not None and is_graded(module):
        return bool(((value >= 0) & (value % 1 == 0)).all())
    return bool(((value == 0) | (value == 1)).all())


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None or hasattr(module, "parametrizations")


def _makes_spikes(module: nn.Module, source: Tensor | None) -> bool:
    # The readout's potentials are zero where nothing came in.
    kind = type_before_parametrizations(module)
    if kind.__module__.startswith("torch.nn.modules.") or issubclass(kind, SRMReadout):
        return False
    # Pooling, dropout and reshaping hand spikes on.
    hands_on = source is not None and _holds_spikes(source) and bool(source.any())
    return _has_weights(module) or is_graded(module) or not hands_on


def _one_per_output(found: list[tuple[str, nn.Module, Tensor, bool]]) -> dict[str, nn.Module]:
    """Returns a module for each spike tensor: the module with weights, else the innermost, which ends first.

    A tensor whose innermost module made no spikes, but handed them on, has none.
    """
    by_output: dict[int, list[tuple[str, nn.Module, bool]]] = {}
    for name, module, spikes, made in found:
        by_output.setdefault(id(spikes), []).append((name, module, made))
    layers: dict[str, nn.Module] = {}
    for candidates in by_output.values():
        name, module, made = candidates[0]
        if made:
            name, module = next(((n, m) for n, m, _ in candidates if _has_weights(m)), (name, module))
            layers[name] = module
    return layers
