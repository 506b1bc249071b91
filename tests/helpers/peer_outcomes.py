"""Nets with one class of another library, and what `convert` makes of them: exact, kept or refused.

Weights and inputs are multiples of 1/64, whose sums are exact in float32, so that no rounding decides about a spike.
"""

from __future__ import annotations

import copy
import importlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from peer_classes import BASE, RECIPES, STEPS, Recipe, if_node
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import snnlib

FORMS = ("chain", "class", "loop")
_CONVS: dict[int, Any] = {1: nn.Linear, 2: nn.Conv1d, 3: nn.Conv2d, 4: nn.Conv3d}


def _front(library: str, shape: tuple[int, ...], mode: str) -> nn.Module:
    """A layer with weights in front of the class."""
    kernel = () if len(shape) == 1 else (1,)
    if library in ("neuron", "layer"):
        layer = importlib.import_module(f"{BASE}.layer")
        name = _CONVS[len(shape)].__name__
        return getattr(layer, name)(shape[0], shape[0], *kernel, step_mode=mode)  # type: ignore[no-any-return]
    return _CONVS[len(shape)](shape[0], shape[0], *kernel)  # type: ignore[no-any-return]


def takes_sequences(library: str, kind: type, mode: str) -> bool:
    """Returns whether a net of a class takes whole sequences."""
    if library == "norse":
        return any(base.__name__ in ("SNN", "SNNRecurrent") for base in kind.__mro__)
    if library == "snntorch":
        return kind.__name__ in ("StateLeaky", "LinearLeaky", "AssociativeLeaky", "LeakyParallel")
    return mode == "m"


class _Class(nn.Module):
    """The class within a `forward`: of one step, or of a sequence in step mode "m"."""

    def __init__(self, front: nn.Module, node: nn.Module, end: nn.Module | None) -> None:
        super().__init__()
        self.front, self.node, self.end = front, node, end

    def forward(self, x: Tensor, *state: Any) -> Any:
        out = self.node(self.front(x) * 2.0, *state)
        return out if self.end is None else self.end(out)


class _Inside(_Class):
    """A loop over time within `forward`; with `states` it hands them from step to step."""

    def __init__(self, front: nn.Module, node: nn.Module, end: nn.Module | None, states: bool) -> None:
        super().__init__(front, node, end)
        self.states = states

    def forward(self, x: Tensor, *_: Any) -> Any:
        state: tuple[Any, ...] = ((None, None),) if self.states and hasattr(self.node, "mem_prev") else ()
        out = []
        for step in x:
            spikes = super().forward(step, *state)
            if self.states:
                spikes, state = spikes[0], spikes[not hasattr(self.node, "recurrent") :]
            out.append(spikes)
        return torch.stack(out)


class _Sums(_Class):
    """A net over sequences with a loop over its outputs."""

    def forward(self, x: Tensor, *state: Any) -> Any:
        out, total = super().forward(x, *state), 0.0
        out = out[0] if isinstance(out, tuple) else out
        for step in out:
            total = total + step
        return total


def build(library: str, kind: type, mode: str, form: str) -> nn.Module:
    """A net with a module of the class in it; raises where the library itself refuses the step mode."""
    torch.manual_seed(0)
    recipe = RECIPES[library][kind.__name__]
    node = recipe.make(kind, mode)
    modes = getattr(node, "supported_step_mode", tuple)()
    if mode and modes and mode not in modes:
        raise ValueError(f"step mode {mode!r}")
    front = _front(library, recipe.shape, mode)
    whole = takes_sequences(library, kind, mode)
    end = if_node(mode) if library == "layer" else None
    hidden = library != "norse"
    if library == "snntorch" and hasattr(node, "init_hidden") and not whole:
        hidden = node.init_hidden = form != "loop"
    if form == "chain":
        parts = [part for part in (front, node, end) if part is not None]
        if library == "norse":
            net: nn.Module = importlib.import_module("norse.torch").SequentialState(*parts)
        else:
            net = nn.Sequential(*parts)
    elif form == "class":
        net = _Class(front, node, end)
    else:
        net = _Sums(front, node, end) if whole else _Inside(front, node, end, states=not hidden)
    with torch.no_grad():
        for parameter in front.parameters():
            parameter.copy_(torch.randint(-16, 80, parameter.shape) / 64)
    return net


