"""Proof of a conversion: original and result run on the same inputs, and each module is compared in its place.

Spiking nets are chaotic: a last bit moves spikes later on. In the result's run each module therefore gets the values
that its counterpart got in the original, and hands on those that it gave, so that modules, and functions between them,
are compared one by one. Gradients flow through the result's own computation.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from snnlib.exchange.compare import gradients_of
from snnlib.exchange.conversion.loop_net import FoldedNet, WrongSize
from snnlib.exchange.conversion.own_neurons import ERRORS
from snnlib.exchange.conversion.tied import is_per_neuron
from snnlib.exchange.sequences import over_steps_from
from snnlib.structure.peers import OWN, attributes_kept, clear_states, holds_states, neuron_library

# Samples of x that the nets run on.
_SAMPLES = 4
# Largest difference of potentials and of gradients, as a share of the largest element.
_POTENTIALS, _GRADIENTS = 1e-5, 1e-4
# The latter where numbers of 16 bits are in use, whose products are rounded to 8 bits.
_ROUGH, _HALVES = 2e-2, {torch.bfloat16, torch.float16}
# Gradients that cancel out, as of a bias before batch norm, are rounding: their share of the largest of all gradients.
_CANCELLED = 1e-6
# Names of functions that draw numbers begin with these.
_DRAWS = ("rand", "uniform_", "normal", "bernoulli", "poisson", "exponential_")
# Sees what a module gets (a call's arguments) and gives, and may give something else in its place.
_See = Callable[[str, str, Any], Any]


class Difference(NamedTuple):
    """The first difference of a result from its original.

    Args:
        path: the module that differs; None where the difference lies elsewhere.
        text: the difference, with its size.
    """

    path: str | None
    text: str


class _NotTaken(Exception):  # noqa: N818 - an answer
    """Raised where the original does not take an input."""


def run_original(net: nn.Module, x: Tensor, stepwise: bool) -> Any:
    """Output of a net of another library; of one that takes single steps, those of all of them."""
    if not stepwise:
        return net(x)
    norse = any(neuron_library(module) == "norse" for module in net.modules())

    def step(now: Tensor, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        out = net(now, *state)
        return (out[0], out[1:]) if norse and isinstance(out, tuple) else (out, state)

    return over_steps_from(step, x, ())


class Proof:
    """Comparison of a net with what was made of it.

    Args:
        net: the original.
        made: the result.
        paths: paths of the modules that were replaced.
        stepwise: whether the original takes one step in a call.
        double: whether both are copies in float64.
    """

    def __init__(
        self, net: nn.Module, made: nn.Module, paths: Iterable[str], stepwise: bool, double: bool = False
    ) -> None:
        self.net, self.made, self.stepwise, self.paths, self.double = net, made, stepwise, [*paths], double
        theirs, ours = dict(net.named_modules(remove_duplicate=False)), dict(made.named_modules())
        both = (path for path in self.paths if path in theirs and path in ours)
        self.pairs = {path: (theirs[path], ours[path]) for path in both if theirs[path] is not ours[path]}

    def difference(self, x: Tensor) -> Difference | None:
        """Returns the first difference, or None.

        At most four samples of x run as the net is, with gradients; then half of x runs in the other mode, with fewer
        and with more steps and samples. Where these runs differ, or the original does not take them, x itself runs
        and each size alone. A folded net that differs there alone takes the sizes of x and no others.
        """
        made, found, taken = self.made, None, False
        dim = int(x.dim() > 2 and not (isinstance(made, FoldedNet) and x.shape[1] != made.batch))
        few = x.narrow(dim, 0, min(_SAMPLES, x.shape[dim]))
        for some, gradients in ((few, True), (x, True), (x, False)):
            with suppress(_NotTaken):
                if not taken:
                    found, few, taken = self._compared(some, gradients), some, True
        sized = set[int]()
        folded = isinstance(made, FoldedNet)
        if found and folded and few.shape != x.shape and self._compared(x, gradients=True) is None:
            found, few, sized = None, x, {dim}
        with attributes_kept(self.net), attributes_kept(made):
            other = not self.net.training
            self.net.train(other)
            made.train(other)
            if not taken or sized or (not found and self._differs_by_size(few)):
                try:
                    found = found or self._compared(_sized(few, 0, few.shape[0]))
                except _NotTaken as reason:
                    if not taken:
                        return Difference(None, f"the net itself does not run on x: {reason}")
                found = found or self._of_sizes(few, sized)
        if isinstance(made, FoldedNet):
            made.sizes = {number: x.shape[number] for number in sorted(sized)}
        return found

    def _differs_by_size(self, x: Tensor) -> bool:
        """Returns whether a run with fewer steps and samples, or with more, differs, or is not taken."""
        sizes = {tuple(max(1, size // 2) for size in x.shape[:2]), tuple(size + 1 for size in x.shape[:2])}
        try:
            return any(self._compared(_sized(_sized(x, 0, steps), 1, samples)) for steps, samples in sizes)
        except _NotTaken:
            return True

    def _of_sizes(self, x: Tensor, sized: set[int]) -> Difference | None:
        """Compares with other sizes of the first two dimensions; notes those of which a folded net needs that of x."""
        for dim, size in enumerate(x.shape[:2]):
            for other in {max(1, size // 2), size + 1} if dim not in sized else ():
                with suppress(_NotTaken):
                    found = self._compared(_sized(x, dim, other))
                    if found and not isinstance(self.made, FoldedNet):
                        return found
                    sized |= {dim} if found else set()
        return None

    def _compared(self, x: Tensor, gradients: bool = False) -> Difference | None:
        """Compares both nets on an input; differences that float64 does not have are rounding.

        Raises:
            _NotTaken: the original does not take the input.
        """
        dtypes = set[torch.dtype]()
        found = self._compared_once(x, gradients, dtypes)
        if found is None or x.dtype != torch.float32 or dtypes & _HALVES:
            return found
        with suppress(*ERRORS, _NotTaken), attributes_kept(self.net), warnings.catch_warnings():
            # Torch warns of copies of its own structures.
            warnings.simplefilter("ignore")
            clear_states(self.net)
            both = copy.deepcopy(nn.ModuleList([self.net, self.made]))
            for tensor in (*both.parameters(), *both.buffers()):
                # Shared ones stay shared, which `double` would change for buffers.
                tensor.data = tensor.data.double() if tensor.is_floating_point() else tensor.data
            net, made = both
            copies = Proof(net, made, self.paths, self.stepwise, double=True)
            found = copies._compared_once(x.double(), gradients, set()) and found
        return found

    def _compared_once(self, x: Tensor, gradients: bool, dtypes: set[torch.dtype]) -> Difference | None:
        calls: dict[tuple[nn.Module, str], list[list[Tensor]]] = defaultdict(list)
        done, found, running = Counter[tuple[nn.Module, str]](), list[Difference](), list[str]()

        def note(path: str, what: str, given: Any) -> None:
            theirs, leaves = self.pairs[path][0], pytree.tree_leaves(given)
            if what == "input" and OWN in vars(theirs):
                leaves = leaves[vars(theirs)[OWN].current :][:1]
            tensors = [leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor)]
            calls[theirs, what].append(tensors)
            dtypes.update(tensor.dtype for tensor in tensors)

        def force(path: str, what: str, given: Any) -> Any:
            theirs, ours = self.pairs[path]
            text, forced = _forced(calls[theirs, what], given, done[theirs, what])
            done[theirs, what] += 1
            if what == "output":
                running.pop()
            else:
                running.append(path)
                columns = neuron_library(theirs) in ("snntorch", "norse") and is_per_neuron(ours)
                axes = next(leaf.dim() for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)) - 1
                if columns and axes != 2:
                    # Its library broadcasts them over the last axis, the width of a frame.
                    why = f"constants that differ along the last of {axes} axes have no counterpart"
                    found.append(Difference(path, why))
            if text:
                where = None if what == "input" else path
                found.append(
                    Difference(where, f"{path} ({type(theirs).__name__}) has another {what}: {text}")
                )
            return forced

        originals = {theirs: path for path, (theirs, _) in self.pairs.items()}
        try:
            run = partial(run_original, self.net, stepwise=self.stepwise)
            expected = self._answers(run, originals, note, x, gradients)
        except ERRORS as reason:
            raise _NotTaken(f"{type(reason).__name__}: {reason}") from reason
        try:
            ours = {ours: path for path, (_, ours) in self.pairs.items()}
            answers = self._answers(self.made, ours, force, x, gradients)
        except WrongSize:
            # The result refuses the size by name, which is no difference.
            return None
        except ERRORS as reason:
            lacks = "; give it a batch dimension, x.unsqueeze(1)" if x.dim() == 2 else ""
            text = f"it does not run on x of shape {tuple(x.shape)}: {type(reason).__name__}: {reason}{lacks}"
            found.append(Difference(running[-1] if running and not lacks else None, text))
        half = bool(dtypes & _HALVES)
        return found[0] if found else _difference_of(expected, answers, _ROUGH if half else _GRADIENTS)

    def _answers(
        self,
        run: Callable[[Tensor], Any],
        modules: dict[nn.Module, str],
        see: _See,
        x: Tensor,
        gradients: bool,
    ) -> dict[str, Tensor | None]:
        """Outputs, gradients, buffers and probabilities of dropout of a run, whose modules' tensors `see` sees."""
        answers = dict[str, Tensor | None]()
        with attributes_kept(self.net), attributes_kept(self.made), ExitStack() as stack:
            clear_states(self.net)
            for module, path in modules.items():
                before, after = partial(see, path, "input"), partial(see, path, "output")
                hook: Any = lambda _, args, kwargs, before=before: before((args, kwargs))  # noqa: E731
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True, prepend=True).remove)
                hook = lambda _, inputs, output, after=after: after(output)  # noqa: E731
                stack.callback(module.register_forward_hook(hook).remove)
            torch.manual_seed(0)
            x = x.detach().clone()
            wanted: dict[str, Tensor] = {n: p for n, p in self.net.named_parameters() if p.requires_grad}
            if x.is_floating_point() and gradients:
                wanted["x"] = x.requires_grad_()
            with torch.set_grad_enabled(gradients), _NoChance(self.double):
                output = run(x.clone())
            while type(self.net).__name__ == "SequentialState" and isinstance(output, tuple):
                # A lifted neuron at the end gives its state beside that of the chain.
                output = output[0]
            if isinstance(output, list) and len({getattr(part, "shape", None) for part in output}) == 1:
                # Potentials of all steps, of which a chain makes one tensor.
                output = torch.stack(output)
            leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
            answers |= {f"output {number}": leaf for number, leaf in enumerate(leaves)}
            stateful = {path for path, module in self.net.named_modules() if holds_states(module)}
            for name, buffer in self.net.named_buffers():
                if name.rpartition(".")[0] not in stateful:
                    answers[f"{name} after a call"] = buffer.clone()
        if gradients:
            grads = gradients_of(leaves, [*wanted.values()])
            answers |= {f"gradient of {name}": grad for name, grad in zip(wanted, grads, strict=True)}
        return answers


