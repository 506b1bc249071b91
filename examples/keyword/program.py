"""A net for keywords as a C program that hears: sound in, a word out, all in integers.

python examples/keyword/program.py FOLDER        learns twelve gliding tones and writes the program; make check there

For spoken words: snnlib train --recipe keywords-chip --root DIR, then snnlib export c RUN FOLDER.
"""

import argparse
import math
from pathlib import Path

import torch

import snnlib
from snnlib.data import LogMel, StackFrames
from snnlib.exchange import export_c

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path, help="where the program goes")
folder = parser.parse_args().folder

torch.manual_seed(0)
RATE, FIRST, LAST = 16_000, (300, 700, 1500, 3000), (400, 1200, 2500)
NAMES = [f"{first} to {last} Hz" for first in FIRST for last in LAST]


def tones(labels: torch.Tensor) -> torch.Tensor:
    """Sound `[samples, N]` of a second in 16 bits: tones that glide, as loud as chance has it, in noise."""
    first, last = (
        torch.tensor(hertz)[labels] for hertz in ([f for f in FIRST for _ in LAST], LAST * len(FIRST))
    )
    share = torch.arange(RATE)[:, None] / RATE
    angle = 2 * math.pi * share * (first + (last - first) * share / 2)
    loud = 10 ** (-1.5 * torch.rand(len(labels)))
    sound = loud * (angle.sin() + 0.1 * torch.randn(angle.shape))
    return (sound * 2**14).clamp(-(2**15), 2**15 - 1).to(torch.int16)


front_end, stack = LogMel(), StackFrames(4, 8)


def steps(sound: torch.Tensor) -> torch.Tensor:
    """The net's input `[T, N, frames, 1, channels]`."""
    return torch.stack([stack(front_end(each)) for each in sound.unbind(1)], 1).unsqueeze(-2).float()


labels = torch.arange(144) % len(NAMES)
x = steps(tones(labels))
net = snnlib.models.from_notation(
    "24C5s2p2-A1-32C5s2p2-A2-96-12", x.shape[2:], neuron=snnlib.neurons.LIF(tau=2.0), batch_norm=True
)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for _ in range(5):
    for chosen in torch.randperm(len(labels)).split(24):
        loss = torch.nn.functional.cross_entropy(net(x[:, chosen]).mean(0), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
net.eval()

others = torch.arange(len(NAMES))
sound = tones(others)
# Sums of frames of 0 to 255 pass 16 bits.
small = snnlib.to_integers(net, x[:, :48], state_bits=32)
right = int((small(steps(sound)).mean(0).argmax(1) == others).sum())
sizes = export_c(small, folder, sound, binary=False, names=NAMES, front_end=front_end, stack=stack)
print(
    f"{right} of {len(others)} tones known in integers; {sizes['ram']} bytes of RAM, {sizes['flash']} of constants"
)
print(f"program: {folder}; to check it: make -C {folder} check")
