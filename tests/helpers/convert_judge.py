"""A judge of `convert` that shares nothing with its own proof: equal, kept, refused or different.

Two nets are built from one plan. One is converted, the other answers as its library documents.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import convert_nets
import torch
from convert_nets import Plan
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

import snnlib

# Steps and samples of the inputs; the first are those that a net is converted with.
SIZES = ((6, 5), (6, 3), (4, 5), (9, 7))
# Buffers in which neurons keep states.
_STATES = ("mem", "syn", "syn_exc", "syn_inh", "spk", "v", "i")


class Outcome(NamedTuple):
    """Outcome of a conversion.

    Args:
        kind: equal, kept, refused or different; none where the original does not run.
        text: the reason of a refusal, or the difference.
    """

    kind: str
    text: str = ""


class _NoDraws(TorchFunctionMode):
    """Dropout keeps everything and drawn numbers are 1, so that the order of draws is of no matter."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name:
            given = dict(zip(("p", "training", "inplace"), args[1:], strict=False)) | kwargs
            p = given.get("p", 0.5) if given.get("training", given.get("train", True)) else 0.0
            return args[0].mul_(1 / (1 - p)) if given.get("inplace") else args[0] * (1 / (1 - p))
        if name == "scaled_dot_product_attention":
            return func(*args, **{**kwargs, "dropout_p": 0.0})
        result = func(*args, **kwargs)
        return result.fill_(1) if name.startswith(("rand", "bernoulli", "normal", "uniform_")) else result


def outcome(plan: Plan, kit: Any, sizes: Sequence[tuple[int, int]] = SIZES) -> Outcome:
    """Converts the net of a plan and compares; a difference that float64 does not have is rounding.

    Args:
        plan: the net.
        kit: what it is made of.
        sizes: steps and samples of the inputs; the first are those that the net is converted with.
    """
    found = _outcome(plan, kit, sizes)
    # snnTorch's spikes are float32.
    if found.kind == "different" and not plan.double and plan.library != "snntorch":
        with contextlib.suppress(RuntimeError, TypeError):
            again = _outcome(replace(plan, double=True), kit, sizes)
            if again.kind not in ("different", "none"):
                return Outcome(again.kind, f"in float64; {again.text}")
    return found