class _NoChance(TorchFunctionMode):
    """Dropout keeps all that it gets, and random numbers are 1, so that the order of draws is of no matter.

    Args:
        double: whether spikes of snnTorch, which are float32, are to be float64.
    """

    def __init__(self, double: bool) -> None:
        super().__init__()
        self.double = double

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name:
            options = (
                {"p": 0.5, "training": True} | dict(zip(("p", "training"), args[1:], strict=False)) | kwargs
            )
            return args[0] * (1 / (1 - options["p"]) if options["training"] and options["p"] < 1 else 1)
        if "attention" in name:
            args = (*args[:10], *[0.0 for _ in args[10:11]], *args[11:])
            kwargs = kwargs | {option: 0.0 for option in kwargs if option == "dropout_p"}
        if name == "float" and self.double:
            func = Tensor.double
        result = func(*args, **kwargs)
        return result.fill_(1) if name.startswith(_DRAWS) and name != "randperm" else result


class _Forced(torch.autograd.Function):
    """A value in the place of a computed one, whose gradient flows on."""

    @staticmethod
    def forward(_ctx: Any, found: Tensor, expected: Tensor) -> Tensor:
        return expected.to(found.dtype, copy=True)

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def _sized(x: Tensor, dim: int, size: int) -> Tensor:
    """Returns other values of another size."""
    x = x.index_select(dim, torch.arange(size, device=x.device) % x.shape[dim])
    return 0.5 * x if x.is_floating_point() else x


