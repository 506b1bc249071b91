"""Heat maps of one net that several threads ask for at once."""

import torch
from thread_calls import asked, wrong_calls
from torch import Tensor, nn

import snnlib
from snnlib import explain


def test_threads_get_the_maps_that_calls_have_alone() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1), snnlib.SpikeAvgPool2d(2), snnlib.SRMReadout(64, 3)
    ).eval()
    given = list((torch.rand(5, 20, 2, 2, 8, 8) < 0.4).float())

    @torch.no_grad()
    def occluded(x: Tensor) -> Tensor:
        return explain.occlusion_test(net, x, x.sum(2), draws=1).hottest

    calls = {"cam": asked(explain.GradCAM(net, net[0]), given), "occlusion": asked(occluded, given)}
    calls["net"] = asked(net, given)
    assert not wrong_calls(calls, 4, 44)