def _outcome(plan: Plan, kit: Any, sizes: Sequence[tuple[int, int]]) -> Outcome:
    with plan.around(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = convert_nets.inputs(plan, *sizes[0])
        # The library has to build and to run it, or there is nothing to judge.
        try:
            reference, net = convert_nets.build(plan, kit), convert_nets.build(plan, kit)
            expected = answers(lambda given: convert_nets.run(plan, kit, reference, given), reference, x)
        except Exception as error:
            return Outcome("none", f"{type(error).__name__}: {error}")
        assert any(bool(leaf.any()) for leaf in expected.values() if leaf is not None)
        before, random = _contents(net), torch.get_rng_state()
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                made = snnlib.convert(net, x.clone())
        except ValueError as reason:
            made, refusal = None, f"{reason}"
        except Exception as error:
            return Outcome("different", f"convert raises {type(error).__name__}: {error}")
        changed = _changed(before, _contents(net)) or (
            "" if torch.equal(random, torch.get_rng_state()) else "the random state"
        )
        if changed:
            return Outcome("different", f"the original is changed: {changed}")
        if made is None:
            named = refusal.startswith("net: ") and len(refusal) > 20
            return Outcome("refused", refusal) if named else Outcome("different", f"refused with {refusal!r}")
        # Running statistics begin alike.
        reference = convert_nets.build(plan, kit)
        text = _difference(plan, kit, reference, net, made, sizes)
        kept = [line.strip() for line in printed.getvalue().splitlines() if "left as it is" in line]
        return Outcome("different", text) if text else Outcome("kept" if kept else "equal", "; ".join(kept))


def _difference(
    plan: Plan, kit: Any, reference: nn.Module, net: nn.Module, made: Any, sizes: Sequence[tuple[int, int]]
) -> str:
    """The first difference between both nets in both modes, on x, other values, numbers of samples and steps."""
    theirs, ours = dict(reference.named_modules()), dict(made.named_modules())
    for path, module in ours.items():
        if path in theirs and module.training != theirs[path].training:
            return f"{path or 'the net'} is in training mode: {module.training}"
    for switched in (False, True):
        if switched:
            mode = not reference.training
            reference.train(mode), net.train(mode), made.train(mode)
        for number, size in enumerate(sizes):
            x = convert_nets.inputs(plan, *size, seed=1 + number)
            try:
                expected = answers(lambda given: convert_nets.run(plan, kit, reference, given), reference, x)
            except Exception:
                if not number:
                    raise
                # Statistics of a call that the original does not take may have moved.
                for theirs_buffer, buffer in zip(reference.buffers(), net.buffers(), strict=True):
                    if theirs_buffer.shape == buffer.shape:
                        theirs_buffer.copy_(buffer)
                continue
            text = _of_input(plan, expected, made, net, x, given=not number)
            if text:
                return f"{'switched ' * switched}T, N = {size}: {text}"
    return ""


def _of_input(
    plan: Plan, expected: dict[str, Tensor | None], made: nn.Module, net: nn.Module, x: Tensor, given: bool
) -> str:
    """The first difference on one input; a size that is refused by name is none, but for the sizes given."""
    try:
        # A chain of Norse over sequences may return its states, too.
        first = plan.library == "norse" and plan.form == "chain m"
        run: Any = (lambda given: out[0] if isinstance(out := made(given), tuple) else out) if first else made
        found = answers(run, net, x)
    except Exception as error:
        named = isinstance(error, ValueError) and "x: expected size" in str(error)
        return "" if named and not given else f"the result raises {type(error).__name__}: {error}"
    grads = [leaf for name, leaf in expected.items() if leaf is not None and name.startswith("gradient")]
    # A gradient that is zero but for rounding, as of a bias before a normalisation.
    least = 1e-6 * max((float(grad.abs().nan_to_num().max()) for grad in grads), default=0.0)
    # Products of 16 bits are rounded to 8.
    rough = any("autocast" in name for name in plan.names)
    for name, value in expected.items():
        text = _apart(name, value, found.get(name), least * name.startswith("grad"), rough)
        if text:
            return f"{name}: {text}"
    return "" if len(expected) == len(found) else f"{len(found)} answers for {len(expected)}"


def answers(run: Callable[[Tensor], Any], net: nn.Module, x: Tensor) -> dict[str, Tensor | None]:
    """Outputs, gradients of the input and of parameters, and buffers after the call."""
    names, parameters = zip(*((n, p) for n, p in net.named_parameters() if p.requires_grad), strict=True)
    given = x.clone()
    wanted = [*parameters]
    if given.is_floating_point():
        wanted.append(given.requires_grad_())
    with _NoDraws():
        # A net that writes into its input gets no leaf.
        output = run(given * 1 if given.is_floating_point() else given)
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    answers: dict[str, Tensor | None] = {f"output {number}": leaf for number, leaf in enumerate(leaves)}
    generator = torch.Generator().manual_seed(2)
    terms = [
        (leaf * torch.randn(leaf.shape, generator=generator).to(leaf)).sum()
        for leaf in leaves
        if leaf.requires_grad
    ]
    grads = torch.autograd.grad(sum(terms), wanted, allow_unused=True) if terms else [None] * len(wanted)
    answers |= {f"gradient of {n}": g for n, g in zip((*names, "x"), grads, strict=False)}
    for name, buffer in net.named_buffers():
        if name.rpartition(".")[2] not in _STATES:
            answers[f"{name} afterwards"] = buffer.detach().clone()
    return answers


def _apart(name: str, expected: Tensor | None, found: Tensor | None, least: float, rough: bool) -> str:
    if expected is None or found is None:
        other = found if expected is None else expected
        return "" if other is None or not bool(other.any()) else "one of both is missing"
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return f"{tuple(found.shape)} {found.dtype} for {tuple(expected.shape)} {expected.dtype}"
    if not expected.numel():
        return ""
    a, b = expected.detach().double(), found.detach().double()
    share = 0.02 if rough else 1e-3 if name.startswith("gradient") else 1e-5
    wrong = ~((a - b).abs() <= share * a.abs().max() + least) & ~(a.isnan() & b.isnan())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} differ, by up to {float((a - b).abs().max()):.2g}"
        if wrong.any()
        else ""
    )


def _contents(net: nn.Module) -> dict[str, Any]:
    """All that a conversion must leave as it is."""
    found: dict[str, Any] = {}
    for path, module in net.named_modules():
        found[f"{path} mode"] = module.training
        found[f"{path} class"] = type(module)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found[f"{path} {name}"] = [*getattr(module, name).values()]
        for name, value in {**module.__dict__, **module._buffers, **module._parameters}.items():
            if isinstance(value, Tensor):
                found[f"{path} {name}"] = value.detach().clone()
                found[f"{path} {name} asks"] = value.requires_grad
            elif isinstance(value, int | float | str | bool):
                found[f"{path} {name}"] = value
    return found


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    for name in before | after:
        a, b = before.get(name), after.get(name)
        same = (
            a.shape == b.shape and bool(torch.equal(a, b))
            if isinstance(a, Tensor) and isinstance(b, Tensor)
            else a == b
        )
        if not same:
            return name
    return ""
