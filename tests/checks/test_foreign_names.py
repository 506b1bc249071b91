"""Attributes of other libraries' layers: every neuron and layer answers with torch's error and the way here."""

import inspect

import pytest
import torch
from torch import nn

import snnlib
from snnlib.checks.options import FOREIGN_NAMES

# They have a state and no neurons of their own.
_OTHERS = {"Bidirectional", "DelayLine", "SpikeDropout", "StateSpaceBlock"}
# Everything that takes a sequence and could be asked for a state.
_STATEFUL = [
    found
    for home in (snnlib.neurons, snnlib.nn)
    for name in home.__all__
    if inspect.isclass(found := getattr(home, name))
    and issubclass(found, nn.Module)
    and hasattr(found, "run")
]
STATEFUL = [found for found in dict.fromkeys(_STATEFUL) if found.__name__ not in _OTHERS]


@pytest.mark.parametrize("kind", STATEFUL, ids=lambda kind: kind.__name__)
def test_every_class_with_a_state_answers(kind: type[nn.Module]) -> None:
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name in ("init_leaky", "reset_mem", "step_mode", "multi_step_forward", "state_fallback", "mem"):
        with pytest.raises(AttributeError) as error:
            getattr(module, name)
        missing = f"'{kind.__name__}' object has no attribute '{name}'"
        assert str(error.value) == f"{missing}; {FOREIGN_NAMES[name]}"
        assert not hasattr(module, name)


def test_other_names_have_torchs_error_alone() -> None:
    with pytest.raises(AttributeError, match=r"^'LIF' object has no attribute 'something'$"):
        _ = snnlib.neurons.LIF().something


def test_the_loop_of_snntorch_is_answered_at_its_first_line() -> None:
    lif = snnlib.neurons.LIF(tau=2.0)
    with pytest.raises(AttributeError, match=r"run\(x, state\)"):
        lif.init_leaky()
    with pytest.raises(TypeError, match=r"LIF\.run\(x, state\) takes one and gives \(output, state\)"):
        lif(torch.rand(5, 2, 3), torch.zeros(2, 3))


@pytest.mark.parametrize("home", [snnlib, snnlib.functional, snnlib.nn, snnlib.neurons])
@pytest.mark.parametrize("name", ["reset_net", "multi_step_forward", "LIFState"])
def test_functions_of_other_libraries_are_answered_by_every_module(home: object, name: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(home, name)
    assert str(error.value).endswith(f"; {FOREIGN_NAMES[name]}")


def test_the_module_utils_is_answered() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'utils'; other libraries keep resets"):
        _ = snnlib.utils
