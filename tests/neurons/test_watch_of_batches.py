"""The watch over training names what batches and optimisers bring: silent samples, NaN, an optimiser made too early."""

import warnings

import pytest
import torch
from torch import nn

import snnlib


def _learned_from_own_spikes() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(snnlib.SRMLinear(20, 30), snnlib.SRMLinear(30, 4))


def test_samples_in_which_no_neuron_fires_are_named() -> None:
    net, x = _learned_from_own_spikes(), (torch.rand(10, 20, 20) < 0.3).float()
    snnlib.prepare_(net, x)
    # Half of the samples get so little that no hidden neuron fires.
    x[:, ::2] = 0
    x[0, ::2, 0] = 0.1
    with pytest.warns(UserWarning, match=r"^0: no neuron fired in 50% of the samples of .*spike_count_loss"):
        for _ in range(200):
            net(x).sum().backward()


@pytest.mark.parametrize(("silent", "warns"), [(7, False), (8, True)])
def test_few_silent_samples_are_named_where_they_are_no_chance(silent: int, warns: bool) -> None:
    net, x = _learned_from_own_spikes(), torch.ones(10, 4, 20)
    snnlib.prepare_(net, x)
    rest = x.clone()
    rest[:, 0] = 0
    rest[0, 0, 0] = 1e-3
    # The watch looks at every tenth batch: ten batches of four samples in a window.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in range(200):
            net(rest if batch % 100 < 10 * silent else x).sum().backward()
    assert any("of the samples of" in str(warning.message) for warning in caught) == warns


def test_values_that_are_no_numbers_are_named() -> None:
    net, x = _learned_from_own_spikes(), torch.ones(10, 20, 20)
    x[3, 2, 1] = torch.nan
    with pytest.warns(UserWarning, match=r"the input held NaN or infinity in the first 3 training batches"):
        for _ in range(3):
            net(x).sum().backward()


def test_an_optimiser_that_was_made_too_early_is_named() -> None:
    for early in (True, False):
        net, x = _learned_from_own_spikes(), torch.rand(10, 20, 20)
        optimizer = torch.optim.Adam(net.parameters(), 1e-3) if early else None
        snnlib.prepare_(net, x)
        optimizer = optimizer or torch.optim.Adam(net.parameters(), 1e-3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                loss = net(x).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        assert any("make it after snnlib.prepare_" in str(one.message) for one in caught) == early
