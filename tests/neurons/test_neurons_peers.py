"""Spikes and gradients of the dialects against the libraries themselves, where they are installed.

10^6 neuron-steps each: equal bits for inputs and constants that are binary fractions, at most one flip for random
float32, and gradients to 1e-5 of the largest entry.
"""

import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from snnlib.neurons import ALIF, IF, KLIF, LIF, PLIF, Alpha, CubaLIF, Integrator, Izhikevich, Neuron, Resonate

Run = Callable[[Tensor], Tensor]


def _module(name: str) -> Any:
    return pytest.importorskip(
        name, reason=f"compares with {name.split('.', maxsplit=1)[0]}, which is not installed"
    )


def spikingjelly(name: str, **options: Any) -> Run:
    node = getattr(_module("spikingjelly.activation_based.neuron"), name)(**options)
    return lambda x: torch.stack([node(current) for current in x])


def snntorch(name: str, **options: Any) -> Run:
    neuron = getattr(_module("snntorch"), name)(**options)
    states = {"Leaky": 1, "Lapicque": 1, "Synaptic": 2, "Alpha": 3}[name]

    def run(x: Tensor) -> Tensor:
        state: tuple[Tensor, ...] = (torch.zeros_like(x[0]),) * states
        spikes = []
        for current in x:
            s, *rest = neuron(current, *state)
            state = tuple(rest)
            spikes.append(s)
        return torch.stack(spikes)

    return run


def norse(name: str, parameters: str, **options: Any) -> Run:
    """Returns a run of Norse in steps of 2^-10 s, so that rates per second may be binary fractions."""
    torch_module = _module("norse.torch")
    values = {key: torch.as_tensor(value) for key, value in options.items()}
    module = {"LIFBox": "lif_box", "LIF": "lif", "LSNN": "lsnn", "IAF": "iaf", "LI": "leaky_integrator"}[
        parameters
    ]
    functional = importlib.import_module(f"norse.torch.functional.{module}")
    cell = getattr(torch_module, name)(p=getattr(functional, f"{parameters}Parameters")(**values), dt=2**-10)

    def run(x: Tensor) -> Tensor:
        state, out = None, []
        for current in x:
            s, state = cell(current, state)
            out.append(s)
        return torch.stack(out)

    return run


class Case(NamedTuple):
    """Ours and theirs from a time constant: of binary fractions, then of any numbers."""

    name: str
    ours: Callable[[float], Neuron]
    theirs: Callable[[float], Run]
    exact: float = 4
    other: float = 7
    # Binary fractions of the constants only.
    exact_constants: bool = True


def beta(tau: float) -> float:
    return 1 - 1 / tau


