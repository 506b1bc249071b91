"""Closed forms beside the rates of Brian2: a LIF neuron's, and Brunel's net in the mean (make_brian2_lab.py).

A LIF neuron that a constant current drives towards V_inf = E + I / g fires every
`refractory + tau log((V_inf - V_reset) / (V_inf - V_th))` ms. Brian2 sees the threshold at the end of a step, up to a
step of 0.1 ms late, and counts the refractory time from that step's start, a step less.

In a net of many independent inputs the membrane is a diffusion of mean mu and deviation sigma, and the rate is
Siegert's (Brunel 2000, equations 21 and 4, with C = 1000 excitatory inputs, a quarter as many inhibitory ones, and all
neurons at one rate nu)::

    1 / nu = tau_rp + tau sqrt(pi) integral from (V_r - mu) / sigma to (theta - mu) / sigma of exp(u^2) (1 + erf(u)) du
    mu = C J tau (nu_ext + nu (1 - g / 4)),   sigma^2 = C J^2 tau (nu_ext + nu (1 + g^2 / 4))
"""

import doctest
import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from snnlib import neurons, visual

ROOT = Path(__file__).parents[2]
STORED = json.loads(Path(__file__).with_name("brian2_lab.json").read_text(encoding="utf-8"))
STEP = 0.1


def test_rates_of_a_lif_neuron() -> None:
    lif = STORED["lif"]
    c = lif["constants"]
    steady = c["E"] + np.array(lif["current_pA"]) / c["g"]
    leak = c["C"] / c["g"] * np.log((steady - c["reset"]) / (steady - c["threshold"]))
    exact, found = c["refractory"] + leak, 1000 / np.array(lif["rate"])
    late = found - (exact - STEP)
    print("intervals", exact.round(3), "late by", late.round(3))
    # Rates are stored with four digits.
    assert (late > -1e-3).all()
    assert (late < STEP + 1e-3).all()
    assert np.abs(found / exact - 1).max() < 0.02
    assert exact.max() > 199 and exact.min() < 10.1


def on_the_page(model: str) -> neurons.Neuron:
    """The neuron of a class that docs/lab.md writes."""
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    names: dict[str, type[neurons.Neuron]] = {}
    for example in doctest.DocTestParser().get_examples(page):
        if example.source.startswith(("import ", "from ", f"class {model}(")):
            exec(example.source, names)
    return names[model]()


def rates(neuron: neurons.Neuron, currents: np.ndarray, duration: float) -> tuple[np.ndarray, np.ndarray]:
    """Settled and first rates at currents, in steps of 0.1 ms."""
    figure = visual.f_i_curve(neuron, torch.from_numpy(currents), dt=STEP, duration=duration)
    settled, first = (np.asarray(line.get_ydata()) for line in figure.axes[0].lines)
    return settled, first


def test_f_i_curve_of_a_lif_neuron() -> None:
    """Rates from 5 to 100 Hz beside the closed form: an exact step is late by up to a step, Euler's by less."""
    c, current = STORED["lif"]["constants"], np.array(STORED["lif"]["current_pA"])
    steady = c["E"] + current / c["g"]
    tau = c["C"] / c["g"]
    exact = c["refractory"] + tau * np.log((steady - c["reset"]) / (steady - c["threshold"]))
    shared = {
        "reset_value": c["reset"] - c["E"],
        "start_value": 0.0,
        "refractory": round(c["refractory"] / STEP),
    }
    kernel = neurons.LIF(
        tau / STEP, threshold=c["threshold"] - c["E"], discretisation="exponential", **shared
    )
    by_kernel, _ = rates(kernel, current / c["g"], 2000.0)
    late = 1000 / by_kernel - exact
    print("late by", late.round(3))
    assert (late > -1e-9).all() and (late < STEP + 1e-9).all()
    for found in (by_kernel, rates(on_the_page("Cell"), current, 1000.0)[0]):
        off = found * exact / 1000 - 1
        print(f"off by {np.abs(off).max():.2%}")
        assert np.abs(off).max() < 0.02


def test_f_i_curve_of_an_adaptive_exponential_neuron() -> None:
    """Brian2's Euler steps are those of `step`: its rates, and its converged ones within 2 %."""
    stored = {name: np.array(values) for name, values in STORED["adex"].items() if name != "constants"}
    within = (stored["converged"] >= 5) & (stored["converged"] <= 100)
    settled, first = rates(on_the_page("AdEx"), stored["current_pA"][within], 1500.0)
    off = np.abs(settled / stored["converged"][within] - 1)
    same = np.abs(settled / stored["euler"][within] - 1), np.abs(first / stored["first euler"][within] - 1)
    print(f"off by {off.max():.2%}, from Euler's rates by {same[0].max():.2%} and {same[1].max():.2%}")
    assert off.max() < 0.02
    # Rates are stored with four digits; the settled ones here are means over fewer intervals, in whole steps.
    assert same[0].max() < 2e-3 and same[1].max() < 1e-4


