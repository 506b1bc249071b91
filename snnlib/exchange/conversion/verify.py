"""`snnlib.verify_conversion`: compares spikes and gradients of a converted net with the original's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from snnlib.exchange.compare import SpikeCounts, gradients_of, largest_difference
from snnlib.exchange.conversion.convert import LoopPlace, takes_one_step
from snnlib.exchange.conversion.in_place import takes_sequences
from snnlib.exchange.conversion.own_neurons import mark
from snnlib.exchange.conversion.proof import run_original
from snnlib.exchange.conversion.sequence_modules import Kept, RecurrentNeurons, WithStates
from snnlib.inspect.shown import ShownAsText
from snnlib.neurons import Neuron
from snnlib.structure import peers
from snnlib.structure.layers import evaluating
from snnlib.structure.peers import attributes_kept, clear_states, neuron_library

__all__ = ["Comparison", "verify_conversion"]

# Largest difference of gradients, as a share of the largest entry.
_CLOSE = 1e-4
# Largest share of spikes that rounding flips: in ten nets of the libraries none does, in a fused one 1e-4.
_FEW = 1e-3


@dataclass(frozen=True)
class Comparison(ShownAsText):
    """Result of `verify_conversion`; `str()` returns a table.

    Args:
        spikes: numbers of spikes by path of each spiking module: common spikes, spikes of the original only, and
            spikes of the converted net only. Graded spikes count by their number.
        output_error: largest difference of the outputs, relative to the largest output.
        gradient_errors: largest difference of the gradients by parameter name, relative to the largest element;
            infinite where one net has no gradient.
        gradients_missing: the net that has no gradient of a parameter which the other trains, "original" or
            "converted net", by parameter name.
    """

    spikes: dict[str, SpikeCounts]
    output_error: float
    gradient_errors: dict[str, float]
    gradients_missing: dict[str, str] = field(default_factory=dict)

    @property
    def identical(self) -> float:
        """Share of equal spikes: matched / (matched + missing + extra); 1 without spikes."""
        return reduce(SpikeCounts.plus, self.spikes.values(), SpikeCounts()).identical

    @property
    def silent(self) -> list[str]:
        """Paths of the neurons that fired in neither net, which were therefore not compared."""
        return [path for path, counts in self.spikes.items() if not counts.total]

    @property
    def ok(self) -> bool:
        """Returns whether some neuron fired, all spikes are the same and all gradients agree to 1e-4."""
        compared = not self.spikes or len(self.silent) < len(self.spikes)
        return compared and self.identical == 1.0 and not self._apart

    @property
    def _apart(self) -> list[str]:
        # NaN is close to nothing.
        wrong = {name: f"{e:.1e}" for name, e in self.gradient_errors.items() if not e <= _CLOSE}
        wrong |= {name: f"missing in the {of}" for name, of in self.gradients_missing.items()}
        return [f"{name} ({difference})" for name, difference in wrong.items()]

    def __str__(self) -> str:
        width = max((len(name) for name in (*self.spikes, *self.gradient_errors)), default=0)
        lines = [
            f"{path or '(net)':{width}}  "
            + (
                "fired in neither net: nothing was compared"
                if path in self.silent
                else f"{both} spikes alike, {missing} missing, {extra} extra"
            )
            for path, (both, missing, extra) in self.spikes.items()
        ]
        lines += [
            f"{name:{width}}  gradient is missing in the {self.gradients_missing[name]}"
            if name in self.gradients_missing
            else f"{name:{width}}  gradient differs by {error:.1e}"
            for name, error in self.gradient_errors.items()
        ]
        fired = len(self.spikes) - len(self.silent)
        spikes = f"{self.identical:.4%} of the spikes are identical"
        if not fired:
            spikes = "no neuron fired: no spikes were compared"
        elif self.silent:
            spikes += f", in {fired} of {len(self.spikes)} modules of neurons"
        if fired and (self.identical < 1 or self._apart or self.output_error > _CLOSE):
            few = 1 - self.identical <= _FEW and (self.identical < 1 or not self._apart)
            lines.append(
                "so few spikes differ that the order of additions may be the reason"
                if few
                else "the order of additions does not explain these differences: the nets compute different things"
            )
        apart = f"; gradients are not the same: {', '.join(self._apart)}" if self._apart else ""
        lines.append(f"{spikes}; outputs differ by {self.output_error:.1e}{apart}")
        return "\n".join(lines)


def verify_conversion(
    net: nn.Module, converted: nn.Module, x: Tensor, *, loop: LoopPlace = "auto"
) -> Comparison:
    """Runs a net and its conversion on the same input, in evaluation mode, and compares spikes and gradients.

    The gradients are those of a randomly weighted sum of all outputs, by all common parameters. Torch sums larger
    batches in another order, so a membrane potential within rounding of the threshold may fire in one net only, and
    cause further differences. The table shows whether differences are this few and small.

    Args:
        net: the original.
        converted: the result of `snnlib.convert`.
        x: as for `snnlib.convert`.
        loop: as for `snnlib.convert`.

    Raises:
        ValueError: outputs of different shapes.
    """
    with evaluating(net, converted), attributes_kept(net):
        mark(net, x, _own_neurons(net, converted))
        outside = loop == "outside" or (loop == "auto" and takes_one_step(net, x))
        stepwise = outside and not takes_sequences(net)
        clear_states(net)
        neurons = {path: module for path, module in net.named_modules() if neuron_library(module) is not None}
        with _outputs_of(neurons) as theirs:
            expected = run_original(net, x, stepwise)
        with _outputs_of(_counterparts(converted, theirs)) as ours:
            found = converted(x)
    while isinstance(expected, tuple) and isinstance(found, Tensor):
        # Norse's nets over sequences return their states as well.
        expected = expected[0]
    a, b = _float_leaves(expected), _float_leaves(found)
    if [leaf.shape for leaf in a] != [leaf.shape for leaf in b]:
        shapes = ([tuple(leaf.shape) for leaf in leaves] for leaves in (a, b))
        raise ValueError("converted: expected outputs of shapes {}, got {}".format(*shapes))
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    shared = [p for p in converted.parameters() if id(p) in names and p.requires_grad]
    grads = [gradients_of(leaves, shared) for leaves in (a, b)]
    by_name = dict(zip([names[id(p)] for p in shared], zip(*grads, strict=True), strict=True))
    missing = {name: of for name, pair in by_name.items() if (of := _lacks_gradient(*pair))}
    errors = {
        name: math.inf if name in missing else _gradient_difference(*pair) for name, pair in by_name.items()
    }
    pairs = {
        # Two places of a module may have different sizes.
        path: (torch.cat([*map(torch.flatten, steps)]), torch.cat([*map(torch.flatten, ours[path])]))
        for path, steps in theirs.items()
        if path in ours
    }
    counts = {path: SpikeCounts.of(*pair) for path, pair in pairs.items() if _are_spikes(*pair)}
    output_error = max((largest_difference(*pair) for pair in zip(a, b, strict=True)), default=0.0)
    return Comparison(counts, output_error, errors, missing)


def _own_neurons(net: nn.Module, converted: nn.Module) -> dict[type[nn.Module], nn.Module]:
    """Returns what stands for the neurons of no library, by class."""
    ours = dict(converted.named_modules())
    return {
        type(module): ours[path]
        for path, module in net.named_modules()
        if isinstance(ours.get(path), Neuron | WithStates) and not neuron_library(module)
    }


@contextmanager
def _outputs_of(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, list[Tensor]]]:
    """Sequences of spikes that modules give within the block, by path; one for each call."""
    found: dict[str, list[Tensor]] = {}

    def keep(path: str, module: nn.Module, _inputs: Any, output: Any) -> None:
        spikes = output[0] if isinstance(output, tuple | list) else output
        steps = neuron_library(module) is not None and not peers.takes_sequences(module)
        # A copy, as the net may write into the spikes.
        copied = spikes.detach().clone()
        found.setdefault(path, []).append(copied[None] if steps else copied)

    with ExitStack() as stack:
        for path, module in modules.items():
            stack.callback(module.register_forward_hook(partial(keep, path)).remove)
        yield found


def _counterparts(converted: nn.Module, paths: Iterable[str]) -> dict[str, nn.Module]:
    """Modules of the converted net that give the spikes of these: at the same path, or a module around it."""
    modules = dict(converted.named_modules())
    found: dict[str, nn.Module] = {}
    for path in paths:
        parent, _, name = path.rpartition(".")
        around = modules.get(parent)
        if path in modules:
            found[path] = modules[path]
        elif isinstance(around, RecurrentNeurons):
            found[path] = around
        elif isinstance(around, Kept):
            found[path] = around.module.get_submodule(name)
    return found


def _are_spikes(theirs: Tensor, ours: Tensor) -> bool:
    """Returns whether both have one shape and the original's are spikes or numbers of spikes, no potentials."""
    return theirs.shape == ours.shape and bool(((theirs >= 0) & (theirs == theirs.round())).all())


def _float_leaves(output: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _lacks_gradient(theirs: Tensor | None, ours: Tensor | None) -> str:
    """Returns the net without a gradient where the other's is not zero; empty for two that compare."""
    for one, other, name in ((theirs, ours, "original"), (ours, theirs, "converted net")):
        if one is None and other is not None and bool(other.any()):
            return name
    return ""


def _gradient_difference(theirs: Tensor | None, ours: Tensor | None) -> float:
    return 0.0 if theirs is None or ours is None else largest_difference(theirs, ours)
