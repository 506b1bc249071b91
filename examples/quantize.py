"""Train with 8-bit weights and export integers that fire the same spikes, on the embedded event digits."""

import torch
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first

torch.manual_seed(0)
to_frames = ToFrames(time_steps=15, step_us=20_000)
train = FrameCache(EventDigits(train=True, transform=to_frames))
test = FrameCache(EventDigits(train=False, transform=to_frames))
loader = DataLoader(train, batch_size=25, shuffle=True, collate_fn=stack_time_first)
test_frames, test_labels = next(iter(DataLoader(test, batch_size=len(test), collate_fn=stack_time_first)))

net = snnlib.models.from_notation("P2-12C5-P2-10", (2, 34, 34), tau_m=5.0, tau_s=3.0)
frames, _ = next(iter(loader))
snnlib.prepare_(net, frames, {"conv1": 0.01, "fc1": 0.1}, gain=False)
snnlib.nn.standardize_weights_(net)
for layer in (net.conv1, net.fc1):
    # After the standardisation: the layer computes with the quantised weight, the optimiser moves the full one.
    # The range follows the weights with an average, so that the first steps do not pin the grid.
    register_parametrization(layer, "weight", snnlib.Quantizer(8, rounding="nearest", averaging_constant=0.1))

optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=4 * len(loader))
for _ in range(4):
    for frames, labels in loader:
        counts = snnlib.readout.spike_count(net(frames))
        loss = snnlib.losses.spike_count_loss(counts, labels, desired=7, undesired=1, one_sided=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

net.eval()
with torch.no_grad():
    spikes = net(test_frames)
accuracy = (spikes.sum(0).argmax(1) == test_labels).float().mean().item()

# On the chip: integers for weights and threshold, both times the same power of two.
exported = snnlib.models.from_notation("P2-12C5-P2-10", (2, 34, 34), tau_m=5.0, tau_s=3.0)
for name in ("conv1", "fc1"):
    trained, integer = getattr(net, name), getattr(exported, name)
    quantizer = trained.parametrizations.weight[-1]
    with torch.no_grad():
        integer.weight.copy_(quantizer.int_repr(trained.weight))
        integer.threshold.copy_(trained.threshold * 2.0**quantizer.exponent)
    largest = int(integer.weight.abs().max())
    print(f"{name}: weights in -{largest}..{largest}, threshold {integer.threshold.item():g}")
    assert largest <= 127
with torch.no_grad():
    assert torch.equal(exported(test_frames), spikes), "the integer net fires other spikes"
print(
    f"test accuracy with 8-bit weights {accuracy:.1%}; the integer net fires the same {int(spikes.sum())} spikes"
)
assert accuracy > 0.75, "the net did not learn"
