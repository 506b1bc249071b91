"""Names of the package: what `dir` shows, and what a guessed name is answered with."""

import subprocess
import sys

import pytest
import torch

import snnlib
from snnlib.backends import native


@pytest.mark.filterwarnings("ignore:snnlib.srmConv has the papers' gradients")
def test_dir_shows_what_new_code_uses() -> None:
    names = dir(snnlib)
    assert {"SpikingLinear", "prepare_", "data", "neurons", "report", "visual", "load", "__version__"} <= set(
        names
    )
    assert not {"Any", "importlib", "difflib", "_LAZY", "_C", "srmConv", "QuickCumsum", "Round"} & set(names)
    assert all(getattr(snnlib, name) is not None for name in names)
    # Published names are there all the same, but no star brings them in.
    assert snnlib.srmConv is snnlib.compat.srmConv and "srmConv" not in snnlib.__all__


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LIF", "neurons.LIF"),
        ("prepare", "prepare_"),
        ("datasets", "data"),
        ("Residual", "nn.Residual"),
        ("Triangle", "surrogate.Triangle"),
        ("tet_loss", "losses.tet_loss"),
        ("ToFrames", "data.ToFrames"),
        ("SpikingLinaer", "SpikingLinear"),
    ],
)
def test_a_guessed_name_is_answered_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(snnlib, name)
    assert str(error.value) == f"module 'snnlib' has no attribute {name!r}; did you mean snnlib.{meant}?"
    found = snnlib
    for part in meant.split("."):
        found = getattr(found, part)


def test_other_names_have_no_hint() -> None:
    for name in ("entirely_unknown_thing", "__wrapped__", "_private"):
        with pytest.raises(AttributeError, match=rf"^module 'snnlib' has no attribute '{name}'$"):
            getattr(snnlib, name)


IMPORT = """
import sys, snnlib, snnlib.data.datasets.digits
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
    assert shown[0] == "set() True"
    assert "pip install 'snnlib[train]'" in shown[1]
    with pytest.raises(AttributeError, match="module 'snnlib' has no attribute 'absent'"):
        snnlib.absent  # noqa: B018


def test_answers_that_a_compiler_keeps_are_marked_as_torch_marks_them() -> None:
    def marked() -> None: ...

    torch.compiler.assume_constant_result(marked)
    assert vars(marked) == vars(native._cuda_problem)
