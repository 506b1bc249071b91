"""All parts in one chain: events, voxel grid, resize, spiking conv net, superpixel read-out, explanation.

On the embedded event digits; runs in under a minute.
"""

import torch
from torch import Tensor, nn

import snnlib
from snnlib.data import EventDigits, ToVoxelGrid, stack_time_first
from snnlib.explain import GradCAM


def to_input(events: object) -> Tensor:
    """Events to 12 voxel bins of 17 x 17 pixels, ON and OFF apart: [T, 2, 17, 17]."""
    grid = ToVoxelGrid(bins=12, sensor_size=(34, 34), polarity="channels")(events)
    # Times 4: four pixels become one, and resizing takes their mean.
    return 4 * snnlib.functional.resize_bicubic(grid, 17, a=-0.5, antialias=True)


def regions(x: Tensor, size: tuple[int, int]) -> Tensor:
    """4 x 4 superpixels around each sample's centre of mass, labels 0..15: [N, height, width]."""
    mass = x.abs().sum((0, 2))
    index = []
    for axis, pixels in zip((2, 1), size, strict=True):
        profile = mass.sum(axis)
        place = torch.arange(profile.shape[1]) / profile.shape[1] * pixels
        centre = (profile * place).sum(1) / profile.sum(1)
        offset = (torch.arange(pixels) + 0.5 - centre.unsqueeze(1)) / pixels * 5
        index.append((offset.floor() + 2).clamp(0, 3).long())
    return 4 * index[0].unsqueeze(2) + index[1].unsqueeze(1)


class Net(nn.Module):
    """[T, N, 2, 17, 17] to spikes [T, N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = snnlib.SRMConv2d(2, 12, 5, tau_m=5.0, tau_s=3.0)
        self.regions = snnlib.SuperpixelAvgPool2d(16)
        # Means over regions are small numbers; a learned factor per channel scales them.
        self.affine = snnlib.ChannelAffine(12)
        self.out = snnlib.SRMLinear(12 * 16, 10, tau_m=5.0, tau_s=3.0)

    def forward(self, x: Tensor) -> Tensor:
        spikes = snnlib.functional.grad_scale(self.conv(x), 0.85)
        tokens = self.regions(spikes, regions(x, spikes.shape[-2:]))  # [T, N, 12, 16]
        return self.out(self.affine(tokens).flatten(2))


torch.manual_seed(0)
train_x, train_labels = stack_time_first(list(EventDigits(train=True, transform=to_input)))
test_x, test_labels = stack_time_first(list(EventDigits(train=False, transform=to_input)))
batches = len(train_labels) // 25

net = Net()
# Values between voxels are events, not grey: calibrated weights learn them.
report = snnlib.prepare_(net, train_x[:, :25], standardize=False)
optimizer = torch.optim.Adam(net.parameters(), lr=report.learning_rate)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=report.learning_rate, total_steps=6 * batches
)
for _ in range(6):
    for batch in torch.randperm(25 * batches).split(25):
        counts = snnlib.readout.spike_count(net(train_x[:, batch]))
        loss = snnlib.losses.spike_count_loss(
            counts, train_labels[batch], desired=6, undesired=1, one_sided=True, reduction="sum"
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()

with torch.no_grad():
    accuracy = (net(test_x).sum(0).argmax(1) == test_labels).float().mean().item()

# Where does the net look? The map's share on busy pixels, against their share of all pixels.
with GradCAM(net, net.conv) as cam:
    maps = cam(test_x[:, :50])
events = test_x[:, :50].abs().sum((0, 2))
busy = events > events.mean((1, 2), keepdim=True)
share = (maps * busy).sum() / maps.sum()
print(f"{share:.0%} of the maps lies on the {busy.float().mean():.0%} of pixels with most events")
print(f"test accuracy {accuracy:.1%}")
assert share > busy.float().mean(), "the net looks at empty pixels"
assert accuracy > 0.7, "the net did not learn"
