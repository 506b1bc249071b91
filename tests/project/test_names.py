"""Names of the package: what `dir` shows, and what a guessed name is answered with."""

import pytest

import snnlib


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
