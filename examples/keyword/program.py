"""The net for keywords that comes with snnlib as a C program that hears: sound in, a word out, all in integers.

python examples/keyword/program.py FOLDER        writes the program; make check there

For words of your own: snnlib train --recipe keywords-chip --root DIR, then snnlib export c RUN FOLDER.
"""

import argparse
import math
from pathlib import Path

import torch

import snnlib
from snnlib.exchange import export_c

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path, help="where the program goes")
folder = parser.parse_args().folder

trained = snnlib.models.load("keywords-chip")
torch.manual_seed(0)
# Tones that glide from each of four pitches to each of three, in noise: sound for the scales of the states, and for
# `make check`.
first, last = (
    torch.tensor([300, 700, 1500, 3000]).repeat_interleave(3),
    torch.tensor([400, 1200, 2500]).repeat(4),
)
share = torch.arange(16_000)[:, None] / 16_000
angle = 2 * math.pi * share * (first + (last - first) * share / 2)
sound = (2**13 * (angle.sin() + 0.1 * torch.randn(angle.shape))).to(torch.int16)
x = torch.stack([trained.transform(tone) for tone in sound.unbind(1)], 1)
# Sums of frames of 0 to 255 pass 16 bits.
small = snnlib.to_integers(trained.net, x, state_bits=32)
front_end, stack = trained.transform.front_end, trained.transform.stack
sizes = export_c(small, folder, sound, binary=False, names=trained.classes, front_end=front_end, stack=stack)
heard = [trained.classes[scores.argmax()] for scores in small(x).mean(0)]
print(f"heard in twelve tones: {' '.join(heard)}; {sizes['ram']} bytes of RAM, {sizes['flash']} of constants")
print(f"program: {folder}; to check it: make -C {folder} check")
