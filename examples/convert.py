"""A net of snnTorch trains on snnlib's kernels: converted in one line, checked spike by spike."""

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


def main() -> None:
    torch.manual_seed(0)
    digits = EventDigits(train=True, transform=ToFrames(time_steps=15, step_us=20_000))
    samples = Subset(digits, torch.randperm(len(digits))[:96].tolist())
    x, labels = next(iter(DataLoader(samples, batch_size=96, collate_fn=stack_time_first)))
    x = x.float()

    net = Net()
    converted = snnlib.convert(net, x[:, :4])
    print(snnlib.verify_conversion(net, converted, x[:, :4]))

    # The two share their weights: training the one trains the other.
    optimizer = torch.optim.Adam(converted.parameters(), 1e-3)
    for epoch in range(5):
        for batch in torch.randperm(len(labels)).split(32):
            _, potentials = converted(x[:, batch])
            loss = nn.functional.cross_entropy(potentials.mean(0), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    with torch.no_grad():
        right = (net(x)[1].mean(0).argmax(1) == labels).float().mean()
    print(f"the original, trained by its conversion, classifies {right:.0%} of these samples")


if snntorch is None:
    print("nothing to convert here: snntorch is not installed (pip install snntorch)")
else:
    main()