def run(net: nn.Module, library: str, x: Tensor, form: str, whole: bool) -> Any:
    """Answers of a net as its library documents: from rest, over the whole sequence."""
    for module in net.modules():
        if library in ("neuron", "layer") and hasattr(module, "reset"):
            module.reset()  # type: ignore[operator]
        elif library == "snntorch" and hasattr(module, "reset_mem"):
            for name in ("mem", "syn", "syn_exc", "syn_inh", "spk"):
                if isinstance(getattr(module, name, None), Tensor):
                    setattr(module, name, torch.zeros(0))
            if type(module).__name__ == "DeltaLeaky":
                module.reset_mem()  # type: ignore[operator]
    if whole or form == "loop":
        out = net(x)
        out = out[0] if library == "norse" and form == "chain" else out
        # Potentials of a neuron that does not fire.
        return torch.stack(out) if form == "chain" and isinstance(out, list) else out
    outputs, state = [], None
    for step in x:
        out = net(step) if state is None else net(step, state)
        if library == "norse":
            _, state = out
            out = out[0]
        outputs.append(out)
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), outputs[0], *outputs[1:])


def _answers(run_net: Callable[[Tensor], Any], parameters: list[Tensor], x: Tensor) -> list[Tensor]:
    """Outputs, and gradients of input and parameters."""
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    # A module that writes into its input cannot have a leaf.
    leaves = [leaf for leaf in pytree.tree_leaves(run_net(x * 1.0)) if isinstance(leaf, Tensor)]
    generator = torch.Generator().manual_seed(2)
    terms = [
        (leaf * torch.randn(leaf.shape, generator=generator)).sum() for leaf in leaves if leaf.requires_grad
    ]
    wanted = [x, *parameters]
    if not terms:
        return [*leaves, *(torch.zeros_like(leaf) for leaf in wanted)]
    grads = torch.autograd.grad(torch.stack(terms).sum(), wanted, allow_unused=True)
    return [*leaves, *(torch.zeros_like(p) if g is None else g for p, g in zip(wanted, grads, strict=True))]


def _learned(net: nn.Module) -> list[Tensor]:
    return [parameter for parameter in net.parameters() if parameter.requires_grad]


def contents(net: nn.Module) -> dict[str, Any]:
    """Contents of a net's modules, copied: states, hooks and modes; statistics apart."""
    held: dict[str, Any] = {}
    for path, module in net.named_modules():
        for name, value in {**module.__dict__, **module.__dict__.get("_memories", {})}.items():
            if name not in ("_parameters", "_buffers", "_modules", "_memories"):
                held[f"{path}.{name}"] = (
                    copy.copy(value) if isinstance(value, Tensor | list | dict) else value
                )
        for name, value in module._buffers.items():
            if not isinstance(module, nn.modules.batchnorm._BatchNorm):
                held[f"{path}.{name}"] = None if value is None else value.clone()
    return held


def _equal(a: Any, b: Any) -> bool:
    leaves = pytree.tree_leaves(a), pytree.tree_leaves(b)
    return len(leaves[0]) == len(leaves[1]) and all(
        torch.equal(one, other) if isinstance(one, Tensor) else one is other or bool(one == other)
        for one, other in zip(*leaves, strict=True)
    )


