"""How many Python files and functions one more call of a layer executes, and its hand-overs: bounds that only fall."""

from collections.abc import Callable

import pytest
from call_files import executed, frames, functions_to_kernel, layer_call, small_layer, warm_call, warm_step

import snnlib
from snnlib.backends import native

# `docs/design-decisions.md` says why it does not fall much further.
PYTHON_FILES = 24
# From function to function, from the layer's call to its kernel.
HAND_OVERS = 7


def test_a_layer_call_spans_no_more_files_than_it_did() -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference path executes other files")
    python = executed(layer_call())
    assert {"snnlib/nn/layers/spiking_layer.py", "snnlib/ops/layer_forward.py"} <= python
    assert len(python) <= PYTHON_FILES, sorted(python)


def test_a_layer_call_reaches_its_kernel_by_few_functions() -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference path has no kernel")
    chain = functions_to_kernel(*small_layer())
    assert len(chain) - 1 <= HAND_OVERS, chain
    assert sum(name.startswith("functional/spiking.py") for name in chain) <= 2, chain


TRIANGLE = snnlib.surrogate.Triangle()
# Functions of the package in a call that ran before: checks and look-ups, each once.
CALLS: dict[str, tuple[Callable[[], Callable[[], object]], int]] = {
    "LIF": (lambda: warm_call(snnlib.neurons.LIF(surrogate=TRIANGLE)), 66),
    "CubaLIF": (lambda: warm_call(snnlib.neurons.CubaLIF(surrogate=TRIANGLE)), 69),
    "SRM": (lambda: warm_call(snnlib.neurons.SRM()), 65),
    "step of a stream of two layers": (warm_step, 127),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_warm_call_runs_few_functions(kind: str) -> None:
    if native.explain_path()[0] != "native":
        pytest.skip("the reference path runs other functions")
    make, bound = CALLS[kind]
    found = frames(make())
    assert len(found) <= bound, "\n".join(found)
