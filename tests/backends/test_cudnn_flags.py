"""cuDNN's flags of a call: torch's global ones where None was given, and those set for a block."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from snnlib.backends.cudnn_flags import resolve, torch_flags

cudnn = torch.backends.cudnn
both = pytest.mark.parametrize("value", [False, True])
newer = pytest.mark.skipif(not hasattr(cudnn, "conv"), reason="this torch has one tf32 flag")


@pytest.fixture(autouse=True)
def flags_as_they_were() -> Iterator[None]:
    names = ("benchmark", "deterministic", "allow_tf32")
    before = [getattr(cudnn, name) for name in names]
    yield
    for name, value in zip(names, before, strict=True):
        setattr(cudnn, name, value)


def test_given_flags_count() -> None:
    for flags in itertools.product((False, True), repeat=3):
        assert resolve(*flags) == flags


@both
@pytest.mark.parametrize("name", ["benchmark", "deterministic", "allow_tf32"])
def test_torch_decides_where_nothing_is_given(name: str, value: bool) -> None:
    setattr(cudnn, name, value)
    assert getattr(resolve(None, None, None), name) == value


def test_deterministic_algorithms() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert resolve(None, None, None).deterministic
        assert not resolve(None, False, None).deterministic
    finally:
        torch.use_deterministic_algorithms(False)


@newer
@both
def test_precision_of_one_operator(value: bool) -> None:
    cudnn.conv.fp32_precision = "tf32" if value else "ieee"
    assert resolve(None, None, None).allow_tf32 == value


@both
@pytest.mark.parametrize("name", ["benchmark", "deterministic", "allow_tf32"])
def test_block(name: str, value: bool) -> None:
    setattr(cudnn, name, not value)
    before = resolve(None, None, None)
    wanted = {"benchmark": None, "deterministic": None, "allow_tf32": None, name: value}
    with pytest.raises(ZeroDivisionError), torch_flags(**wanted):
        assert resolve(None, None, None) == before._replace(**{name: value})
        raise ZeroDivisionError
    assert resolve(None, None, None) == before
    # The older flag can still be read.
    assert cudnn.allow_tf32 == before.allow_tf32


@newer
@both
def test_block_beside_the_precision_of_one_operator(value: bool) -> None:
    """Where the newer flag was set, reading the older one raises."""
    cudnn.conv.fp32_precision = "ieee"
    with pytest.raises(RuntimeError):
        _ = cudnn.allow_tf32
    with torch_flags(None, None, value):
        assert resolve(None, None, None).allow_tf32 == value
    assert cudnn.conv.fp32_precision == "ieee"
