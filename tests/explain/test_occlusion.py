"""The occlusion test of heat maps, on nets whose evidence is known."""

import pytest
import torch
from torch import Tensor, nn

from snnlib import SpikeAvgPool2d, SRMConv2d, SRMReadout, prepare_
from snnlib.explain import GradCAM, occlusion_test
from snnlib.learning.losses import tet_loss
from snnlib.models import from_notation


class LeftHalf(nn.Module):
    """Score of class 0: events in the left half; of class 1: half of all events."""

    def forward(self, x: Tensor) -> Tensor:
        left = x[..., : x.shape[-1] // 2].sum((0, 2, 3, 4))
        return torch.stack([left, x.sum((0, 2, 3, 4)) / 2], 1)


def events() -> Tensor:
    return (torch.rand(10, 6, 2, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.3).float()


def test_right_maps_cost_all_that_was_removed() -> None:
    x = events()
    left = torch.zeros(10, 6, 8, 8)
    left[..., :4] = 1
    result = occlusion_test(LeftHalf(), x, left, target=0, fraction=0.1)
    removed = (x.flatten(2).count_nonzero((0, 2)) * 0.1).round()
    assert torch.equal(result.hottest, removed)
    # Half of the random events lie in the left half.
    assert torch.allclose(result.random.mean(), removed.mean() / 2, rtol=0.15)
    gap, error = result.difference()
    assert gap > 10 * error


def test_wrong_maps_cost_nothing_and_level_maps_what_chance_does() -> None:
    x = events()
    right = torch.zeros(10, 6, 8, 8)
    right[..., 4:] = 1
    assert bool((occlusion_test(LeftHalf(), x, right, target=0).hottest == 0).all())
    level = occlusion_test(LeftHalf(), x, torch.ones(10, 6, 8, 8), target=0, draws=20)
    gap, error = level.difference()
    assert abs(gap) < 3 * error


def test_batch_first_modes_and_default_target() -> None:
    net = from_notation("4C3p1-P2-3", (2, 8, 8), tau_m=8.0, tau_s=4.0).train()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(3)
    x = events()
    heat = torch.rand(10, 6, 8, 8)
    first = occlusion_test(net, x, heat)
    winners = net(x).sum(0).argmax(1)
    assert torch.equal(first.hottest, occlusion_test(net, x, heat, winners).hottest)
    assert net.training
    swapped = occlusion_test(LeftHalfFirst(), x.transpose(0, 1), heat.transpose(0, 1), 0, batch_first=True)
    assert torch.equal(swapped.hottest, occlusion_test(LeftHalf(), x, heat, 0).hottest)


class LeftHalfFirst(LeftHalf):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(0, 1))


def test_grad_cam_of_a_trained_net_passes() -> None:
    """A patch of events anywhere says by its polarity which class it is; the rest is noise of both polarities."""
    torch.manual_seed(7)
    x, labels = (torch.rand(10, 40, 2, 12, 12) < 0.02).float(), torch.arange(40) % 2
    for sample, label in enumerate(labels.tolist()):
        row, column = torch.randint(0, 9, (2,)).tolist()
        x[:, sample, label, row : row + 3, column : column + 3] += (torch.rand(10, 3, 3) < 0.3).float()
    x.clamp_(max=1)
    constants = {"tau_m": 4.0, "tau_s": 2.0}
    net = nn.Sequential(
        SRMConv2d(2, 6, 3, padding=1, **constants), SpikeAvgPool2d(12), SRMReadout(6, 2, **constants)
    )
    prepare_(net, x)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(25):
        loss = tet_loss(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float((net(x).mean(0).argmax(1) == labels).float().mean()) > 0.9
    with GradCAM(net, net[0], time="per_step") as cam:
        maps = cam(x, labels)
    gap, error = occlusion_test(net, x, maps, labels).difference()
    assert gap > 5 * error


@pytest.mark.parametrize(
    ("shape", "fraction", "message"),
    [
        ((10, 6, 8, 7), 0.1, r"maps: expected \[T, N, H, W\] for x .*, got \(10, 6, 8, 7\)"),
        ((10, 6, 8, 8), 0.0, r"fraction: expected a share above 0 and below 1, got 0\.0"),
    ],
)
def test_errors(shape: tuple[int, ...], fraction: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        occlusion_test(LeftHalf(), events(), torch.zeros(shape), fraction=fraction)
