"""The meaning of a NIR node at a time step `dt`: the reference that every exchange is measured by.

A graph holds differential equations and no step. Read with a step `dt` they become, for `leak = dt / tau` (Euler) or
`1 - exp(-dt / tau)` (exponential)::

    tau v' = v_leak - v + R I      ->    v <- v + leak (v_leak - v + R I)
    tau_syn I' = -I + w_in S       ->    I <- I + leak_syn (w_in S - I)         before the membrane of the same step

A membrane starts at `v_leak`, one without a leak at `v_reset` or 0. A neuron fires where v > v_threshold and is set to
`v_reset` within that step. On a cycle, the edge that closes it brings the value of the step before, 0 in the first.

Source: Pedersen et al., "Neuromorphic intermediate representation: A unified instruction set for interoperable
brain-inspired computing", Nature Communications 2024, table 1.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from snnlib.checks import check_choice
from snnlib.exchange.structure.cells import Array, Cell, array

Discretisation = Literal["euler", "exponential"]

# Nodes with a state, by the name of their class.
NEURONS = ("I", "IF", "LI", "LIF", "CubaLI", "CubaLIF", "Threshold")
# Neurons that give potentials, as readouts do.
POTENTIALS = ("I", "LI", "CubaLI")
# Neurons that sinabs reads.
SINABS_NEURONS = ("IF", "LI", "LIF")

# Longer than any sequence.
_MOST_STEPS = 2**31

# Numbers of nodes beside time constants, which `leak_of` checks, and delays.
_NUMBERS = ("weight", "bias", "scale", "r", "v_leak", "v_threshold", "v_reset", "w_in", "threshold")


def check_discretisation(value: str) -> Discretisation:
    """The value, if it is one of the two."""
    return check_choice("discretisation", value, *get_args(Discretisation))  # type: ignore[return-value]


def check_dt(dt: float | None) -> float:
    """A time step in seconds."""
    if not (isinstance(dt, Real) and not isinstance(dt, bool) and 0 < dt < float("inf")):
        raise ValueError(f"dt: expected a number of seconds > 0, got {dt!r}")
    return float(dt)


def check_numbers(name: str, node: Any) -> None:
    """Raise ValueError unless a node's numbers are finite in float32."""
    for key in _NUMBERS:
        value = getattr(node, key, None)
        values = array(0.0 if value is None else value)
        wrong = values[~(np.abs(values) <= np.finfo(np.float32).max)]
        if wrong.size:
            raise ValueError(f"{name}.{key}: expected finite numbers, got {wrong.flat[0]:g}")


def kind_of(node: Any) -> str:
    """The name of a node's class."""
    return type(node).__name__


def fires(node: Any) -> bool:
    """Returns whether a node gives spikes."""
    return kind_of(node) in NEURONS and kind_of(node) not in POTENTIALS


def leak_of(name: str, tau: Any, dt: float, discretisation: Discretisation) -> Array:
    """Share of a state that is lost in one step.

    Raises:
        ValueError: a time constant shorter than a step, or infinite: such a state takes up no input.
    """
    taus = array(tau)
    # A time constant of one step, written and read again, may lose its last digits.
    if not bool(np.all(taus >= dt * (1 - 1e-9))):
        raise ValueError(f"{name}: expected time constants of at least dt = {dt:g} s, got {taus.min():g} s")
    if not bool(np.all(np.isfinite(taus))):
        raise ValueError(f"{name}: expected finite time constants, got {taus.max():g} s")
    return np.minimum(dt / taus, 1.0) if discretisation == "euler" else -np.expm1(-dt / taus)


def delay_steps(name: str, node: Any, dt: float) -> Array:
    """A delay in steps.

    Raises:
        ValueError: it is negative or infinite, or no whole number of steps.
    """
    steps = array(node.delay) / dt
    if bool(np.any(steps >= _MOST_STEPS)):
        raise ValueError(
            f"{name}: expected delays below {_MOST_STEPS} steps of dt = {dt:g} s, got {steps.max():g}"
        )
    rounded = np.rint(steps)
    if bool(np.any(steps < 0)) or not bool(np.allclose(steps, rounded, rtol=0, atol=1e-6)):
        odd = steps.flat[int(np.argmax(np.abs(steps - rounded)))]
        raise ValueError(f"{name}: expected delays of whole steps of dt = {dt:g} s, got {odd:g} steps")
    return rounded


