"""Names of the package: what `dir` shows, and what a guessed name is answered with."""

import subprocess
import sys
from operator import attrgetter
from types import ModuleType

import pytest
import torch

import snnlib
from snnlib import guesses
from snnlib.backends import native


@pytest.mark.filterwarnings("ignore:snnlib.srmConv has the papers' gradients")
def test_dir_shows_what_new_code_uses() -> None:
    names = dir(snnlib)
    assert {"SpikingLinear", "prepare_", "data", "neurons", "report", "visual", "load", "__version__"} <= set(
        names
    )
    assert not {"Any", "importlib", "guesses", "_LAZY", "_C", "srmConv", "QuickCumsum", "Round"} & set(names)
    # More names than a screen shows at a glance.
    assert len(names) <= 71
    assert all(getattr(snnlib, name) is not None for name in names)
    # Published names are there all the same, but no star brings them in.
    assert snnlib.srmConv is snnlib.compat.srmConv and "srmConv" not in snnlib.__all__


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LIF", "neurons.LIF"),
        ("prepare", "prepare_"),
        ("datasets", "data"),
        ("spike_add", "functional.spike_add"),
        ("Triangle", "surrogate.Triangle"),
        ("tet_loss", "losses.tet_loss"),
        ("ToFrames", "data.ToFrames"),
        ("SpikingLinaer", "SpikingLinear"),
        ("LIFNode", "neurons.LIF"),
        ("IFNode", "neurons.IF"),
        ("ParametricLIFNode", "neurons.PLIF"),
        ("SeqToANNContainer", "PerStep"),
        ("PoissonEncoder", "encoding.rate"),
        ("Leaky", "neurons.LIF"),
        ("Synaptic", "neurons.CubaLIF"),
        ("spikegen", "encoding"),
        ("LIFRecurrentCell", "SpikingRNN"),
        ("LICell", "neurons.Integrator"),
        ("Conv2d", "SpikingConv2d"),
        ("Linear", "SpikingLinear"),
        ("calibrate_firing_rate_", "prepare_"),
        ("spike_count", "readout.spike_count"),
        ("energy", "profile"),
        ("export_c", "exchange.export_c"),
    ],
)
def test_a_guessed_name_is_answered_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(snnlib, name)
    assert str(error.value) == f"module 'snnlib' has no attribute {name!r}; did you mean snnlib.{meant}?"
    attrgetter(meant)(snnlib)


@pytest.mark.parametrize(
    ("module", "name", "answer"),
    [
        ("neurons", "Leaky", "did you mean snnlib.neurons.LIF?"),
        ("neurons", "LIFNode", "did you mean snnlib.neurons.LIF?"),
        ("neurons", "RLeaky", "did you mean snnlib.SpikingRNN?"),
        ("neurons", "CubaLif", "did you mean snnlib.neurons.CubaLIF?"),
        ("nn", "Leaky", "did you mean snnlib.neurons.LIF?"),
        ("nn", "Conv2d", "did you mean snnlib.SpikingConv2d?"),
        ("nn", "fuse_net", "did you mean snnlib.nn.fuse_?"),
        ("functional", "ce_rate_loss", "did you mean snnlib.losses.tet_loss?"),
        ("functional", "set_step_mode", "layers take whole sequences, so there is no mode to set"),
        ("functional", "reset_net", "layers run whole sequences, so there is no state to reset"),
        ("", "reset_net", "layers run whole sequences, so there is no state to reset"),
        ("", "train", "take the command `snnlib train`"),
    ],
)
def test_names_of_other_libraries_are_answered_in_each_module(module: str, name: str, answer: str) -> None:
    home = getattr(snnlib, module) if module else snnlib
    with pytest.raises(AttributeError) as error:
        getattr(home, name)
    assert str(error.value).startswith(f"module '{home.__name__}' has no attribute {name!r}; {answer}")


@pytest.mark.parametrize("module", [snnlib, snnlib.neurons, snnlib.nn, snnlib.functional])
def test_other_names_of_a_module_have_no_hint(module: ModuleType) -> None:
    for name in ("entirely_unknown_thing", "__wrapped__", "_private"):
        with pytest.raises(AttributeError, match=rf"^module '{module.__name__}' has no attribute '{name}'$"):
            getattr(module, name)


def test_a_name_is_answered_where_a_package_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snnlib.data", None)
    assert not hasattr(snnlib, "entirely_unknown_thing")


def test_every_guess_is_answered_with_something_that_is_there() -> None:
    for name, meant in guesses._MEANT.items():
        assert name not in dir(snnlib)
        if " " not in meant:
            attrgetter(meant)(snnlib)


@pytest.mark.parametrize(
    "package", ["compat", "data", "distributed", "exchange", "functional", "models", "neurons", "nn", "ops"]
)
def test_modules_show_their_public_names_alone(package: str) -> None:
    module = getattr(snnlib, package)
    assert dir(module) == sorted(module.__all__)


IMPORT = """
import sys, snnlib
print(sorted({"snnlib.data", "snnlib.exchange", "snnlib.models", "snnlib.compat"} & set(sys.modules)))
assert snnlib.convert.__module__.startswith("snnlib.exchange") and snnlib.data.MNIST
import snnlib.data.datasets.digits
# The compiler of torch takes as long as torch itself.
print({"matplotlib", "sklearn", "lightning", "nir", "torch._dynamo"} & set(sys.modules), "visual" in dir(snnlib))
sys.modules["matplotlib"] = None
try:
    snnlib.report
except ImportError as error:
    print(error)
del sys.modules["matplotlib"]
snnlib.visual.raster; snnlib.report
"""


def test_an_import_brings_no_optional_package_and_no_compiler() -> None:
    """`visual` and `report` load when they are asked for, and say then what is missing."""
    shown = subprocess.check_output([sys.executable, "-c", IMPORT], text=True).splitlines()
    assert shown[0] == "[]"
    assert shown[1] == "set() True"
    assert "pip install 'snnlib[train]'" in shown[2]
    with pytest.raises(AttributeError, match="module 'snnlib' has no attribute 'absent'"):
        snnlib.absent  # noqa: B018


def test_answers_that_a_compiler_keeps_are_marked_as_torch_marks_them() -> None:
    def marked() -> None: ...

    torch.compiler.assume_constant_result(marked)
    assert vars(marked) == vars(native._cuda_problem)