def _forced(calls: list[list[Tensor]], found: Any, number: int) -> tuple[str, Any]:
    """Returns how tensors differ from those of the original's calls, and these in their place."""
    leaves, spec = pytree.tree_flatten(found)
    texts = list[str]()
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for position, place in enumerate(places):
        expected = _at(calls, position, leaves[place].shape, number)
        if expected is not None:
            texts.append(
                f"{leaves[place].dtype} for {expected.dtype}"
                if leaves[place].dtype != expected.dtype
                else _apart(expected, leaves[place], _POTENTIALS)
            )
            leaves[place] = cast(Any, _Forced).apply(leaves[place], expected)
    return next(filter(None, texts), ""), pytree.tree_unflatten(leaves, spec)


def _at(calls: list[list[Tensor]], position: int, shape: torch.Size, number: int) -> Tensor | None:
    """Returns what the original had where the result has a tensor: in one call, or in one call of each step."""
    if not shape or number >= len(calls) or any(len(call) <= position for call in calls):
        return None
    tensors = [call[position] for call in calls]
    if tensors[number].shape == shape:
        return tensors[number]
    # A call of each step, or one that gives potentials of all steps in a list.
    for steps in (tensors[number :: max(1, len(tensors) // max(1, shape[0]))], calls[number]):
        if len(steps) == shape[0] and all(step.shape == shape[1:] for step in steps):
            return torch.stack(steps)
    # Steps and samples in one dimension.
    return tensors[number].reshape(shape) if tensors[number].numel() == shape.numel() else None


def _apart(expected: Tensor, found: Tensor, close: float, least: float = 0.0) -> str:
    """Returns how two tensors of one shape differ; nothing where they are alike."""
    expected, found = (t.detach() if t.is_floating_point() else t.double() for t in (expected, found))
    if not expected.numel():
        return ""
    same = (expected == found) | (expected.isnan() & found.isnan())
    difference, largest = (expected - found).abs(), float(expected.abs().nan_to_num(0, 0, 0).max())
    allowed = max(close, 4 * torch.finfo(expected.dtype).eps) * largest + least
    wrong = ~same & ~(difference <= allowed)
    if not bool(wrong.any()):
        return ""
    most = float(difference[wrong].max())
    return f"{int(wrong.sum())} of {wrong.numel()} values differ, by up to {most:.2g} of {largest:.2g}"


def _difference_of(
    expected: dict[str, Tensor | None], found: dict[str, Tensor | None], close: float
) -> Difference | None:
    """The first difference of all that two runs give; zeros and no gradient are one."""
    grads = [grad for name, grad in expected.items() if grad is not None and name.startswith("gradient")]
    least = _CANCELLED * max((float(grad.abs().nan_to_num(0, 0, 0).max()) for grad in grads), default=0.0)
    for name in expected | found:
        a, b = expected.get(name), found.get(name)
        if a is None or b is None:
            some, where = (b, "the original") if a is None else (a, "the result")
            text = "" if some is None or not bool(some.any()) else f"missing in {where}"
        elif (a.shape, a.dtype) != (b.shape, b.dtype):
            text = f"{tuple(b.shape)}, {b.dtype} for {tuple(a.shape)}, {a.dtype}"
        elif name.startswith("gradient"):
            text = _apart(a, b, close, least)
        else:
            text = _apart(a, b, _POTENTIALS)
        if text:
            return Difference(None, f"{name}: {text}")
    return None
