"""Random nets of graded spikes in torch, in virtual steps, in integers and as C programs: how many outputs differ.

Usage: python benchmarks/exchange/unrolled.py [--nets 200] [--c]

Weights, thresholds and leaks are binary fractions, so that no sum is rounded and all four have to be equal. With `--c`
each net is also compiled and run, which takes about two seconds of processor.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import snnlib
from snnlib.exchange import export_c, unroll_spikes, verify_unrolled

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))
from graded_nets import graded_net


def main() -> int:
    """Compares the nets and prints the sums over all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", type=int, default=200)
    parser.add_argument("--c", action="store_true")
    options = parser.parse_args()
    spikes = flips = answers = integers = wrong = 0
    for seed in range(options.nets):
        net, x = graded_net(seed)
        y, unrolled = net(x), unroll_spikes(net, x)
        report = verify_unrolled(net, unrolled, x)
        small = snnlib.to_integers(net, x, scale="power-of-two", state_bits=32)
        spikes += sum(layer.spikes.total for layer in report.layers if layer.spikes is not None)
        flips += sum(layer.flips for layer in report.layers)
        answers += int((unrolled(x).sum(0).argmax(1) != y.sum(0).argmax(1)).sum())
        integers += int((small(x) != y).sum())
        if options.c:
            with tempfile.TemporaryDirectory() as folder:
                export_c(small, folder, x, binary=False)
                command = ("make", "-s", "check", "CFLAGS=-O1 -march=native")
                wrong += (
                    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode
                    != 0
                )
    print(
        f"{options.nets} nets, {spikes:,} spikes: {flips} differ in virtual steps, {answers} answers; "
        f"{integers} outputs differ in integers" + (f", {wrong} C programs" if options.c else "")
    )
    return int(any((flips, answers, integers, wrong)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
