"""Classify a recording while it is read: events in windows of 20 ms, a net that keeps its state in between.

python examples/streaming.py            a recording of the embedded digits
python examples/streaming.py FILE       another one of 34 x 34 pixels, of any format that snnlib.data.iter_events reads
"""

import argparse
import zipfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Subset

import snnlib
from snnlib.data import EventDigits, FrameCache, ToFrames, iter_events, stack_time_first

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument(
    "file", nargs="?", type=Path, help="an event file (default: a recording of the embedded digits)"
)
file = parser.parse_args().file

torch.manual_seed(0)
STEP_US, SENSOR = 20_000, (34, 34)
train = EventDigits(train=True, transform=ToFrames(time_steps=15, step_us=STEP_US))
# A third of the samples is enough here.
train = FrameCache(Subset(train, range(0, len(train), 3)))
loader = DataLoader(train, batch_size=25, shuffle=True, collate_fn=stack_time_first)
net = torch.nn.Sequential(
    snnlib.SpikeAvgPool2d(2),
    snnlib.SRMConv2d(2, 8, 5, stride=2, tau_m=5.0, tau_s=3.0),
    snnlib.SRMReadout(8 * 7 * 7, 10, tau_m=5.0, tau_s=3.0),
)
snnlib.prepare_(net, next(iter(loader))[0])
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(3):
    for frames, labels in loader:
        loss = snnlib.losses.tet_loss(net(frames), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
net.eval()

test = EventDigits(train=False)
number = 200
# The recordings of the digits lie in a zip, whose members iter_events reads like files.
source = file or zipfile.Path(test.root / "Test.zip", test.files[number]).open("rb")
one_step = ToFrames(time_steps=1, step_us=STEP_US, sensor_size=SENSOR)
stream, total = snnlib.Stream(net), torch.zeros(10)
print(f"{Path(source.name).name}, {'unknown class' if file else f'class {test.targets[number]}'}")
with torch.no_grad():
    # An iterator of event arrays: nothing of the recording is held but the window at hand.
    for step, events in enumerate(iter_events(source, STEP_US, sensor_size=SENSOR)):
        events["t"] -= step * STEP_US
        # A step of one sample: [T=1, N=1, 2, 34, 34].
        total += stream(one_step(events).unsqueeze(1))[0, 0]
        scores = (total / (step + 1)).softmax(0)
        best, share = int(scores.argmax()), float(scores.max())
        print(f"{(step + 1) * STEP_US / 1000:4.0f} ms  {len(events):4} events  class {best}  {share:4.0%}")
print(stream)

if file is None:
    # The decision is that of the whole recording at once.
    events, _ = test[number]
    with torch.no_grad():
        whole = net(ToFrames(time_steps=step + 1, step_us=STEP_US)(events).unsqueeze(1)).sum(0)[0]
    torch.testing.assert_close(total, whole)
    assert int(total.argmax()) == int(test.targets[number]), "the net did not learn"
