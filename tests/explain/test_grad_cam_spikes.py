"""Grad-CAM of spiking nets: what a map of credits means, layouts of time, silence, and signs."""

import torch
from cam_nets import DOUBLE, events, spiking_net
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib.explain import GradCAM


def test_credit_of_one_channel_is_the_answers_spike_count(rng: torch.Generator) -> None:
    """Layers keep sums of gradients, so alpha is the class's spike count over the cells of the sequence."""
    torch.manual_seed(1)
    options = {"tau_m": 8.0, "tau_s": 4.0, **DOUBLE}
    conv = snnlib.SRMConv2d(2, 1, 3, padding=1, **options)
    net = nn.Sequential(conv, nn.Flatten(2), snnlib.SRMLinear(64, 3, **options))
    with torch.no_grad():
        conv.weight.abs_()
        net[2].weight.abs_()
    x = events(rng)
    counts = net(x).sum(0)
    assert bool((counts > 0).all())
    with GradCAM(net, conv, normalize=False, time="per_step") as cam:
        maps = cam(x, 2)
    expected = counts[:, 2, None, None] / (12 * 64) * conv(x)[:, :, 0]
    torch.testing.assert_close(maps, expected, rtol=1e-10, atol=1e-12)


def test_batch_first_nets_give_the_same_maps(rng: torch.Generator) -> None:
    net, other, x = spiking_net(), spiking_net(batch_first=True), events(rng)
    with GradCAM(net, net[0], time="per_step") as cam:
        maps = cam(x)
    with GradCAM(other, other[0], time="per_step", layout="NTCHW") as cam:
        swapped = cam(x.transpose(0, 1))
    assert float(maps.amax()) == 1
    torch.testing.assert_close(swapped.transpose(0, 1), maps, rtol=1e-12, atol=1e-14)


def test_a_silent_answer_has_no_map(rng: torch.Generator) -> None:
    net = spiking_net()
    net[3].weight.data.neg_().clamp_(max=0)
    with GradCAM(net, net[0]) as cam:
        assert_bits(cam(events(rng)), torch.zeros(3, 8, 8, **DOUBLE))


class TimeGradients(nn.Module):
    """A spiking net whose score goes through a reversal of sign, as nets with gradients dL/dt do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = spiking_net()

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.net(x)
        return 2 * spikes.detach() - spikes


def test_time_gradients_negate_alpha(rng: torch.Generator) -> None:
    reversed_net, x = TimeGradients(), events(rng)
    with GradCAM(reversed_net.net, reversed_net.net[0]) as cam:
        expected = cam(x)
    with GradCAM(reversed_net, reversed_net.net[0], time_gradients=True) as cam:
        torch.testing.assert_close(cam(x), expected, rtol=1e-12, atol=1e-14)
    with GradCAM(reversed_net, reversed_net.net[0]) as cam:
        assert not torch.equal(cam(x), expected)


def test_layers_of_the_papers_code_need_no_reversal_under_a_plain_score(rng: torch.Generator) -> None:
    """Input gradients are linear in the answer's, whatever its sign means; only a `LossReverse` turns alpha over."""
    options = {"tau_m": 5.0, "tau_s": 3.0, "tau_grad": 2.5, "batch_first": True}
    torch.manual_seed(0)
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 6, 3, padding=1, **options), nn.Flatten(2), snnlib.SRMLinear(384, 5, **options)
    )
    papers = nn.Sequential(
        snnlib.compat.srmConv2d(2, 6, 3, padding=1),
        nn.Flatten(2),
        snnlib.compat.srmLinear(384, 5, weight_norm=False),
    )
    for layer in (0, 2):
        papers[layer].weight = net[layer].weight
    x = events(rng).float().transpose(0, 1)
    labels = net(x).sum(1).argmax(1)
    with GradCAM(net, net[0], layout="NTCHW") as cam:
        expected = cam(x, labels)
    assert float(expected.amax()) == 1
    with GradCAM(papers, papers[0], layout="NTCHW") as cam:
        torch.testing.assert_close(cam(x, labels), expected)
    with GradCAM(papers, papers[0], layout="NTCHW", time_gradients=True) as cam:
        each = range(len(x))
        maps = cam(x, lambda spikes: snnlib.compat.LossReverse.apply(spikes).sum(1)[each, labels])
        torch.testing.assert_close(maps, expected)
