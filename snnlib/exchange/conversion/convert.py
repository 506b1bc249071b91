"""`snnlib.convert`: converts a net of snnTorch, SpikingJelly or Norse."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from snnlib.checks import check_choice
from snnlib.exchange.conversion import chains
from snnlib.exchange.conversion.find_loop import fold
from snnlib.exchange.conversion.in_place import replace_leaves, takes_sequences
from snnlib.exchange.conversion.loop import (
    AtStep,
    CannotFold,
    Loop,
    Previous,
    RunningSum,
    Slice,
    StackOverTime,
    StepValue,
)
from snnlib.exchange.conversion.loop_net import FoldedNet
from snnlib.exchange.conversion.modules import Notes, neuron_leaf, outputs_of
from snnlib.exchange.conversion.own_neurons import (
    ERRORS,
    Counterparts,
    advice,
    fit,
    is_own,
    mark,
    own_classes,
)
from snnlib.exchange.conversion.proof import Proof, run_original
from snnlib.exchange.conversion.sequence_modules import Kept
from snnlib.exchange.conversion.trace import Call, NetTrace, Ref, trace_in_both_modes
from snnlib.exchange.structure.hooks import acting_hooks
from snnlib.exchange.structure.unsupported import Unsupported
from snnlib.structure.peers import attributes_kept, clear_states, holds_states, library_of, neuron_library

__all__ = ["convert"]

LoopPlace = Literal["auto", "inside", "outside"]
OnUnsupported = Literal["leave", "raise"]
_OTHER_START = "its state starts elsewhere than at rest, or the net changes it between calls"


def convert(
    net: nn.Module,
    x: Tensor,
    *,
    loop: LoopPlace = "auto",
    unsupported: OnUnsupported = "leave",
    neurons: Counterparts | None = None,
    verify: bool = True,
    quiet: bool = False,
) -> nn.Module:
    """Converts a net of snnTorch, SpikingJelly or Norse to a net on snnlib's kernels, over whole sequences.

    Every supported neuron becomes snnlib's neuron in that dialect, with the same spikes and gradients. The parameters
    are shared with the original, so training one net trains the other. Torch modules process all time steps at once
    (`PerStep`). A net that loops over time in its `forward` is traced once; then each call of a step is made once,
    over the sequence. Libraries are recognised by class names, not imported.

    `snnlib.fuse_(converted, x)` makes sparse and wide layers faster, and leaves those alone that would lose on a batch
    like `x`; layers then are event-driven, and sum in another order than torch. Nets of a few neurons and inputs
    without zeros gain nothing.

    Before it returns, `convert` compares the result with the original, module by module and in both modes, on four
    samples of `x` and on other numbers of steps and samples. A module that differs is kept as it is, anything else
    that differs is refused. The original is afterwards what it was.

    Call the result with inputs like `x`. A net that loops over time itself returns the same as the original. A net
    with its loop outside, as `for step in x: net(step)`, returns the outputs of all steps `[T, N, ...]`.

    Args:
        net: the net, trained or not.
        x: an input for the trace: the sequence `[T, N, ...]`, or the input of a net that loops over time itself.
        loop: `"inside"` if `net(x)` runs over all time steps, `"outside"` if the net takes one step `x[t]`; `"auto"`
            tests whether `net(x[0])` calls each neuron once.
        unsupported: `"leave"` runs a module without counterpart unchanged, step by step; `"raise"` raises an error.
        neurons: what stands for neurons of your own classes, `{TheirLIF: snnlib.neurons.LIF(tau=2.0)}`: by class a
            neuron, copied for each module, or a function that makes one of the module. A call of the class takes the
            current of a step, with states or without, or a sequence `[T, N, ...]` or `[N, T, ...]`.
        verify: whether to compare the result with the original; False takes no time, and what differs goes unnoticed.
        quiet: whether to suppress the printed list of conversions.

    Raises:
        ValueError: a net without neurons of these libraries; steps that differ from each other (the message names the
            first); a result that differs from the original (the message names the first module and the numbers); with
            `unsupported="raise"` a module without counterpart (the message names its path).

    >>> import torch, snnlib
    >>> net = snnlib.convert(snntorch_net, torch.rand(25, 8, 784))    # doctest: +SKIP
    fc1   Linear -> PerStep(Linear)
    lif1  Leaky -> LIF with v
    """
    check_choice("loop", loop, *get_args(LoopPlace))
    check_choice("unsupported", unsupported, *get_args(OnUnsupported))
    try:
        with attributes_kept(net):
            mark(net, x, neurons or {})
            if not library_of(net):
                raise Unsupported(
                    "expected a module with neurons of snnTorch, SpikingJelly or Norse, got "
                    f"{type(net).__name__} without{advice(*own_classes(net))}"
                )
            made, notes = _proved(net, x, loop, verify)
    except Unsupported as reason:
        held = _held_output(net, x)
        unused = (
            f"a loop over time was found, and its results are not used: the net returns {held}; return what "
        )
        raise ValueError(f"net: {unused + 'its modules give' if held else reason}") from reason
    if unsupported == "raise" and notes.left:
        path, reason_left = next(iter(notes.left.items()))
        raise ValueError(f"net: expected modules with a counterpart, got {path or 'itself'}: {reason_left}")
    if not quiet:
        print(notes.shown())
    return made


def _proved(net: nn.Module, x: Tensor, loop: LoopPlace, verify: bool) -> tuple[nn.Module, Notes]:
    """Converts until no module that could be kept differs from the original.

    Raises:
        Unsupported: a difference remains.
    """
    # Taken from the net before it runs.
    stepwise = not takes_sequences(net) and _takes_steps(net, x, loop)
    fit(net, partial(run_original, net, x, stepwise))
    hooked = acting_hooks(net, partial(_run_at_rest, net, x[:3] if stepwise else x, stepwise))
    keep = dict(hooked)
    while True:
        notes = Notes(keep=dict(keep))
        made = _converted(net, x, stepwise, hooked, notes)
        _take_modes(net, made)
        if not verify:
            notes.whole.append("verify=False: not compared with the original")
            return made, notes
        found = Proof(net, made, (*notes.done, *notes.left), stepwise).difference(x)
        if found is None:
            sizes = made.sizes if isinstance(made, FoldedNet) else {}
            notes.whole += [
                f"takes {n} in dimension {dim} alone, with which it computes" for dim, n in sizes.items()
            ]
            return made, notes
        if (
            found.path is None
            or found.path in keep
            or found.path not in notes.done
            or is_own(net, found.path)
        ):
            kept = f", also as it is: {_OTHER_START}" * (found.path in keep)
            raise Unsupported(
                f"expected a conversion that computes what the net does, got another: {found.text}{kept}; "
                "verify=False leaves the comparison out"
            )
        keep[found.path] = found.text


def _held_output(net: nn.Module, x: Tensor) -> str:
    """Returns the attribute of a neuron that is the output of a net, such as its state; empty for another output."""
    with torch.no_grad(), attributes_kept(net), suppress(*ERRORS):
        clear_states(net)
        output = net(x)
        for path, module in net.named_modules():
            for name, value in {**vars(module), **getattr(module, "_memories", {})}.items():
                if value is output:
                    return f"{path}.{name}"
    return ""


def _run_at_rest(net: nn.Module, x: Tensor, stepwise: bool) -> None:
    clear_states(net)
    with torch.no_grad():
        run_original(net, x, stepwise)


def _take_modes(net: nn.Module, made: nn.Module) -> None:
    """Give each new module the mode of the one that it stands for; a layer that both share keeps its own."""
    originals = dict(net.named_modules(remove_duplicate=False))
    theirs = {*originals.values()}
    for path, module in made.named_modules():
        if module not in theirs:
            found = path
            while found not in originals:
                found = found.rpartition(".")[0]
            module.training = originals[found].training


def _takes_steps(net: nn.Module, x: Tensor, loop: LoopPlace) -> bool:
    """Returns whether a net takes one step in a call."""
    chain = chains.is_chain_of_leaves(net) and loop != "inside"
    if chain or loop == "outside" or neuron_library(net) is not None:
        return True
    return loop == "auto" and takes_one_step(net, x)


def _converted(net: nn.Module, x: Tensor, outside: bool, hooked: dict[str, str], notes: Notes) -> nn.Module:
    if takes_sequences(net):
        made = replace_leaves(net, x, notes)
        last = [*made.children()][-1:] if chains.is_chain(net) else [made]
        for module in last:
            if isinstance(module, Kept):
                # Potentials of neurons that do not fire.
                module.stacked = True
        return made
    if neuron_library(net) is not None:
        return neuron_leaf("", net, notes, read=len(outputs_of(net)) - 1)
    # Neurons, torch modules and layers of the libraries are called as a whole.
    outer = chains.modules_until(net, chains.is_leaf)
    leaves = {path: module for path, module in outer if chains.is_leaf(module)}
    if chains.is_chain_of_leaves(net) and outside and not hooked.keys() - leaves.keys():
        return chains.replace_chain(net, notes)
    with attributes_kept(net):
        net.eval()
        clear_states(net)
        # More steps than one, so that what a net keeps from step to step is seen.
        run = partial(run_original, net, stepwise=outside)
        written = trace_in_both_modes(net, leaves, run, x[:3] if outside else x)
    stateful = {path for path, module in leaves.items() if holds_states(module)}
    try:
        folded = fold(written, stateful)
        _check_states(folded, stateful)
        if outside:
            _check_outputs(folded)
    except CannotFold as reason:
        calls = _calls_of_neurons(net, x[0, :1])
        several = [f"{path} is called at {count} places" for path, count in calls.items() if count > 1]
        why = str(reason)
        if several:
            why = f"{several[0]} of a step; give each place a neuron of its own ({reason})"
        elif reason.own_state:
            why += advice(*own_classes(net))
        raise Unsupported(f"expected steps that are alike, got others: {why}") from reason
    return _assembled(net, leaves, folded, written, notes, outside)


def takes_one_step(net: nn.Module, x: Tensor) -> bool:
    """Returns whether `net(x[0])` runs and calls every neuron that it calls once."""
    if set(_calls_of_neurons(net, x[0]).values()) != {1}:
        return False
    # A loop takes one sample for a sequence of one step.
    return x.shape[1] != 1 or len(x) == 1 or set(_calls_of_neurons(net, x).values()) != {len(x)}


def _calls_of_neurons(net: nn.Module, x: Tensor) -> Counter[str]:
    """Returns how often a run calls each neuron, by path; empty where the net does not take the input."""
    calls = Counter[str]()
    with ExitStack() as stack:
        for path, module in net.named_modules():
            if neuron_library(module) is not None:
                count = partial(lambda path, *_: calls.update([path]), path)
                stack.callback(module.register_forward_hook(count).remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(attributes_kept(net))
        clear_states(net)
        try:
            net(x)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            # It takes no single step; if it takes no sequence either, the trace says why.
            calls.clear()
    return calls


def _check_states(loop: Loop, neurons: set[str]) -> None:
    """Raise where a neuron's state comes from anywhere but its own last step."""
    for number, call in enumerate(loop.step):
        if call.target not in neurons:
            if any(isinstance(leaf, Previous) for leaf in call.args):
                raise CannotFold(
                    f"{call.place} reads the step before, which only neurons and running sums may"
                )
            continue
        if any(isinstance(leaf, Previous) and leaf.of.call != number for leaf in call.args):
            raise CannotFold(f"{call.name} gets the state of another neuron")
        if sum(isinstance(leaf, Slice | StepValue) for leaf in call.args) > 1:
            raise CannotFold(f"{call.name} gets a state of the same step")


