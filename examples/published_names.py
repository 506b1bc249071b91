"""A training script in the style of the papers' code: only its import line names snnlib. Embedded event digits."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from snnlib.compat import LossReverse, Pooling, srmConv2d, srmLinear
from snnlib.data import EventDigits, FrameCache, ToFrames


class ConvNet(nn.Module):
    """Spikes [N, T, 2, 34, 34] to [N, T, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(Pooling(), srmConv2d(2, 12, 5), Pooling())
        self.out = srmLinear(12 * 6 * 6, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(torch.flatten(self.model(inputs), 2))


torch.manual_seed(0)
to_frames = ToFrames(time_steps=12, step_us=25_000)
train = FrameCache(EventDigits(train=True, transform=to_frames))
test = FrameCache(EventDigits(train=False, transform=to_frames))

model = ConvNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
for epoch in range(6):
    for frames, labels in DataLoader(train, batch_size=25, shuffle=True):
        rates = LossReverse.apply(model(frames)).mean(dim=1)
        wanted = nn.functional.one_hot(labels, 10) * 0.6 + 0.1
        loss = torch.square(rates - wanted).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.2f}")

with torch.no_grad():
    frames, labels = next(iter(DataLoader(test, batch_size=len(test))))
    accuracy = (model(frames).mean(dim=1).argmax(dim=1) == labels).float().mean().item()
print(f"test accuracy {accuracy:.1%}")
assert accuracy > 0.7, "the net did not learn"