def sinabs_cell(name: str, node: Any) -> Cell:
    """Converts a node with a state as sinabs does: time constants count steps, decay exp(-1/tau), input gain 1.

    Raises:
        ValueError: a node that it does not take.
    """
    kind, one, zero = kind_of(node), np.ones(()), np.zeros(())
    if kind not in SINABS_NEURONS:
        raise ValueError(
            f"{name}: expected a neuron that sinabs takes, {', '.join(SINABS_NEURONS)}, got {kind}"
        )
    firing: dict[str, Any] = {}
    if kind != "LI":
        firing = {"threshold": array(node.v_threshold), "strict": False, "levels": np.inf}
    if kind == "IF":
        return Cell(decay=one, gain=one, offset=zero, floor=-array(node.v_threshold), **firing)
    v_leak = array(node.v_leak)
    if v_leak.ndim > 1:
        raise ValueError(f"{name}: sinabs takes constants with one axis at most, not shape {v_leak.shape}")
    if np.any(v_leak) or (kind == "LI" and np.any(array(node.r) != 1)):
        raise ValueError(f"{name}: sinabs takes v_leak = 0 alone, and r = 1 for LI")
    return Cell(decay=np.exp(-1 / array(node.tau)), gain=one, offset=zero, **firing)


def cell_of(name: str, node: Any, dt: float, discretisation: Discretisation = "euler") -> Cell:
    """A node with a state in discrete time.

    Constants that are stored in float32 give constants rounded to float32: 4e-4 s in float32 and a step of 1e-4 s make
    a decay of 0.75, and not of 0.74999999.

    Raises:
        ValueError: a time constant shorter than a step.
    """
    cell = _cell(name, node, dt, discretisation)
    stored = [
        getattr(node, key) for key in ("r", "tau", "tau_mem", "tau_syn", "v_threshold") if hasattr(node, key)
    ]
    if stored and all(str(getattr(value, "dtype", "")).endswith("float32") for value in stored):
        rounded: dict[str, Any] = {
            key: value.astype(np.float32).astype(np.float64)
            for key, value in vars(cell).items()
            if isinstance(value, np.ndarray)
        }
        cell = replace(cell, **rounded)
    return cell


def _cell(name: str, node: Any, dt: float, discretisation: Discretisation) -> Cell:
    kind = kind_of(node)
    threshold = getattr(node, "v_threshold", None)
    reset = getattr(node, "v_reset", None)
    spiking: dict[str, Any] = {}
    if threshold is not None:
        spiking = {
            "threshold": array(threshold),
            "reset_value": np.zeros_like(array(threshold)) if reset is None else array(reset),
        }
    if kind == "Threshold":
        threshold = array(node.threshold)
        zero = np.zeros_like(threshold)
        return Cell(decay=zero, gain=zero + 1, offset=zero, threshold=threshold, reset_value=zero, start=zero)
    r = array(node.r)
    if kind in ("I", "IF"):
        return Cell(
            decay=np.ones_like(r),
            gain=r * dt,
            offset=np.zeros_like(r),
            start=spiking.get("reset_value", np.zeros_like(r)),
            **spiking,
        )
    v_leak = array(node.v_leak)
    leak = leak_of(f"{name}.tau", node.tau_mem if kind.startswith("Cuba") else node.tau, dt, discretisation)
    cell = {"decay": 1 - leak, "gain": leak * r, "offset": leak * v_leak, "start": v_leak, **spiking}
    if kind.startswith("Cuba"):
        leak_s = leak_of(f"{name}.tau_syn", node.tau_syn, dt, discretisation)
        cell |= {"decay_s": 1 - leak_s, "gain_s": leak_s * array(node.w_in)}
    return Cell(**cell)
