"""Old names and calls warn once and do the same."""

import importlib
import warnings

import pytest
import torch
from torch import nn

import snnlib
from snnlib.nn import renamed, state_by_keyword


@pytest.fixture(autouse=True)
def first_call() -> None:
    """As in a process that has not called them yet."""
    importlib.reload(renamed)


@pytest.mark.parametrize("name", ["fuse", "unfuse", "standardize_weights", "fold_standardization"])
def test_old_name_warns_once_and_works(name: str) -> None:
    def net() -> nn.Sequential:
        return nn.Sequential(snnlib.SRMConv2d(2, 3, 3), snnlib.SpikeAvgPool2d(2))

    new = getattr(snnlib.nn, f"{name}_")
    assert getattr(snnlib.nn, name).__name__ == name
    old = getattr(renamed, name)
    with pytest.warns(FutureWarning, match=rf"{name} is now called {name}_, as it changes the net") as caught:
        changed = old(net())
    assert caught[0].filename == __file__
    assert repr(changed) == repr(new(net()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old(net())


def test_old_names_at_the_top_level() -> None:
    assert (snnlib.fuse.__name__, snnlib.unfuse.__name__) == ("fuse", "unfuse")


@pytest.mark.parametrize("layer", [snnlib.SRMLinear(6, 5), snnlib.SRMReadout(6, 5), snnlib.SpikeDropout()])
def test_a_call_with_a_state_warns_and_is_run(layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_by_keyword, "_warned", False)
    x = (torch.rand(8, 2, 6) < 0.5).float()

    with pytest.warns(FutureWarning, match=rf"{type(layer).__name__}: a call with state .* is now layer.run"):
        first, state = layer(x[:3], return_state=True)
    given = (state,) if isinstance(layer, snnlib.SpikeDropout) else None
    assert torch.equal(first, layer.run(x[:3], given).value)
    assert torch.equal(layer(x[3:], state), layer.run(x[3:], (state,)).value)
