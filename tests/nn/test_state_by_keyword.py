"""Calls of version 0.1 with a state warn once and do the same."""

import pytest
import torch
from torch import nn

import snnlib
from snnlib.nn import state_by_keyword


@pytest.mark.parametrize("layer", [snnlib.SRMLinear(6, 5), snnlib.SRMReadout(6, 5), snnlib.SpikeDropout()])
def test_a_call_with_a_state_warns_and_is_run(layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_by_keyword, "_warned", False)
    x = (torch.rand(8, 2, 6) < 0.5).float()

    with pytest.warns(FutureWarning, match=rf"{type(layer).__name__}: a call with state .* is now layer.run"):
        first, state = layer(x[:3], return_state=True)
    given = (state,) if isinstance(layer, snnlib.SpikeDropout) else None
    assert torch.equal(first, layer.run(x[:3], given).value)
    assert torch.equal(layer(x[3:], state), layer.run(x[3:], (state,)).value)
