"""A net of snnTorch trains on snnlib's kernels: converted in one line, checked spike by spike, timed."""

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import snnlib
from snnlib.data import EventDigits, ToFrames, stack_time_first

try:
    import snntorch
except ImportError:
    snntorch = None


class Net(nn.Module):
    """As in snnTorch's tutorials: a loop over time, explicit states, potentials for the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(2 * 34 * 34, 128), snntorch.Leaky(beta=0.9)
        self.fc2, self.lif2 = nn.Linear(128, 10), snntorch.Leaky(beta=0.9)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mem1, mem2 = self.lif1.reset_mem(), self.lif2.reset_mem()
        spikes, potentials = [], []
        for step in range(x.size(0)):
            spk1, mem1 = self.lif1(self.fc1(x[step].flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            potentials.append(mem2)
        return torch.stack(spikes), torch.stack(potentials)


def train(net: nn.Module, x: Tensor, labels: Tensor, epochs: int) -> float:
    """Seconds that it took."""
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    start = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(32):
            _, potentials = net(x[:, batch])
            loss = nn.functional.cross_entropy(potentials.mean(0), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    torch.manual_seed(0)
    digits = EventDigits(train=True, transform=ToFrames(time_steps=15, step_us=20_000))
    samples = Subset(digits, torch.randperm(len(digits))[:96].tolist())
    x, labels = next(iter(DataLoader(samples, batch_size=96, collate_fn=stack_time_first)))
    x = x.float()

    net = Net()
    # Converted it gives the same spikes; fused its layers add events, in another order than torch.
    converted = snnlib.fuse_(snnlib.convert(net, x[:, :4]))
    print(snnlib.verify_conversion(net, converted, x[:, :4]))

    other = train(Net(), x, labels, epochs=5)
    # The two share their weights: training the one trains the other.
    own = train(converted, x, labels, epochs=5)
    print(f"5 epochs took {own:.2f} s, a net of snnTorch {other:.2f} s")
    with torch.no_grad():
        right = (net(x)[1].mean(0).argmax(1) == labels).float().mean()
    print(f"the original, trained by its conversion, classifies {right:.0%} of these samples")


if snntorch is None:
    print("nothing to convert here: snntorch is not installed (pip install snntorch)")
else:
    main()
