"""Where a spiking net looks: Grad-CAM of a net trained for a moment on the embedded event digits.

python examples/explain.py          pictures in a temporary folder, whose name is printed
python examples/explain.py maps     pictures in maps: heat.png, stretches of time, and heat.gif, step by step
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first
from snnlib.explain import GradCAM
from snnlib.visual import heat_animation, heat_strips, save_gif, save_png

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", nargs="?", type=Path, help="where pictures go (default: a temporary folder)")
folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="snnlib-explain-"))
folder.mkdir(parents=True, exist_ok=True)

torch.manual_seed(0)
STEP_MS, EPOCHS = 20, 3
to_frames = ToFrames(time_steps=15, step_us=STEP_MS * 1000)
train = FrameCache(EventDigits(train=True, transform=to_frames))
test = FrameCache(EventDigits(train=False, transform=to_frames))
loader = DataLoader(train, batch_size=25, shuffle=True, collate_fn=stack_time_first)

net = snnlib.models.from_notation("P2-12C5-P2-10", (2, 34, 34), tau_m=5.0, tau_s=3.0)
frames, _ = next(iter(loader))  # [T, N, 2, 34, 34]
snnlib.prepare_(net, frames, {"conv1": 0.01, "fc1": 0.1}, gain=False)
snnlib.nn.standardize_weights_(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=EPOCHS * len(loader))
for epoch in range(EPOCHS):
    for frames, labels in loader:
        counts = snnlib.readout.spike_count(net(frames))  # [N, 10]
        loss = snnlib.losses.spike_count_loss(counts, labels, desired=7, undesired=1, one_sided=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.2f}")

frames, labels = next(iter(DataLoader(test, batch_size=len(test), collate_fn=stack_time_first)))
with torch.no_grad():
    right = net(frames).sum(0).argmax(1) == labels
print(f"test accuracy {float(right.double().mean()):.1%}")
frames, labels = frames[:, right], labels[right]

# A cell of the conv layer is 2 pixels wide, as it comes after P2; 13 of them lie in the middle of 34 pixels.
with GradCAM(net, net.conv1, stride=2, time="per_step") as cam:
    maps = cam(frames)  # [T, N, 34, 34]


def recognised_without(order: torch.Tensor, pixels: int = 100) -> float:
    """Share of samples recognised after all events of the first pixels [N, 34, 34] in falling order are gone."""
    busy = frames.sum((0, 2)) > 0
    first = order.masked_fill(~busy, -1).flatten(1).topk(pixels).indices
    kept = torch.ones(busy.shape).flatten(1).scatter(1, first, 0).view(busy.shape)
    with torch.no_grad():
        answers = net(frames * kept.unsqueeze(1)).sum(0).argmax(1)
    return float((answers == labels).double().mean())


# If the maps are right, the answer hangs on the hottest pixels more than on as many others.
heat = maps.mean(0)
hottest, others = recognised_without(heat), recognised_without(torch.rand(heat.shape))
print(f"recognised without the 100 hottest pixels {hottest:.1%}, without 100 random ones {others:.1%}")
assert hottest < others - 0.1, "the net looks elsewhere"

shown = [int((labels == digit).nonzero()[0]) for digit in labels.unique()[:4]]
samples = [(f"evidence for {labels[sample]}", frames[:, sample], maps[:, sample]) for sample in shown]
save_png(heat_strips(samples, step_ms=STEP_MS), folder / "heat.png")
save_gif(heat_animation(*samples[0][1:], step_ms=STEP_MS, title=samples[0][0]), folder / "heat.gif")
print(f"pictures: {folder / 'heat.png'}, {folder / 'heat.gif'}")
