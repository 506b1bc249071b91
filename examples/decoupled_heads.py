"""A second head on a trained backbone that must not notice: gradients stopped, channels re-scaled."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, stack_time_first

torch.manual_seed(0)
to_frames = ToFrames(time_steps=15, step_us=20_000)
train = FrameCache(EventDigits(train=True, transform=to_frames))
test = FrameCache(EventDigits(train=False, transform=to_frames))
loader = DataLoader(train, batch_size=25, shuffle=True, collate_fn=stack_time_first)
test_x, test_labels = next(iter(DataLoader(test, batch_size=len(test), collate_fn=stack_time_first)))

net = snnlib.models.from_notation("P2-12C5-P2-10", (2, 34, 34), tau_m=5.0, tau_s=3.0)
frames, _ = next(iter(loader))
snnlib.prepare_(net, frames, {"conv1": 0.01, "fc1": 0.1}, gain=False)
snnlib.nn.standardize_weights_(net)
backbone, digit_head = net[:-1], net[-1]

# Odd or even, from the same features. The factor 0 in front of this head keeps its gradients away from the backbone;
# between 0 and 1 the backbone would learn a little from it, at -1 it would unlearn what the head needs.
parity_head = nn.Sequential(
    snnlib.GradScale(0.0),
    nn.Flatten(2),
    snnlib.ChannelAffine(12 * 6 * 6),
    snnlib.SRMLinear(12 * 6 * 6, 2, tau_m=5.0, tau_s=3.0),
)
with torch.no_grad():
    snnlib.prepare_(parity_head, backbone(frames), {"3": 0.1}, gain=False)


def train_for(epochs: int, modules: list[nn.Module], head: nn.Module, classes: int) -> None:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.01, weight_decay=0)
    for _ in range(epochs):
        for x, labels in loader:
            counts = snnlib.readout.spike_count(head(backbone(x)))
            loss = snnlib.losses.spike_count_loss(
                counts, labels % classes, desired=7, undesired=1, one_sided=True
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def accuracy(head: nn.Module, labels: Tensor) -> float:
    with torch.no_grad():
        return (head(backbone(test_x)).sum(0).argmax(1) == labels).float().mean().item()


train_for(4, [backbone, digit_head], digit_head, 10)
digits = accuracy(digit_head, test_labels)
before = [parameter.clone() for parameter in backbone.parameters()]

# The optimiser holds the backbone as well: only the factor 0 protects it.
train_for(3, [backbone, parity_head], parity_head, 2)
unchanged = all(torch.equal(a, b) for a, b in zip(before, backbone.parameters(), strict=True))
parity = accuracy(parity_head, test_labels % 2)
print(f"test accuracy {digits:.1%} on digits, {parity:.1%} on odd or even; backbone unchanged: {unchanged}")
assert unchanged, "a gradient of the second head reached the backbone"
assert accuracy(digit_head, test_labels) == digits
assert parity > 0.7, "the second head did not learn"