def _check_outputs(loop: Loop) -> None:
    """Raise where a net of one step gives anything but values of this step."""
    for leaf in (leaf for call in loop.after for leaf in call.args):
        if isinstance(leaf, AtStep):
            raise CannotFold(f"{loop.step[leaf.of.call].name} gives what it was in the step before")
    if loop.after or not all(isinstance(leaf, StackOverTime) for leaf in loop.output):
        raise CannotFold("an output does not depend on the step")


def _assembled(
    net: nn.Module,
    leaves: dict[str, nn.Module],
    loop: Loop,
    written: NetTrace,
    notes: Notes,
    outside: bool,
) -> FoldedNet:
    used = _outputs_used(loop)
    outer = {call.target for call in (*loop.before, *loop.after) if isinstance(call.target, str)}
    plain = {path: leaves[path] for path in outer}
    modules: dict[str, nn.Module] = {}
    for number, call in enumerate(loop.step):
        if not isinstance(call.target, str) or call.target in modules:
            continue
        module = leaves[call.target]
        if neuron_library(module) is None:
            if sum(isinstance(leaf, Ref | Slice | StepValue) for leaf in call.args) == len(call.args) == 1:
                modules[call.target] = chains.leaf(call.target, module, notes, stepwise=True)
            else:
                notes.done[call.target] = (
                    f"{type(module).__name__}, called step by step with all its arguments"
                )
                plain[call.target] = module
            continue
        modules[call.target] = neuron_leaf(call.target, module, notes, max(used.get(number, {0})))
    both = outer & modules.keys()
    if both:
        raise Unsupported(f"{min(both)} is called both within the steps and outside of them")
    batch = loop.batch(written.shapes.__getitem__, written.inputs[0])
    made = FoldedNet(modules, plain, loop, written, batch, outside)
    _register_parameters(made, net, loop)
    return made


def _outputs_used(loop: Loop) -> dict[int, set[int]]:
    """Outputs of each call of a step that something but its own next call reads."""
    used: dict[int, set[int]] = {}
    outer = [leaf for call in loop.after for leaf in call.args]
    inner = [leaf for call in loop.step for leaf in call.args]
    for leaf in (*outer, *loop.output, *inner):
        value = leaf.of if isinstance(leaf, AtStep | StackOverTime | RunningSum) else leaf
        if isinstance(value, StepValue):
            used.setdefault(value.call, set()).add(value.out)
    return used


def _register_parameters(made: FoldedNet, net: nn.Module, loop: Loop) -> None:
    """Parameters that functions use, under the names that they have in the net."""
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    present = {id(parameter) for parameter in made.parameters()}
    calls: list[Call] = [*loop.before, *loop.step, *loop.after]
    for leaf in (leaf for call in calls for leaf in call.args):
        if isinstance(leaf, nn.Parameter) and id(leaf) in names and id(leaf) not in present:
            made.register_parameter(names[id(leaf)].replace(".", "_"), leaf)
            present.add(id(leaf))
