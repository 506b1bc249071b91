"""A spiking net in a plain PyTorch training loop, on the embedded event digits. Runs in under a minute."""

import torch
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first

torch.manual_seed(0)
to_frames = ToFrames(time_steps=15, step_us=20_000)
train = FrameCache(EventDigits(train=True, transform=to_frames))
test = FrameCache(EventDigits(train=False, transform=to_frames))
loader = DataLoader(train, batch_size=25, shuffle=True, collate_fn=stack_time_first)

net = snnlib.models.from_notation("P2-12C5-P2-10", (2, 34, 34), tau_m=5.0, tau_s=3.0)
frames, _ = next(iter(loader))  # [T, N, 2, 34, 34]
report = snnlib.prepare_(net, frames)
print(report)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(4):
    for frames, labels in loader:
        counts = snnlib.readout.spike_count(net(frames))  # [N, 10]
        loss = snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.2f}")

with torch.no_grad():
    hits = [
        int((net(frames).sum(0).argmax(1) == labels).sum())
        for frames, labels in DataLoader(test, batch_size=60, collate_fn=stack_time_first)
    ]
accuracy = sum(hits) / len(test)
print(f"test accuracy {accuracy:.1%}")
assert accuracy > 0.9, "the net did not learn"
