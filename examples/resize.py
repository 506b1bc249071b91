"""Event frames at a quarter of their size: what antialiasing keeps and plain interpolation drops."""

import torch
from torch import Tensor

import snnlib
from snnlib.data import EventDigits, ToFrames, stack_time_first

torch.manual_seed(0)
# A frame of event counts, ON and OFF apart: [1, N, 2, 34, 34].
to_frames = ToFrames(time_steps=1, step_us=400_000, mode="count")
(train_x, train_labels), (test_x, test_labels) = (
    stack_time_first(list(EventDigits(train=part, transform=to_frames))) for part in (True, False)
)


def shrink(frames: Tensor, antialias: bool) -> Tensor:
    small = snnlib.functional.resize_bicubic(frames[0].float(), 8, a=-0.5, antialias=antialias)
    return small.flatten(1)


def accuracy(antialias: bool) -> float:
    """Returns the accuracy of a linear classifier on the small frames."""
    x, y = shrink(train_x, antialias), shrink(test_x, antialias)
    model = torch.nn.Linear(x.shape[1], 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(x), train_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (model(y).argmax(1) == test_labels).float().mean().item()


# How much each pixel of the sensor matters to the small frame: the gradient of its sum.
reach = {}
for antialias in (False, True):
    pixels = torch.ones(34, 34, requires_grad=True)
    snnlib.functional.resize_bicubic(pixels, 8, a=-0.5, antialias=antialias).sum().backward()
    reach[antialias] = (pixels.grad.abs() > 1e-3).float().mean().item()
plain, smooth = accuracy(False), accuracy(True)
print(f"pixels that count: {reach[False]:.0%} without antialiasing, {reach[True]:.0%} with it")
print(f"test accuracy {plain:.1%} without antialiasing, {smooth:.1%} with it")
assert reach[True] == 1 > reach[False]
assert smooth > plain