RATES = {"tau_syn_inv": 512.0}
RESTS = {"v_leak": 0.25, "v_reset": -0.5}
OUR_RESTS = {"rest": 0.25, "reset_value": -0.5, "dialect": "norse"}
ALPHA = {"threshold": 0.25, "dialect": "snntorch"}
CASES = [
    Case(
        "snnTorch Leaky", lambda t: LIF(t, dialect="snntorch"), lambda t: snntorch("Leaky", beta=beta(t)), 2
    ),
    Case(
        "snnTorch Leaky, zero",
        lambda t: LIF(t, dialect="snntorch", reset="zero"),
        lambda t: snntorch("Leaky", beta=beta(t), reset_mechanism="zero"),
    ),
    Case(
        "snnTorch Lapicque",
        lambda t: LIF(t, dialect="lapicque"),
        lambda t: snntorch("Lapicque", R=1.0, C=t, time_step=1.0),
        2,
    ),
    Case(
        "snnTorch Synaptic",
        lambda t: CubaLIF(t, 2.0, dialect="snntorch"),
        lambda t: snntorch("Synaptic", alpha=0.5, beta=beta(t)),
    ),
    Case(
        "snnTorch Alpha",
        lambda t: Alpha(t, 2.0, **ALPHA),
        lambda t: snntorch("Alpha", alpha=beta(t), beta=0.5, threshold=0.25),
        exact_constants=False,
    ),
    Case(
        "snnTorch Alpha, subtract",
        lambda t: Alpha(t, 2.0, reset="subtract", **ALPHA),
        lambda t: snntorch("Alpha", alpha=beta(t), beta=0.5, threshold=0.25, reset_mechanism="subtract"),
        exact_constants=False,
    ),
    Case("SpikingJelly IF", lambda t: IF(dialect="spikingjelly"), lambda t: spikingjelly("IFNode"), 2, 2),
    Case(
        "SpikingJelly IF, subtract",
        lambda t: IF(dialect="spikingjelly", reset="subtract"),
        lambda t: spikingjelly("IFNode", v_reset=None),
        *(2, 2),
    ),
    *[
        Case(
            f"SpikingJelly {model.__name__}, decay_input {decays}, v_reset {value}",
            lambda t, model=model, decays=decays, reset="subtract" if value is None else "zero": model(
                t, dialect="spikingjelly", decay_input=decays, reset=reset
            ),
            lambda t, node=node, decays=decays, value=value, word=word: spikingjelly(
                node, **{word: t}, decay_input=decays, v_reset=value
            ),
            *(2.0, 7.0),
        )
        for model, node, word in (
            (LIF, "LIFNode", "tau"),
            (PLIF, "ParametricLIFNode", "init_tau"),
            (KLIF, "KLIFNode", "tau"),
        )
        for decays in (True, False)
        for value in (0.0, None)
    ],
    Case(
        "SpikingJelly CUBALIF",
        lambda t: CubaLIF(t, 2.0, dialect="spikingjelly"),
        lambda t: spikingjelly("CUBALIFNode", v_decay=beta(t)),
    ),
    Case(
        "SpikingJelly RAF",
        lambda t: Resonate(dialect="spikingjelly"),
        lambda t: spikingjelly("RAFNode"),
        *(2, 2),
        exact_constants=False,
    ),
    Case(
        "SpikingJelly Izhikevich",
        lambda t: Izhikevich(t, a=0.5, b=0.25, dialect="spikingjelly"),
        lambda t: spikingjelly("IzhikevichNode", tau=float(t), a=0.5, b=0.25),
        2,
        exact_constants=False,
    ),
    Case("Norse IAF", lambda t: IF(dialect="norse"), lambda t: norse("IAFCell", "IAF"), 2, 2),
    Case(
        "Norse LIFBox",
        lambda t: LIF(t, dialect="norse"),
        lambda t: norse("LIFBoxCell", "LIFBox", tau_mem_inv=1024 / t),
    ),
    Case(
        "Norse LIF",
        lambda t: CubaLIF(t, 2.0, dialect="norse"),
        lambda t: norse("LIFCell", "LIF", tau_mem_inv=1024 / t, **RATES),
    ),
    Case(
        "Norse LIF, rest",
        lambda t: CubaLIF(t, 2.0, **OUR_RESTS),
        lambda t: norse("LIFCell", "LIF", tau_mem_inv=1024 / t, **RATES, **RESTS),
    ),
    Case(
        "Norse LIFBox, rest",
        lambda t: LIF(t, **OUR_RESTS),
        lambda t: norse("LIFBoxCell", "LIFBox", tau_mem_inv=1024 / t, **RESTS),
    ),
    Case(
        "Norse LI",
        lambda t: Integrator(t, tau_s=2.0, dialect="norse"),
        lambda t: norse("LICell", "LI", tau_mem_inv=1024 / t, **RATES),
    ),
    Case(
        "Norse LSNN",
        lambda t: ALIF(t, 4.0, 0.5, tau_s=2.0, dialect="norse"),
        lambda t: norse("LSNNCell", "LSNN", tau_mem_inv=1024 / t, tau_adapt_inv=256.0, beta=0.5, **RATES),
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def flips(a: Tensor, b: Tensor) -> int:
    """Neurons whose spikes differ at any step: after a flip a neuron goes its own way."""
    return int((a != b).any(0).sum())


@every_case
def test_binary_fractions(case: Case) -> None:
    """Nothing rounds in 8 steps, so the spikes are equal."""
    if not case.exact_constants:
        pytest.skip("its constants are no binary fractions")
    ours, theirs = case.ours(case.exact), case.theirs(case.exact)
    x = torch.randint(-4, 13, (8, 1, 131072), generator=torch.Generator().manual_seed(1)).float() / 4
    with torch.no_grad():
        value, expected = ours(x), theirs(x)
    assert value.any()
    assert flips(value, expected.float()) == 0


@every_case
def test_random_numbers(case: Case) -> None:
    ours, theirs = case.ours(case.other), case.theirs(case.other)
    x = torch.randn(16, 1, 65536, generator=torch.Generator().manual_seed(2)) * 2 + 1
    with torch.no_grad():
        value, expected = ours(x), theirs(x).float()
    if isinstance(ours, Integrator):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
        return
    assert 0.01 < value.mean() < 0.99
    assert flips(value, expected) <= 1


@every_case
def test_gradients(case: Case) -> None:
    ours, theirs = case.ours(case.other), case.theirs(case.other)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(16, 1, 4096, generator=generator) * 2 + 1
    q = torch.randn(x.shape, generator=generator)
    found = []
    for run in (ours, theirs):
        current = x.clone().requires_grad_()
        value = run(current).float()
        (value * q).sum().backward()
        found.append((value.detach(), current.grad))
    (value, gradient), (other, expected) = found
    same = (
        torch.ones(x.shape[1:], dtype=torch.bool) if isinstance(ours, Integrator) else (value == other).all(0)
    )
    assert same.float().mean() > 0.999
    error = (gradient - expected)[:, same].abs().max() / expected[:, same].abs().max()
    assert error <= 1e-5


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("snntorch.surrogate", "atan", "ATan(alpha=2.0)"),
        ("snntorch.surrogate", "fast_sigmoid", "FastSigmoid(slope=25.0)"),
        ("snntorch.surrogate", "sigmoid", "Sigmoid(alpha=25.0)"),
        ("spikingjelly.activation_based.surrogate", "ATan", "ATan(alpha=2.0)"),
        ("spikingjelly.activation_based.surrogate", "PiecewiseQuadratic", "PiecewiseQuadratic(alpha=1.0)"),
        ("spikingjelly.activation_based.surrogate", "PiecewiseExp", "Exponential(width=1.0, height=0.5)"),
        ("sinabs.activation", "SingleExponential", ""),
    ],
)
def test_surrogates_of_other_libraries_are_refused_with_ours(module: str, name: str, ours: str) -> None:
    theirs = getattr(_module(module), name)()
    with pytest.raises(TypeError, match=re.escape(f"snnlib.surrogate.{ours}") if ours else "of u alone"):
        LIF(surrogate=theirs)


def test_norses_function_is_refused_with_ours() -> None:
    theirs = _module("norse.torch.functional.threshold").superspike_fn
    with pytest.raises(TypeError, match=r"take snnlib\.surrogate\."):
        LIF(surrogate=theirs)
