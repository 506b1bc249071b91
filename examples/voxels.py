"""Learned features per event: a small net of each event's time, summed into voxels, in front of a convolution.

After Gehrig et al., "End-to-End Learning of Representations for Asynchronous Event-Based Data", ICCV 2019.
"""

import torch
from torch import Tensor, nn

import snnlib
from snnlib.data import EventDigits

torch.manual_seed(0)
CHANNELS = 8


def points(train: bool) -> tuple[list[Tensor], Tensor]:
    """Per recording [E, 4] of y, x, time in 0..1 and polarity -1 or 1; and the labels."""
    recordings, labels = [], []
    for events, label in EventDigits(train=train):
        y, x, t, p = (torch.from_numpy(events[field].astype("float32")) for field in ("y", "x", "t", "p"))
        recordings.append(torch.stack((y, x, t / 300e3, 2 * p - 1), 1))
        labels.append(label)
    return recordings, torch.tensor(labels)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, CHANNELS))
        # Cells of 4 x 4 pixels: y and x from 0 to 36.
        self.pool = snnlib.VoxelPool(((0, 36, 4), (0, 36, 4)))
        self.head = nn.Sequential(nn.Conv2d(CHANNELS, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10))

    def forward(self, batch: list[Tensor]) -> Tensor:
        events = torch.cat(batch)
        sample = torch.arange(len(batch)).repeat_interleave(torch.tensor([len(e) for e in batch]))
        features = self.features(events[:, 2:]) * events[:, 3:]
        voxels = self.pool(features, events[:, :2], sample, len(batch))  # [N, C, 9, 9]
        return self.head(0.1 * voxels)


train, train_labels = points(train=True)
test, test_labels = points(train=False)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(4):
    for batch in torch.randperm(len(train)).split(25):
        loss = nn.functional.cross_entropy(net([train[i] for i in batch]), train_labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    answers = torch.cat([net(test[i : i + 60]).argmax(1) for i in range(0, len(test), 60)])
    accuracy = (answers == test_labels).float().mean().item()
    # The order of events plays no part.
    shuffled = [events[torch.randperm(len(events))] for events in test[:20]]
    assert torch.allclose(net(shuffled), net(test[:20]), atol=1e-3)
print(f"test accuracy {accuracy:.1%}")
assert accuracy > 0.8, "the net did not learn"
