"""Every neuron model of the registry: kernels against `step`, chunks, constants, dtypes, layouts, saving."""

import copy
import inspect
import io
import pickle
from math import inf
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close, assert_same_bits
from torch import Tensor

import snnlib
from snnlib.backends.program_kernel import ProgramKernel
from snnlib.neurons import ALIF, BRF, CLIF, IF, LIF, MODELS, PSN, QIF, SRM, CubaLIF, Neuron, SlidingPSN
from snnlib.neurons.fields import OneOf
from snnlib.surrogate import EveryThreshold, Triangle

# Each is tried with every model that has these options.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "subtract": {"reset": "subtract", "detach_reset": False},
    "zero, not detached": {"reset": "zero", "reset_value": 0.25, "detach_reset": False},
    "no reset": {"reset": "none"},
    "next": {"reset_time": "next", "detach_reset": False},
    "next, subtract": {"reset_time": "next", "reset": "subtract"},
    "all states": {"reset": "zero", "reset_states": "all", "detach_reset": False},
    "floor": {"floor": -0.25, "reset": "subtract"},
    "no gradient through time": {"gradient_through_time": False},
    "compact": {"surrogate": Triangle(), "compare": ">"},
    "synapse": {"tau_s": 3.0},
    "euler": {"integration": "euler"},
    "exponential": {"discretisation": "exponential", "decay_input": False},
    "threshold": {"threshold": 0.875},
    "rest": {"rest": 0.25, "start_value": -0.25},
    "four spikes": {"levels": 4, "detach_reset": False},
    "four spikes, zero": {"levels": 4, "reset": "zero", "surrogate": EveryThreshold(Triangle())},
    "spikes without a bound": {
        "levels": inf,
        "level_rounding": "floor",
        "reset_time": "next",
        "compare": ">",
    },
}


def _possible(model: type[Neuron], options: dict[str, Any]) -> bool:
    """Returns whether the model has these options with these values."""
    signature = inspect.signature(model).parameters
    checks = {name: field.check for name, field in getattr(model, "fields", {}).items()}
    choices = {name: check.choices for name, check in checks.items() if isinstance(check, OneOf)}
    return all(n in signature and (n not in choices or v in choices[n]) for n, v in options.items())


