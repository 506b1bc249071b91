"""The base of every neuron model: a module whose `step` defines one time step, run over whole sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast, dataclass_transform

import torch
from torch import Tensor, nn

from snnlib import ops
from snnlib.backends.arguments import NeuronKernel
from snnlib.backends.fixed_point import check_states
from snnlib.backends.native import state_dtype
from snnlib.backends.program_kernel import AnyKernel, ProgramKernel
from snnlib.checks import (
    NEURON_HINTS,
    check_flag,
    check_floating,
    check_no_state,
    check_sequence_rank,
    check_state_shape,
    check_untransformed,
    first_state,
    runs_alone,
)
from snnlib.neurons.constants import (
    TABLES,
    add_constants,
    broadcast,
    check_channels,
    fit_constants,
    keeping_dtypes,
    kept_tables,
    mean_threshold,
    widest,
)
from snnlib.neurons.dynamics import Dynamics
from snnlib.neurons.fields import Field, checked_values, constant, constant_fields, declare, fixed, option
from snnlib.neurons.module import checks_names, in_present_options, load_numbers, store_numbers
from snnlib.neurons.program import kernel_of_step
from snnlib.neurons.step_checks import advance, check_rest
from snnlib.neurons.trace_guards import PROGRAMS
from snnlib.neurons.training_watch import TrainingWatch
from snnlib.neurons.watched_membrane import potential_by_step
from snnlib.sequences.lengths import run_with_lengths
from snnlib.sequences.time_first import runs_time_first

# Constants of a neuron in shapes that broadcast with one step `[N, C, ...]`.
Params = Mapping[str, Tensor]
# A tensor `[N, C, ...]` per name in `state_names`.
State = tuple[Tensor, ...]


class Output(NamedTuple):
    """Result of a stateful call: the value (spikes, or potentials of a non-spiking neuron) and the last state.

    The state is a tuple of tensors; the SRM functions return one tensor `[3, N, ...]` with u, s and g.
    """

    value: Tensor
    state: Any

    @property
    def spikes(self) -> Tensor:
        """The value, under the name that results of the SRM functions had."""
        return self.value


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(constant, option, fixed))
@checks_names
class Neuron(nn.Module):
    """Base of neuron models: maps currents `[T, N, C, ...]` of whole sequences to spikes, without state between calls.

    A model is a subclass with `state_names` and `step` in plain torch; surrogate gradients enter by
    `snnlib.surrogate.spike`. It then trains, streams and works in every layer. A model of the linear family also
    returns its coefficients from `dynamics` and then runs on native kernels. States start at 0; a model with another
    resting state, for example in millivolts, defines `initial_state`.

    Args:
        constants: the model's constants by name: numbers, or tensors with one value per channel. They are float64
            buffers that dtype casts skip, and part of the `state_dict`.
        learnable: names of the constants that are trained, as parameters in float32, or in float64 where the net is.
        channels: number of channels if each channel learns its own constants; None shares one value.
        batch_first: whether sequences are `[N, T, ...]`. Default False.

    Raises:
        ValueError: a name in `learnable` that is no constant of the model, or a constant of a wrong shape.
        TypeError: a constant is a `torch.nn.Parameter`; pass its value and name it in `learnable`.

    >>> import torch, snnlib
    >>> class Adder(snnlib.neurons.Neuron):
    ...     state_names = ("v",)
    ...     def step(self, state, current, params):
    ...         v = state[0] + current
    ...         spike = snnlib.surrogate.spike(v - 1, torch.ones(()), snnlib.surrogate.Triangle())
    ...         return spike, (v * (1 - spike.detach()),)
    >>> Adder()(torch.full((4, 1, 1), 0.5)).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    option_hints: ClassVar[Mapping[str, str]] = NEURON_HINTS
    # Attributes that are Python numbers, by their key in the `state_dict`.
    stored_numbers: ClassVar[Mapping[str, str]] = {}
    # The mark that `snnlib.prepare_` sets; None in a new neuron and in files without it.
    prepared: int | None = None
    # Arguments of a model that declares them, and defaults of other libraries by argument.
    fields: ClassVar[Mapping[str, Field]] = {}
    dialects: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # Options of earlier versions, which `from_config` and pickles still have: the value that the model always has now,
    # or a function of their value that returns the present options.
    former: ClassVar[Mapping[str, Any]] = {}
    constant_names: tuple[str, ...]
    learnable: Sequence[str]
    state_names: ClassVar[tuple[str, ...]]
    # True if values are spikes; else potentials.
    gives_spikes: bool = True
    # Kind of dL/dcurrent: at spikes only, or everywhere by a surrogate.
    gradient: str = "surrogate"
    # The first state before the first step, which `initial_state` gives by default.
    initial_membrane: float = 0.0
    # True if states are whole multiples of 2^-12 and weights of layers have 8 bits, as on Loihi.
    fixed_point: bool = False
    weight_exponent: int | None = None
    # True if gradients flow to earlier steps.
    gradient_through_time: bool = True
    # True once `check_rest` has tested the model at rest.
    rest_known: bool = False
    # True if EventProp's gradient moves spikes, so that input events may get theirs by time.
    exact_times: bool = False
    # Gradient of such models: "time" or "dense"; None is by time in layers, which take events, and dense in neurons.
    input_gradient: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declare(cls)

    def __init__(
        self,
        constants: Mapping[str, float | Tensor] | None = None,
        *,
        learnable: Sequence[str] = (),
        channels: int | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        check_flag("batch_first", batch_first)
        self.batch_first = batch_first
        # Watch of a standalone neuron; a layer has its own.
        self.training_watch = TrainingWatch()
        add_constants(self, {} if constants is None else constants, learnable, channels)
        if not self.gives_spikes:
            self.training_watch.stop()

    def build(self, given: Mapping[str, Any]) -> None:
        """Initialises the neuron from arguments by name; None stands for the default.

        Raises:
            ValueError: an unknown dialect, or a value out of its range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        values = checked_values(type(self), given)
        self.derive(values, given, given.get("dialect"))
        constants = {name: values.pop(name) for name in constant_fields(type(self))}
        Neuron.__init__(
            self,
            {name: value for name, value in constants.items() if value is not None},
            learnable=values.pop("learnable", ()),
            channels=values.pop("channels", None),
            batch_first=values.pop("batch_first"),
        )
        for name, value in values.items():
            if name not in self.fields or self.fields[name].kept:
                setattr(self, name, value)

    @classmethod
    def derive(cls, values: dict[str, Any], given: Collection[str], dialect: str | None) -> None:
        """Computes and checks values that depend on several options, before they become attributes.

        Args:
            values: of all fields, each already checked; added keys become attributes too.
            given: names of the arguments that were given.
            dialect: the dialect, if one was chosen.
        """

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes without cached tables and programs, for copies and pickles."""
        return {name: value for name, value in vars(self).items() if name not in (TABLES, PROGRAMS)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes attributes of pickles, those of earlier versions too."""
        super().__setstate__(in_present_options(type(self), state))  # type: ignore[no-untyped-call]

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises TypeError for a number in place of a constant: optimisers and files may hold the constant's tensor."""
        vars(self).pop(TABLES, None)
        if isinstance(value, int | float) and name in self.__dict__.get("constant_names", ()):
            remedy = f"torch.nn.init.constant_(neuron.{name}, {value!r}) changes it in place"
            raise TypeError(f"{name}: expected a tensor, got {value!r}; {remedy}")
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves constants with the module; of dtypes only float64 applies, and only to learned constants."""
        vars(self).pop(TABLES, None)
        return super()._apply(keeping_dtypes(self, fn), recurse)  # type: ignore[no-untyped-call, no-any-return]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        store_numbers(self, destination, prefix)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        metadata, _, missing, _, errors = rest
        load_numbers(self, state_dict, prefix, metadata, missing, errors)
        fit_constants(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def constants(self) -> dict[str, Tensor]:
        """Constants by name, `[]` or `[C]`, as `dynamics` gets them: in float64 where the device has it."""
        return {name: widest(getattr(self, name)) for name in self.constant_names}

    def __copy__(self) -> Self:
        """Returns a neuron with the same tensors, also where constants have bounds, which torch's own copy refuses."""
        new = type(self).__new__(type(self))
        vars(new).update(vars(self))
        return new

    def initial_state(self, current: Tensor, params: Params) -> State:
        """Returns the state before the first step, with shape, dtype and device of a step's current `[N, C, ...]`.

        Default: the first is `initial_membrane`, the others are 0. A model in millivolts returns its rest:

        >>> import torch, snnlib
        >>> class Millivolts(snnlib.neurons.Neuron):
        ...     state_names = ("v",)
        ...     def initial_state(self, current, params):
        ...         return (torch.full_like(current, -65.0),)
        ...     def step(self, state, current, params):
        ...         v = state[0] + (-65.0 - state[0] + current) / 10.0
        ...         spike = snnlib.surrogate.spike(v + 50.0, torch.ones(()), snnlib.surrogate.ATan())
        ...         return spike, (torch.where(spike.detach() > 0, -65.0, v),)
        >>> Millivolts()(torch.full((8, 1, 1), 30.0)).flatten().int().tolist()
        [0, 0, 0, 0, 0, 0, 1, 0]
        """
        starts = (self.initial_membrane, *[0.0] * len(self.state_names))
        return tuple(
            torch.full_like(current, start) for start, _ in zip(starts, self.state_names, strict=False)
        )

    def step(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        """Runs a time step: (spikes, next state) from the state, the current `[N, C, ...]` and the constants."""
        raise NotImplementedError(f"{type(self).__name__}: expected a step method, got none")

    def dynamics(self, params: Params) -> Dynamics | None:
        """Returns the coefficients for the native kernels, from constants `[]` or `[C]`; None runs `step` in torch.

        An option that the kernels lack returns None here, and is checked nowhere else. The result may depend on
        constants and attributes of the neuron alone: kernels keep it until one of these changes.
        """
        return None

    def kernel(self, like: Tensor) -> AnyKernel | None:
        """Returns the neurons as compiled kernels take them, for currents like a tensor; None runs `step` in torch.

        Models without `dynamics` run as a program of their `step`, where it has one. The result is cached until a
        constant or an option changes, unless constants learn.
        """
        tables, key = kept_tables(self), (state_dtype(like), like.device, runs_alone(like))
        if tables is None:
            return self._kernel_or_program(like)
        if key not in tables:
            # A tensor that is made in inference mode could not be used in a training step.
            with torch.inference_mode(False):
                tables[key] = self._kernel_or_program(like)
        return cast(AnyKernel | None, tables[key])

    def _make_kernel(self, dtype: torch.dtype, device: torch.device) -> NeuronKernel | None:
        dynamics = self.dynamics(self.constants())
        return None if dynamics is None else dynamics.kernel(dtype, device)

    def _kernel_or_program(self, like: Tensor) -> AnyKernel | None:
        kernel = self._make_kernel(state_dtype(like), like.device)
        return kernel_of_step(self, like) if kernel is None else kernel

    def _forward_dynamics(self, params: Params) -> Dynamics | None:
        """Returns the coefficients of the forward pass, also if the kernels lack the model's backward pass."""
        return self.dynamics(params)

    @runs_time_first
    def forward(self, x: Tensor, *state: Any) -> Tensor:
        """Returns the spikes for currents `[T, N, C, ...]`, in their shape and dtype, from the initial state."""
        check_no_state(self, state)
        value = self._run(x, None).value
        self.training_watch.watch(self, x, None, value)
        return value

    @runs_time_first
    def run(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, lengths: Tensor | None = None
    ) -> Output:
        """Runs a sequence from a state `([K, N, C, ...],)`; returns the spikes and the state after the last step.

        Gradients flow through states; `state[0].detach()` truncates them. With `lengths` `[N]`, the number of steps of
        each sample, later values are 0 and the state is the one after each sample's own last step; the sequence runs
        in one chunk per distinct length.

        Raises:
            TypeError: `x` is not a floating-point tensor.
            ValueError: `x`, the state or the lengths do not fit; the message says which.
        """
        if lengths is not None:
            return Output(*run_with_lengths(self._run, x, state, lengths))
        return self._run(x, state)

    def _run(self, x: Tensor, state: tuple[Tensor, ...] | None) -> Output:
        """Runs a sequence `[T, N, ...]` as `run` does."""
        self._check_currents(x)
        return self.scan(x, state, self.kernel(x))

    def scan(
        self,
        current: Tensor,
        state: tuple[Tensor, ...] | None,
        kernel: AnyKernel | None,
        window: tuple[int, int] = ops.scan.NO_POOLING,
    ) -> Output:
        """Returns values for checked currents, by a kernel or else by `step`, and the state after the last step.

        Currents and values are `[T, N, C, ...]`, also of neurons with `batch_first`. The gradient of the currents is
        dense; layers turn it into the spike-time gradient of their input.

        Args:
            current, state: as in `run`.
            kernel: `kernel(current)`, or the kernel of these neurons with other constants.
            window: of average pooling over the last two axes, if the kernel can pool (`ops.scan_pool.can_fuse`).
        """
        start = start_state(self, current.shape[1:], current, state)
        by_step = kernel is None or isinstance(kernel, ProgramKernel)
        if by_step and start is None:
            check_rest(self, current)
        if kernel is None or (by_step and not runs_alone(current)):
            return self._by_steps(current, start)
        return self._by_kernel(current, kernel if start is None else replace(kernel, state=start), window)

    def _by_kernel(self, current: Tensor, kernel: AnyKernel, window: tuple[int, int]) -> Output:
        value, final = ops.scan.run(current, kernel, window)
        return Output(value, (final,))

    def _advance(self, state: State, current: Tensor, params: Params) -> tuple[Tensor, State]:
        return self.step(state, current, params)

    def _check_currents(self, x: Tensor) -> None:
        """Raises an error unless `x` are currents `[T, N, C, ...]` with as many channels as the constants."""
        check_untransformed(type(self).__name__, batches=True)
        check_floating("x", x)
        check_sequence_rank(x, "[T, N, C, ...]")
        check_channels(self, x.shape[2], x)

    def _by_steps(self, x: Tensor, start: Tensor | None, by_step: bool = False) -> Output:
        """Returns values by the model's loop over the steps, or by its `step` alone; a state of None is zero."""
        check_untransformed(f"{type(self).__name__}, which runs by step", batches=not self.gives_spikes)
        wide = torch.promote_types(x.dtype, torch.float32)
        params = broadcast(self.constants(), x.dim() - 1, wide)
        if start is None:
            start = x.new_zeros((len(self.state_names), *x.shape[1:]), dtype=wide)
        loop = Neuron._over_steps if by_step else type(self)._over_steps
        values, final = loop(self, x.to(wide), start, params)
        if self.fixed_point:
            check_states(final)
        return Output(values.to(x.dtype), (final,))

    def _over_steps(self, steps: Tensor, start: Tensor, params: Params) -> tuple[Tensor, Tensor]:
        """Spikes and last state `[K, N, C, ...]` of currents `[T, N, C, ...]`, by `step`."""
        state: State = start.unbind(0)
        values = []
        for current in steps.unbind(0):
            value, state = advance(self, state, current, params)
            values.append(value)
        return torch.stack(values) if values else steps, torch.stack(state)

    @runs_time_first
    def free_potential(self, x: Tensor) -> Tensor:
        """Membrane potential at every step, in units of the mean threshold, of neurons that never fire.

        The potential is computed in floating point: fixed point cannot hold values far above the threshold.

        Raises:
            ValueError: a model without linear dynamics.
        """
        dynamics = self._forward_dynamics(self.constants())
        if dynamics is None or not dynamics.linear:
            raise ValueError(
                "neuron: expected a model with linear dynamics, whose potential without spikes is known, got "
                f"{self}; potential(x) gives that with spikes"
            )
        free = replace(
            dynamics,
            threshold=math.inf,
            membrane=True,
            reset_next=False,
            fixed_point=False,
            refractory=0,
            levels=1,
        ).kernel(state_dtype(x), x.device)
        return ops.scan.run(x, free)[0] / mean_threshold(self)

    @runs_time_first
    def potential(self, x: Tensor) -> Tensor:
        """Membrane potential of every step, before a spike of that step resets it, in the shape and dtype of `x`.

        A step compares this potential with the threshold, in the same unit; `free_potential` is the potential of
        neurons that never fire, divided by the threshold. Models without `dynamics` run by `step` here.

        Raises:
            ValueError: a model without `dynamics` whose `step` does not pass its membrane to `fire`.

        >>> import torch, snnlib
        >>> neuron = snnlib.neurons.LIF(tau=2.0)
        >>> x = torch.full((4, 1, 1), 1.5)
        >>> neuron.potential(x).flatten().tolist(), neuron(x).flatten().tolist()
        ([0.75, 1.125, 0.75, 1.125], [0.0, 1.0, 0.0, 1.0])
        """
        self._check_currents(x)
        dynamics = self._forward_dynamics(self.constants())
        if dynamics is not None:
            kernel = replace(dynamics, membrane=True).kernel(state_dtype(x), x.device)
            return self.scan(x, None, kernel).value
        start = start_state(self, x.shape[1:], x)
        return potential_by_step(self, x, lambda probe: probe._by_steps(x, start, by_step=True))

    @runs_time_first
    def reference(self, x: Tensor, state: tuple[Tensor, ...] | None = None) -> Output:
        """Runs `step` in plain torch, even if kernels exist; tests compare the kernels with it."""
        self._check_currents(x)
        start = start_state(self, x.shape[1:], x, state)
        return self._by_steps(x, start, by_step=True)

    def extra_repr(self) -> str:
        """Constants and options."""
        text = [f"{name}={_shown(value)}" for name, value in self.constants().items()]
        text += [f"{name}={value!r}" for name, value in self.options().items()]
        if self.learnable:
            text.append(f"learnable={self.learnable}")
        if self.batch_first:
            text.append("batch_first=True")
        return ", ".join(text)

    def options(self) -> dict[str, Any]:
        """Options that differ from their defaults, for `print`."""
        shown = {name: field for name, field in self.fields.items() if field.repr and field.kept}
        values = {name: getattr(self, name) for name, field in shown.items() if not field.constant}
        return {name: value for name, value in values.items() if value != shown[name].default}


def starts_at_zero(neuron: Neuron) -> bool:
    """Returns whether `initial_state` is all zeros, so that it need not be allocated."""
    return type(neuron).initial_state is Neuron.initial_state and neuron.initial_membrane == 0


def start_state(
    neuron: Neuron, shape: Sequence[int], like: Tensor, state: tuple[Tensor, ...] | None = None
) -> Tensor | None:
    """Returns the first state `[K, N, C, ...]` for steps of this shape `[N, C, ...]`; None if it is zero."""
    wide = torch.promote_types(like.dtype, torch.float32)
    if state is not None:
        own, whole = first_state(state), (len(neuron.state_names), *shape)
        if type(own) is not Tensor or (own.dtype, own.device, own.shape) != (wide, like.device, whole):
            check_state_shape(own, neuron.state_names, shape, like)
        return state[0].to(wide)
    if starts_at_zero(neuron):
        return None
    # Only shape, dtype and device are read.
    now = like.new_empty((), dtype=wide).expand(*shape)
    parts = neuron.initial_state(now, broadcast(neuron.constants(), len(shape), wide))
    return torch.stack([part.expand(*shape) for part in parts])


def knows_potential(neuron: Neuron) -> bool:
    """Returns whether `free_potential` can compute the potential, as for models with linear dynamics."""
    dynamics = neuron._forward_dynamics(neuron.constants())
    own = type(neuron).free_potential is not Neuron.free_potential
    return own or (dynamics is not None and dynamics.linear)


def _shown(value: Tensor) -> str:
    if value.is_meta:
        return "meta"
    return f"{float(value.detach()):g}" if value.dim() == 0 else f"[{len(value)} values]"


Reset = Literal["zero", "subtract", "none"]
