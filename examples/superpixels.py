"""Region tokens of event frames: rates over superpixels, a read-out from them, and the way back to the pixels."""

import torch

import snnlib
from snnlib.data import EventDigits, ToFrames, stack_time_first

torch.manual_seed(0)
to_frames = ToFrames(time_steps=6, step_us=50_000, mode="count")
train_x, train_labels = stack_time_first(list(EventDigits(train=True, transform=to_frames)))
test_x, test_labels = stack_time_first(list(EventDigits(train=False, transform=to_frames)))


def superpixels(frames: torch.Tensor) -> torch.Tensor:
    """Two per block of 6 x 6 pixels, its busy and its quiet ones: labels 0..71, [N, 34, 34]."""
    counts = frames.sum((0, 2))
    rows = torch.arange(34) // 6
    blocks = 6 * rows.unsqueeze(1) + rows  # 36 of them
    mean = snnlib.functional.superpixel_avg_pool2d(counts.unsqueeze(1), blocks.expand_as(counts), 36)
    busy = counts > snnlib.functional.superpixel_unpool(mean, blocks.expand_as(counts)).squeeze(1)
    return 2 * blocks + busy


def tokens(frames: torch.Tensor) -> torch.Tensor:
    """Event rate of each superpixel in each step, [N, T * 2 * 72]: labels of a sample hold for all its steps."""
    return (
        snnlib.functional.superpixel_avg_pool2d(frames.float(), superpixels(frames), 72)
        .movedim(1, 0)
        .flatten(1)
    )


model = torch.nn.Linear(6 * 2 * 72, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-4)
inputs = tokens(train_x)
for _ in range(200):
    loss = torch.nn.functional.cross_entropy(model(inputs), train_labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
accuracy = (model(tokens(test_x)).argmax(1) == test_labels).float().mean().item()

# Back to the pixels: the image of region means is the closest one that is constant on every superpixel.
image, labels = test_x.float().sum(0), superpixels(test_x)
flat = snnlib.functional.superpixel_unpool(snnlib.functional.superpixel_avg_pool2d(image, labels, 72), labels)
kept = 1 - ((image - flat).square().sum() / (image - image.mean((2, 3), keepdim=True)).square().sum()).item()
print(f"72 superpixels keep {kept:.0%} of the variance over 1156 pixels")
print(f"test accuracy {accuracy:.1%}")
assert kept > 0.5
assert accuracy > 0.8, "the read-out did not learn"
