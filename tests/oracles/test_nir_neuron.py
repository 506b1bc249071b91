"""A LIF neuron on seven runtimes, recorded by their authors: each equals this library's neuron under one reading.

The recordings come with the paper on NIR: input, potential and spikes of 1000 steps of 1e-4 s, tau 25 steps, threshold
0.1. The runtimes agree on none of decay, reset and delay of the output, so four neurons and one delay are needed.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.exchange import verify_nir
from snnlib.exchange.sequences import Later
from snnlib.neurons import LIF, Neuron

nir: Any = pytest.importorskip("nir", reason="NIR graphs need the package nir, which is not installed")
pytestmark = pytest.mark.skipif(
    not os.environ.get("SNNLIB_DATA"),
    reason="SNNLIB_DATA is unset: no recordings of other runtimes to compare with",
)

DT, TAU, THRESHOLD = 1e-4, 2.5e-3, 0.1
STEPS = TAU / DT


def folder() -> Path:
    return Path(os.environ["SNNLIB_DATA"]) / "nir"


def graph(tau: float, gain: float) -> Any:
    ones = np.ones(1)
    lif = nir.LIF(tau=tau * ones, r=ones, v_leak=0 * ones, v_threshold=THRESHOLD * ones)
    return nir.NIRGraph.from_list(nir.Affine(np.array([[gain]]), 0 * ones), lif)


class Runtime(NamedTuple):
    """A net that is the runtime's, and what its recording holds: potentials of this many units, up to which step."""

    net: nn.Module
    input: float = 1.0
    potential: float | None = 1.0
    until: int = 1000


def runtimes() -> dict[str, Runtime]:
    euler, exact = snnlib.from_nir(graph(TAU, 1.0), DT), "exponential"
    # sinabs counts in steps and adds the input as it is: Rockpool and it get it times 1 / tau.
    stepwise = snnlib.from_nir(graph(STEPS, 1.0), reading="sinabs")
    next_step = LIF(STEPS, threshold=THRESHOLD, decay_input=True, dialect="snntorch")
    later = Later(np.ones(()))
    return {
        "norse": Runtime(euler),
        # Its membrane is in units of one input.
        "snntorch": Runtime(euler, potential=STEPS),
        "sinabs": Runtime(stepwise, input=1 / STEPS),
        "rockpool": Runtime(stepwise, input=1 / STEPS),
        # Spikes come out one step later; the threshold is taken off after the next decay.
        "spyx": Runtime(nn.Sequential(next_step, later)),
        # Integers, whose potentials have units of their own.
        "lava_loihi_fixed": Runtime(nn.Sequential(euler, later), potential=None),
        # Solved in continuous time: after a reset within a step the membrane charges for the rest of it.
        "exact": Runtime(snnlib.from_nir(graph(TAU, 1.0), DT, discretisation=exact), until=460),
    }


def potential(net: nn.Module, x: Tensor) -> Tensor:
    """Membranes after every step `[T, N, C]`."""
    neuron = next(module for module in net.modules() if isinstance(module, Neuron))
    state, found = None, []
    for step in x.split(1):
        state = neuron.run(step, state).state
        found.append(state[0][0])
    return torch.stack(found)


@pytest.mark.parametrize(
    "name", ["exact", "lava_loihi_fixed", "norse", "rockpool", "sinabs", "snntorch", "spyx"]
)
def test_neuron_is_that_of_the_runtime(name: str) -> None:
    given, membrane, spikes = np.loadtxt(folder() / f"lif_{name}.csv", delimiter=",").T
    assert spikes.sum() == 4
    runtime = runtimes()[name]
    net = runtime.net.double()
    x = torch.from_numpy((given > 0) * runtime.input).reshape(-1, 1, 1)
    with torch.no_grad():
        found = net(x)
        assert torch.equal(found.flatten(), torch.from_numpy(spikes))
        if runtime.potential is not None:
            # The recordings are in float32, and "exact" is a solver's.
            ours = runtime.potential * potential(net, x).flatten().numpy()
            error = np.abs(ours - membrane)[: runtime.until].max()
            assert error <= 1e-6 * np.abs(membrane).max(), f"potentials differ by {error:g}"


def test_graph_that_norse_wrote_is_the_neuron_that_it_ran() -> None:
    given, _, spikes = np.loadtxt(folder() / "lif_norse.csv", delimiter=",").T
    x = torch.from_numpy(given).reshape(-1, 1, 1)
    stored = nir.read(folder() / "lif_norse.nir")
    with torch.no_grad():
        found = snnlib.from_nir(stored, DT).double()(x)
    assert torch.equal(found.flatten(), torch.from_numpy(spikes))


@pytest.mark.parametrize("importer", ["norse", "snntorch", "spikingjelly"])
@pytest.mark.filterwarnings("ignore")
def test_importers_read_that_graph_as_it_is(importer: str) -> None:
    pytest.importorskip(importer, reason=f"compares with {importer}, which is not installed")
    given, _, spikes = np.loadtxt(folder() / "lif_norse.csv", delimiter=",").T
    checked = verify_nir(nir.read(folder() / "lif_norse.nir"), importer, DT, x=given.reshape(-1, 1, 1))
    assert checked.exact and checked.spikes is not None and checked.spikes.matched == spikes.sum(), str(
        checked
    )