CASES = [
    pytest.param(model, options, id=f"{model.__name__}, {name}")
    for model in MODELS.values()
    for name, options in OPTIONS.items()
    if _possible(model, options)
] + [
    pytest.param(model, {"dialect": dialect}, id=f"{model.__name__}, {dialect}")
    for model in MODELS.values()
    for dialect in getattr(model, "dialects", {})
]
every_case = pytest.mark.parametrize(("model", "options"), CASES)
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def currents(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Inputs that make most neurons fire and rest in a few steps."""
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 2).to(dtype)


def driving(neuron: Neuron, x: Tensor, steps: int | None = None) -> Tensor:
    """The inputs, doubled from a quarter until a neuron fires within the first `steps`, or at all.

    A parabola grows beyond all numbers from large ones.
    """
    x = x / 4
    for _ in range(20):
        if neuron.reference(x[:steps]).value.any():
            return x
        x = x * 2
    raise AssertionError(f"{neuron} never fires")


def filled(gradients: list[Tensor | None], like: list[Tensor]) -> list[Tensor]:
    """Returns gradients with zero instead of None."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, like, strict=True)]


def learnable(model: type[Neuron], options: dict[str, Any], channels: int | None = None) -> Neuron:
    """The neuron with all its constants learnable, where it has learnable ones."""
    if "learnable" not in inspect.signature(model).parameters:
        return model(**options)
    names = model(**options).constant_names
    return model(**options, learnable=names, channels=channels)


def wants_state_gradient(neuron: Neuron) -> bool:
    return not isinstance(neuron, SRM)


@every_case
def test_kernels_equal_step(model: type[Neuron], options: dict[str, Any], path: str) -> None:
    """Values, states and all gradients of one call, in float64 against autograd through `step`."""
    neuron = learnable(model, options, channels=3)
    with torch.no_grad():
        for name in neuron.learnable:
            getattr(neuron, name).mul_(torch.tensor([1.0, 1.0625, 1.125]))
    x = driving(neuron, currents(8, 2, 3))
    start = neuron.reference(x[:3]).state[0].detach()
    weights = torch.linspace(-1, 1.5, start.numel(), dtype=torch.float64).reshape(start.shape)
    found = []
    for run in (neuron.run, neuron.reference):
        neuron.zero_grad()
        current, state = x.clone().requires_grad_(), start.clone().requires_grad_()
        value, (final,) = run(current, (state,))
        loss = (value * torch.sin(torch.arange(48.0)).reshape(8, 2, 3)).sum()
        if wants_state_gradient(neuron):
            loss = loss + (final * weights).sum()
        loss.backward()
        leaves = [current, *neuron.parameters(), state]
        found.append([value, final, *filled([leaf.grad for leaf in leaves], leaves)])
    if neuron.gives_spikes:
        assert_bits(found[0][0], found[1][0], "spikes")
    assert_close(found[0][0], found[1][0], 1e-12, "value")
    assert_close(found[0][1], found[1][1], 1e-12, "state")
    for number, (gradient, expected) in enumerate(zip(found[0][2:-1], found[1][2:-1], strict=True)):
        # float32 parameters have float32 gradients.
        assert_close(
            gradient, expected.double(), 1e-10 if expected.dtype == torch.float64 else 1e-6, f"{number}"
        )
    if wants_state_gradient(neuron):
        assert_close(found[0][-1], found[1][-1], 1e-10, "gradient of the state")


@every_case
def test_kernel_bits(model: type[Neuron], options: dict[str, Any]) -> None:
    """The compiled kernels against the family in torch, in float32, with constants per channel."""
    neuron = learnable(model, options, channels=3)
    inputs = driving(neuron, currents(8, 2, 3, 5, dtype=torch.float32))
    results = []
    for path in ("native", "reference"):
        with snnlib.use_path(path):
            neuron.zero_grad()
            x = inputs.clone().requires_grad_()
            value, (state,) = neuron.run(x)
            (value * torch.cos(torch.arange(240.0)).reshape(x.shape)).sum().backward()
            leaves = [x, *neuron.parameters()]
            results.append([value, state, *filled([leaf.grad for leaf in leaves], leaves)])
    if isinstance(neuron.kernel(inputs), ProgramKernel):
        # Functions such as exp differ from torch's in last bits; spikes do not.
        assert_bits(results[0][0], results[1][0], "spikes")
        for number, (native, reference) in enumerate(zip(*results, strict=True)):
            assert_close(native, reference.double(), 1e-6, f"{number}")
        return
    assert_same_bits(*results)


@every_case
def test_potentials_reach_the_threshold_where_there_are_spikes(
    model: type[Neuron], options: dict[str, Any], path: str
) -> None:
    """`potential` is that before the reset of each step; between spikes it follows the neuron's own states."""
    neuron = model(**options)
    x = driving(neuron, currents(12, 2, 3))
    if isinstance(neuron, ALIF) and neuron.dynamics(neuron.constants()) is None:
        with pytest.raises(ValueError, match="neuron: expected a model whose potential is known"):
            neuron.potential(x)
        return
    potential, spikes = neuron.potential(x), neuron(x)
    assert potential.shape == x.shape
    if not neuron.gives_spikes:
        assert_bits(potential, spikes)
    elif not isinstance(neuron, SRM | SlidingPSN):
        # Where the last step has no spike the potential is the membrane that goes on.
        quiet = spikes[-1] == 0
        assert_bits(potential[-1][quiet], neuron.run(x).state[0][0][quiet])
    # The threshold of two models moves.
    if neuron.gives_spikes and not isinstance(neuron, ALIF | BRF):
        threshold = neuron.constants().get("threshold", torch.zeros(()))
        if getattr(neuron, "levels", 1) > 1 and neuron.level_rounding == "round":
            threshold = threshold / 2
        over = potential > threshold if getattr(neuron, "compare", ">=") == ">" else potential >= threshold
        assert torch.equal(over, spikes != 0)
    with torch.no_grad():
        assert_bits(model(**options, batch_first=True).potential(x.movedim(0, 1)), potential.movedim(0, 1))


@pytest.mark.parametrize("options", [{}, {"reset_states": "all"}, {"rest": 0.25}, {"refractory": 2}], ids=str)
def test_potentials_do_not_depend_on_the_gradient(options: dict[str, Any]) -> None:
    """Neurons of exact spike times run in kernels of their own, which give spikes alone."""
    x = currents(12, 2, 3) / 4
    surrogate, event = (CubaLIF(**options, gradient=gradient) for gradient in ("surrogate", "event"))
    potential = event.potential(x)
    assert_bits(potential, surrogate.potential(x))
    assert event(x).any() and ((potential != 0) & (potential != 1)).any()


def test_potentials_of_models_that_do_not_say_theirs_are_refused() -> None:
    class Own(Neuron):
        state_names = ("v",)

        def step(self, state: Any, current: Tensor, params: Any) -> Any:
            return current, state

    for neuron in (Own(), PSN(4)):
        with pytest.raises(ValueError, match=r"^neuron: expected"):
            neuron.potential(torch.ones(4, 2, 3))


@pytest.mark.parametrize("gradient", ["surrogate", "event"])
def test_potentials_are_measured_from_anywhere(gradient: str) -> None:
    """All potentials moved by 1/4 are the same neuron: its spikes and gradients."""
    options: dict[str, Any] = {"gradient": gradient, "grad_clamp": torch.inf, "surrogate": Triangle(0.5, 1.0)}
    neurons = (
        CubaLIF(4.0, 2.0, threshold=1.0, **options),
        # Widths of surrogates count in thresholds.
        CubaLIF(
            4.0,
            2.0,
            threshold=1.25,
            rest=0.25,
            reset_value=0.25,
            **{**options, "surrogate": Triangle(0.4, 1.0)},
        ),
    )
    x = driving(neurons[0], currents(8, 2, 3)).requires_grad_()
    spikes = [neuron(x) for neuron in neurons]
    assert spikes[0].any() and torch.equal(*spikes)
    gradients = [torch.autograd.grad((s * torch.linspace(-1, 1, 3)).sum(), x)[0] for s in spikes]
    assert gradients[0].any()
    assert_close(gradients[1], gradients[0], 1e-12)


@every_model
def test_chunks(model: type[Neuron], path: str) -> None:
    """A sequence in two calls: the same bits, and gradients through the state between them."""
    neuron = model()
    x = driving(neuron, currents(9, 2, 3)).requires_grad_()
    whole, (last,) = neuron.run(x)
    first, state = neuron.run(x[:4])
    second, (final,) = neuron.run(x[4:], state)
    assert_bits(torch.cat((first, second)), whole)
    assert_bits(final, last)
    (expected,) = torch.autograd.grad(whole[-1].sum() + last.sum(), x, retain_graph=True)
    (gradient,) = torch.autograd.grad(second[-1].sum() + final.sum(), x)
    if isinstance(neuron, SRM | SlidingPSN):
        # Products of matrices of another size, and credit in another basis.
        assert_close(gradient, expected, 1e-12)
        return
    assert_bits(gradient, expected)


@every_model
def test_constants_per_channel(model: type[Neuron], path: str) -> None:
    """A neuron with a constant per channel equals as many neurons with one each."""
    plain = model()
    x = driving(plain, currents(7, 2, 3, 4))
    for name in plain.constant_names:
        if name == "w":
            # PLIF learns its w, which `tau` sets.
            continue
        value = plain.constants()[name].detach()
        values = value * torch.tensor([1.0, 1.0625, 1.125])
        spikes = model(**{name: values})(x)
        for channel in range(3):
            alone = model(**{name: float(values[channel])})(x[:, :, channel : channel + 1])
            assert_bits(spikes[:, :, channel : channel + 1], alone, name)


@every_model
def test_learnable_constants_move(model: type[Neuron]) -> None:
    if "learnable" not in inspect.signature(model).parameters:
        pytest.skip("this model has no learnable constants")
    # Without couplings an adaptation learns nothing.
    coupled = {"a": 0.5, "b": 0.5} if "a" in inspect.signature(model).parameters else {}
    neuron = learnable(model, coupled, channels=3)
    before = {name: p.detach().clone() for name, p in neuron.named_parameters()}
    assert set(before) == set(neuron.constant_names)
    optimiser = torch.optim.Adam(neuron.parameters(), lr=0.01)
    # Amounts that a spike adds, such as an adaptation, learn from the spikes after it: the first ones come early.
    value = neuron(driving(neuron, currents(12, 4, 3, dtype=torch.float32), steps=6))
    value.sum().backward()
    optimiser.step()
    for name, parameter in neuron.named_parameters():
        assert parameter.dtype == torch.float32
        moved = parameter.isfinite().all() and not torch.equal(parameter, before[name])
        assert moved, (
            f"{name} stayed at {before[name].tolist()} in {neuron}: its gradient is {parameter.grad}"
        )


@pytest.mark.parametrize("model", [model for model in MODELS.values() if not model.fixed_point])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(model: type[Neuron], dtype: torch.dtype, path: str) -> None:
    """Currents are widened, states are float32, and values are rounded once."""
    x = currents(6, 2, 3, dtype=torch.float32).to(dtype)
    value, (state,) = model().half().run(x)
    expected, (wide,) = model().run(x.float())
    assert value.dtype == dtype
    assert state.dtype == torch.float32
    assert_bits(value, expected.to(dtype))
    assert_bits(state, wide)


@every_model
def test_layouts(model: type[Neuron], path: str) -> None:
    """Batch first, and channels last in memory."""
    x = currents(6, 2, 3, 4, 5)
    neuron = model()
    expected, (state,) = neuron.run(x)
    neuron.batch_first = True
    value, (other,) = neuron.run(x.transpose(0, 1).contiguous())
    assert_bits(value.transpose(0, 1), expected)
    assert_bits(other, state)
    neuron.batch_first = False
    value, (other,) = neuron.run(x.movedim(2, -1).contiguous().movedim(-1, 2))
    assert_bits(value, expected)
    assert_bits(other, state)


@every_model
def test_no_steps(model: type[Neuron], path: str) -> None:
    neuron = model()
    x = currents(3, 2, 3)
    _, state = neuron.run(x)
    value, after = neuron.run(x[:0], state)
    assert value.shape == (0, 2, 3)
    assert_bits(after[0], state[0])


@pytest.mark.filterwarnings("ignore:load_state_dict. the file has other constants")
@every_model
def test_constants_survive_moves(model: type[Neuron]) -> None:
    """Casts, copies and files keep constants and their precision."""
    neuron = learnable(model, {})
    expected = neuron(currents(6, 2, 3))
    constants = {name: getattr(neuron, name).detach().clone() for name in neuron.constant_names}
    file = io.BytesIO()
    torch.save(neuron.state_dict(), file)
    file.seek(0)
    loaded = learnable(model, {"threshold": 3.0} if "threshold" in constants else {})
    loaded.load_state_dict(torch.load(file, weights_only=True))
    moved = [
        neuron.half(),
        neuron.double().float(),
        copy.deepcopy(neuron),
        pickle.loads(pickle.dumps(neuron)),
        loaded,
    ]
    for other in moved:
        for name, value in constants.items():
            assert_bits(getattr(other, name).detach(), value, name)
        assert_bits(other(currents(6, 2, 3)), expected)


@every_model
def test_repr(model: type[Neuron]) -> None:
    """`print` names the constants, and options where they are not the defaults."""
    text = repr(model())
    assert text.startswith(f"{model.__name__}(")
    for name in model().constant_names:
        assert f"{name}=" in text
    assert "batch_first" not in text
    assert "batch_first=True" in repr(model(batch_first=True))


def test_srm_with_its_membrane_reset_is_an_event_driven_cuba_lif() -> None:
    """Both have EventProp's gradient; the SRM's current is that of the CubaLIF, in other units."""
    x = currents(20, 2, 3)
    results = []
    for neuron, gain in (
        (SRM(4.0, 4.0, reset_states="membrane", grad_clamp=None), 1.0),
        (CubaLIF(4.0, 4.0, gradient="event", grad_clamp=torch.inf), 1.0),
    ):
        current = (x * gain).requires_grad_()
        spikes = neuron(current)
        (spikes * torch.sin(torch.arange(120.0)).reshape(x.shape)).sum().backward()
        results.append((spikes, current.grad))
    assert results[0][0].sum() > 20
    assert_bits(*(result[0] for result in results))
    assert_close(results[0][1], results[1][1], 1e-12)


@pytest.mark.parametrize("model", [CLIF, QIF])
def test_learns_in_a_net(model: type[Neuron]) -> None:
    """`prepare_` sets the rates of layers with it, and all weights get a gradient."""
    torch.manual_seed(0)
    sizes = ((20, 30), (30, 5))
    net = torch.nn.Sequential(*(snnlib.SpikingLinear(*size, neuron=model()) for size in sizes))
    x = (torch.rand(12, 8, 20) < 0.2).float()
    snnlib.prepare_(net, x, target_rate=0.1)
    assert float(net[0](x).detach().mean()) == pytest.approx(0.1, rel=0.3)
    net(x).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in net.parameters())


