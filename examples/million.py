"""A million recurrent neurons with a hundred million connections learn on a laptop's CPU: was the second cue the first?

    python examples/million.py [--neurons 1000000] [--steps 40] [--rewire]

A cue of 5 steps on one of two groups of inputs, 10 silent steps, a second cue: the classes are "the same" and
"another". Each neuron has 100 recurrent connections to neurons drawn at random, whatever their number. Time and memory
of a step follow spikes, neurons near their threshold and connections that exist: a full matrix of a million neurons
alone would have 4 TB. Nets of every size learn alike: input and recurrent weights, whose number for each neuron stays,
have one learning rate, and that of the read-out, which adds up all neurons, is divided by their number.
"""

import argparse
import resource
import time

import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate
from snnlib.learning import Rewiring

CUE, DELAY, ANSWER = 5, 10, 5
STEPS = 2 * CUE + DELAY + ANSWER
GROUP, INPUT_RATE = 20, 0.3
CONNECTIONS = 100


def trials(count: int) -> tuple[Tensor, Tensor]:
    """Spikes [T, count, 2 GROUP] and classes: a multiple of four trials, each pair of cues as often."""
    cues = torch.stack((torch.arange(count) % 2, torch.arange(count) // 2 % 2))
    x = torch.zeros(STEPS, count, 2, GROUP)
    for start, cue in zip((0, CUE + DELAY), cues, strict=True):
        x[start : start + CUE, torch.arange(count), cue] = (
            torch.rand(CUE, count, GROUP) < INPUT_RATE
        ).float()
    return x.flatten(2), (cues[0] == cues[1]).long()


class Net(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        # A narrow shape: a step backward reads the connections of every neuron within it.
        shape = surrogate.Triangle(width=0.5, height=0.4)
        neuron = neurons.CubaLIF(tau_m=neurons.log_uniform(10, 40, size), tau_s=5.0, surrogate=shape)
        self.hidden = snnlib.SpikingRNN(
            2 * GROUP,
            size,
            neuron=neuron,
            connections=snnlib.Sparse(density=0.25),
            recurrent_connections=snnlib.Sparse(fan_out=min(CONNECTIONS, size)),
        )
        with torch.no_grad():
            # About 2 % of the neurons then fire in a step, however many there are.
            self.hidden.layers[0].weight.mul_(0.8)
        self.scores = nn.Linear(size, 2)
        # Scores begin at 0 and grow with what is learned, not with the number of neurons.
        nn.init.zeros_(self.scores.weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        spikes = self.hidden(x)
        return self.scores(spikes[-ANSWER:].mean(0)), spikes


@torch.no_grad()
def tested(net: Net, batches: int = 50) -> tuple[float, float]:
    """Share of right answers to new trials, and of neurons that fire in a step."""
    right, rate = 0.0, 0.0
    for _ in range(batches):
        x, classes = trials(4)
        scores, spikes = net(x)
        right += float((scores.argmax(1) == classes).float().mean()) / batches
        rate += float(spikes.mean()) / batches
    return right, rate


options = argparse.ArgumentParser()
options.add_argument("--neurons", type=int, default=1_000_000)
options.add_argument("--steps", type=int, default=40)
options.add_argument(
    "--rewire", action="store_true", help="move dormant connections while it learns (DEEP R)"
)
given = options.parse_args()
torch.manual_seed(0)
start = time.time()
net = Net(given.neurons)
weights = list(net.hidden.parameters())
print(
    f"{given.neurons:,} neurons, {sum(map(torch.numel, weights)):,} connections, built in {time.time() - start:.0f} s"
)
groups = [{"params": weights, "lr": 5e-3}, {"params": net.scores.parameters(), "lr": 20 / given.neurons}]
# Gradients of single weights are small where there are many.
optimizer = torch.optim.Adam(groups, eps=1e-15)
rewiring = Rewiring(net, every=10) if given.rewire else None
start = time.time()
for step in range(1, given.steps + 1):
    x, classes = trials(4)
    loss = nn.functional.cross_entropy(net(x)[0], classes)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    moved = rewiring.step(optimizer) if rewiring else 0
    if step % 10 == 0:
        print(
            f"step {step}: loss {loss:.3f}, {(time.time() - start) / step:.2f} s a step, {moved} moved",
            flush=True,
        )
right, rate = tested(net)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(
    f"{right:.1%} of new trials are right, {rate:.1%} of the neurons fire in a step, peak memory {peak:.1f} GB"
)
assert right >= 0.9, "the net did not learn"