def siegert_rate(g: float, drive: float) -> float:
    """The rate in 1/s at which a net is in balance: bisection, as more activity inhibits more (g > 4)."""
    tau, refractory, theta, reset, strength, inputs = 0.02, 0.002, 20.0, 10.0, 0.1, 1000
    outside = drive * theta / (strength * inputs * tau)
    low, high = 0.0, 1 / refractory
    for _ in range(50):
        nu = (low + high) / 2
        mu = inputs * strength * tau * (outside + nu * (1 - g / 4))
        sigma = math.sqrt(inputs * strength**2 * tau * (outside + nu * (1 + g**2 / 4)))
        u = torch.linspace((reset - mu) / sigma, (theta - mu) / sigma, 2001, dtype=torch.float64)
        # exp(u^2) (1 + erf(u)) without overflow.
        area = float(torch.trapezoid(torch.special.erfcx(-u), u))
        low, high = (nu, high) if 1 / (refractory + tau * math.sqrt(math.pi) * area) > nu else (low, nu)
    return (low + high) / 2


def test_rates_of_an_adaptive_exponential_neuron() -> None:
    """Euler's steps of 0.1 ms are within 2 % of converged ones where it fires with 5 to 100 Hz."""
    rates, euler = (np.array(STORED["adex"][name]) for name in ("converged", "euler"))
    between = (rates >= 5) & (rates <= 100)
    off = np.abs(euler / np.where(between, rates, 1) - 1)[between]
    print("rates", rates.round(1), f"off by {off.max():.2%}")
    assert between.sum() > 10
    assert off.max() < 0.02
    assert (np.diff(rates) >= 0).all()


def test_states_of_brunel() -> None:
    means = {}
    for name, state in STORED["brunel"].items():
        found = {key: np.mean([run[key] for run in state["runs"]]) for key in state["runs"][0]}
        # Deviation over mean of the spikes of 12,500 neurons in 1 ms.
        found["synchrony"] = math.sqrt(found["fano"] / (found["rate"] * 12.5))
        means[name] = found
        theory = siegert_rate(state["g"], state["drive"]) if state["g"] > 4 else math.nan
        print(name, {key: round(float(value), 2) for key, value in found.items()}, f"theory {theory:.1f}")
        if name == "AI":
            # The theory takes activity as stationary, which no other state is.
            assert found["rate"] == pytest.approx(theory, rel=0.05)
    assert means["SR"]["cv"] < 0.05
    assert min(means[name]["cv"] for name in means if name != "SR") > 0.3
    assert means["AI"]["synchrony"] == min(found["synchrony"] for found in means.values())
    assert means["SI fast"]["frequency"] > 2 * means["SI fast"]["rate"]
    assert means["SI slow"]["frequency"] > 2 * means["SI slow"]["rate"]


# Relative, of rate, CV and synchrony: three deviations of Brian2's runs where these differ.
SPREAD = {"SR": 0.01, "SI fast": 0.2, "AI": 0.1, "SI slow": 0.35}
FREQUENCY = {"SR": (375, 375), "SI fast": (160, 190), "SI slow": (15, 25)}


@pytest.mark.slow
def test_states_of_the_example() -> None:
    """The four states of examples/brunel.py beside Brian2's, of another net and other Poisson processes.

    In Brian2 a spike arrives after the threshold of its step and counts in the next one, 1.6 ms after it was fired.
    """
    example = runpy.run_path(str(ROOT / "examples" / "brunel.py"))
    torch.manual_seed(0)
    net = example["Net"]()
    for (name, state), (g, drive) in zip(STORED["brunel"].items(), example["STATES"].values(), strict=True):
        assert (g, drive) == (state["g"], state["drive"])
        found = example["statistics"](net.run(g, drive, 1000.0, delay=1.6))
        mean = {key: float(np.mean([run[key] for run in state["runs"]])) for key in state["runs"][0]}
        mean["synchrony"] = math.sqrt(mean["fano"] / (mean["rate"] * 12.5))
        print(name, found, {key: round(value, 3) for key, value in mean.items()})
        assert found.rate == pytest.approx(mean["rate"], rel=SPREAD[name])
        assert found.synchrony == pytest.approx(mean["synchrony"], rel=SPREAD[name])
        assert found.cv == pytest.approx(mean["cv"], rel=SPREAD[name], abs=0.005)
        if name in FREQUENCY:
            least, most = FREQUENCY[name]
            assert least <= found.frequency <= most