def test_several_spikes_in_a_step() -> None:
    x = torch.tensor([2.5, 0.25, 4.0, -3.0]).reshape(4, 1, 1)
    neuron = IF(levels=torch.inf, level_rounding="floor")
    assert neuron(x).flatten().tolist() == [2, 0, 4, 0]
    limited = IF(levels=2, level_rounding="floor")
    assert limited(x).flatten().tolist() == [2, 0, 2, 0]
    assert limited.run(x).state[0].item() == pytest.approx(-0.25)


def test_repr_of_plif_has_no_minus_zero() -> None:
    assert "w=0," in repr(snnlib.neurons.PLIF(tau=2.0))


@pytest.mark.parametrize("per_channel", [False, True])
def test_no_channels(per_channel: bool, path: str) -> None:
    neuron = LIF(tau=2.0, learnable="tau", channels=0 if per_channel else None)
    x = torch.zeros(4, 2, 0, requires_grad=True)
    out = neuron.run(x)
    assert out.value.shape == (4, 2, 0) and out.state[0].shape == (1, 2, 0)
    out.value.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


def test_constants_with_bounds_have_the_same_potentials() -> None:
    x = 2 * torch.rand(6, 2, 3)
    for make in (snnlib.neurons.LIF, snnlib.neurons.QIF, snnlib.neurons.CLIF):
        bounded = snnlib.neurons.bound_(make(learnable=("tau",)), tau=(1.5, 100.0))
        torch.testing.assert_close(bounded.potential(x), make().potential(x))
        bounded.potential(x).sum().backward()
        assert bounded.parametrizations.tau.original.grad is not None
    once = snnlib.neurons.bound_(
        snnlib.neurons.LIF(learnable=("tau",), refractory=torch.inf), tau=(1.5, 100.0)
    )
    torch.testing.assert_close(once.free_potential(x), snnlib.neurons.LIF().free_potential(x))
