"""State of `prepare_` while it goes through a net: rates of the last pass, targets, and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.sequences.spike_count import channel_rates, is_graded
from snnlib.structure.layers import gives_potentials

# Seconds without a word; what takes longer says how far it is.
_SILENT_SECONDS = 2.0


class Course:
    """Measures rates of spiking modules and potentials of readouts in the first call of each pass, by hooks.

    Args:
        modules: spiking layers, standalone neurons, and readouts, by name.
        grey: the net's input if it is grey, else None.
        settled: whether the net was already prepared on this batch, so that rates are only measured.
        after: stack that removes the hooks.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], grey: Tensor | None, settled: bool, after: ExitStack
    ) -> None:
        # Rates per channel, or the RMS of potentials as a tensor of no dimension, in the order of the calls.
        self.measured: dict[str, Tensor] = {}
        # Share of time steps in which the neurons of each channel fire.
        self.firing: dict[str, Tensor] = {}
        self.channels: dict[str, int] = {}
        self.targets: dict[str, float] = {}
        # Layers whose channels keep the differences that they are drawn with.
        self.as_drawn: set[str] = set()
        self.settled, self._grey = settled, grey
        # True if a weight was set, so that the last pass tells nothing of the layers behind it.
        self.changed = False
        self._last: dict[str, Tensor] = {}
        self._set: set[str] = set()
        self._all, self._start, self._told = len(modules), time.monotonic(), False
        self._after = after
        for name, module in modules.items():
            after.callback(module.register_forward_hook(self._remember(name)).remove)

    def begin_pass(self) -> None:
        """Starts new measurements."""
        self._last, self.measured = self.measured, {}

    def drawn(self, name: str) -> Tensor | None:
        """Returns the rates `[C]` of a layer with initial weights; None if an earlier layer was changed."""
        return None if self.changed else self._last.get(name)

    def takes_grey(self, x: Tensor) -> bool:
        """Returns whether a layer's input is the grey input of the net, before any neurons."""
        if self._grey is None:
            return False
        return not self.measured or torch.equal(x.flatten(), self._grey.flatten())

    def at_first_call(
        self, module: nn.Module, name: str, prepare: Callable[[Any, Tensor], Tensor | None]
    ) -> None:
        """Prepares a module with the input of its next call; a returned current replaces the input.

        Raises:
            ValueError: in that call, with the module's name before the text.
        """

        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if name in self._set:
                return None
            # First: what prepares neurons runs them.
            self._set.add(name)
            try:
                with torch.no_grad():
                    current = prepare(module, inputs[0].detach())
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            self._tell(name)
            return None if current is None else (current, *inputs[1:])

        self._after.callback(module.register_forward_pre_hook(hook).remove)

    def _tell(self, name: str) -> None:
        """Shows on a terminal how many layers are prepared."""
        if sys.stderr.isatty() and time.monotonic() - self._start > _SILENT_SECONDS:
            if not self._told:
                # The line ends with the preparation.
                self._after.callback(print, file=sys.stderr)
            self._told = True
            text = f"prepare_: {len(self._set)} of {self._all} layers, now behind {name}"
            print(f"\r{text:78}", end="", file=sys.stderr, flush=True)

    def _remember(self, name: str) -> Any:
        def hook(module: nn.Module, _inputs: Any, output: Any) -> None:
            if name in self.measured:
                return
            values = output.detach()
            self.channels[name] = values.shape[2]
            potentials = gives_potentials(module)
            self.measured[name] = torch.tensor(rms(values)) if potentials else channel_rates(values)
            graded = is_graded(module)
            self.firing[name] = channel_rates(values.clamp(max=1)) if graded else self.measured[name]

        return hook


def rms(values: Tensor) -> float:
    """Returns the root mean square, summed in float64 so that the number of threads does not show in it."""
    return float(values.float().square().mean(dtype=torch.float64).sqrt())
