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
snnlib.init.calibrate_firing_rate_(net, frames, {"conv1": 0.01, "fc1": 0.1})
snnlib.nn.standardize_weights(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=6 * len(loader))

for epoch in range(6):
    for frames, labels in loader:
        counts = snnlib.readout.spike_count(net(frames))  # [N, 10]
        loss = snnlib.losses.spike_count_loss(counts, labels, desired=7, undesired=1, one_sided=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.2f}")

with torch.no_grad():
    hits = [
        int((net(frames).sum(0).argmax(1) == labels).sum())
        for frames, labels in DataLoader(test, batch_size=60, collate_fn=stack_time_first)
    ]
accuracy = sum(hits) / len(test)
print(f"test accuracy {accuracy:.1%}")
assert accuracy > 0.75, "the net did not learn"