def assert_same_answers(
    net: nn.Module, twin: nn.Module, made: nn.Module, run_twin: Callable[[Tensor], Any], recipe: Recipe
) -> None:
    """Assert that a converted net answers as a twin of the original and shares the original's parameters.

    In training and in evaluation mode, with two sizes of a batch and twice in a row.

    Args:
        net: the original.
        twin: a net like it.
        made: the converted net.
        run_twin: answers of the twin, from rest.
        recipe: for the shape of the input.
    """
    names = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
    shared = {id(parameter) for parameter in made.parameters()}
    for name, parameter in net.named_parameters():
        assert id(parameter) in shared, f"{name} is no parameter of the converted net"
    for training, samples, call in itertools.product((True, False), (3, 2), (1, 2)):
        batch = torch.randint(-16, 64, (STEPS, samples, *recipe.shape)) / 64
        twin.train(training)
        expected = _answers(run_twin, _learned(twin), batch)
        found = _answers(made.train(training), _learned(net), batch)
        if training and recipe.random:
            continue
        assert len(found) == len(expected), f"{len(found)} outputs and gradients for {len(expected)}"
        labels = [f"output {n}" for n in range(len(expected) - len(names) - 1)] + ["x", *names]
        # Rounding of float32 sums, of which gradients have the longest.
        close = 1e-4 * max(1e-3, *(float(a.detach().abs().nan_to_num().max()) for a in expected))
        for label, a, b in zip(labels, expected, found, strict=True):
            assert a.shape == b.shape, f"{label}: {tuple(b.shape)} for {tuple(a.shape)}"
            where = f"{label} ({training=}, {samples=}, {call=})"
            torch.testing.assert_close(
                b, a, rtol=0, atol=close, equal_nan=True, msg=lambda m, w=where: f"{w}: {m}"
            )
    mine = dict(net.named_buffers())
    for name, buffer in twin.named_buffers():
        if name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked"):
            torch.testing.assert_close(mine[name], buffer, msg=f"statistics {name}")


def judge(library: str, kind: type, mode: str, form: str) -> tuple[str, str]:
    """Returns exact, kept, refused or not offered, with the reason.

    Raises:
        AssertionError: the converted net differs from the original, or changes it.
    """
    recipe = RECIPES[library][kind.__name__]
    if recipe.abstract:
        return "-", recipe.abstract
    try:
        net = build(library, kind, mode, form)
    except (ValueError, TypeError, AssertionError, AttributeError) as reason:
        return "-", f"not offered: {reason}"
    whole = takes_sequences(library, kind, mode)
    twin = build(library, kind, mode, form)
    twin.load_state_dict(net.state_dict())
    for module, other in zip(net.modules(), twin.modules(), strict=True):
        # Noise that NumPy has drawn without a seed.
        vars(other).update({name: value for name, value in vars(module).items() if name.startswith("eps_")})
    torch.manual_seed(3)
    x = torch.randint(-16, 64, (STEPS, 3, *recipe.shape)) / 64
    try:
        run(copy.deepcopy(net), library, x, form, whole)
    except Exception as reason:  # The library's own refusal.
        return "-", f"does not run: {type(reason).__name__}: {reason}"
    before = contents(net)
    try:
        made = snnlib.convert(net, x, quiet=True)
    except ValueError as reason:
        text = str(reason)
        assert "node" in text or kind.__name__ in text or any(f" {n}" in text for n in ("1", "2")), text
        assert_unchanged(before, net)
        return "refused", text
    assert_unchanged(before, net)
    assert_same_answers(net, twin, made, partial(run, twin, library, form=form, whole=whole), recipe)
    assert_unchanged(before, net.train())
    try:
        snnlib.convert(net, x, quiet=True, unsupported="raise")
    except ValueError as reason:
        return "kept", str(reason)
    return "exact", ""


def assert_unchanged(before: dict[str, Any], net: nn.Module) -> None:
    """Assert that the contents of a net are what they were, modes apart."""
    after = contents(net)
    changed = [
        name for name in before.keys() | after.keys()
        if not name.endswith(".training") and not _equal(before.get(name), after.get(name))
    ]  # fmt: skip
    assert not changed, f"the original was changed: {changed}"


def outcomes(library: str, kind: type) -> dict[str, str]:
    """Outcome of each step mode and form of a class: exact, kept, refused, or nothing where it is not offered."""
    modes = ("s", "m") if library in ("neuron", "layer") else ("",)
    found = {
        f"{mode} {form}".strip(): judge(library, kind, mode, form)[0] for mode in modes for form in FORMS
    }
    if modes == ("",):
        found["takes"] = "sequences" if takes_sequences(library, kind, "") else "steps"
    return found
