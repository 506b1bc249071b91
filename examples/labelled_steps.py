"""A label for every time step: the six phases of a heartbeat, from four channels of spikes.

Of each lead of a made-up electrocardiogram, one channel fires where it has risen by a level since its last spike, one
where it has fallen. After the QTDB task of Yin et al., Nature Machine Intelligence 2021.
"""

import torch
from torch import Tensor, nn

import snnlib

# Unit: beats. Ends of the phases; centres and widths of the waves P, Q, R, S, T, and their heights in both leads.
PHASES = {"P": 0.14, "PQ": 0.22, "QR": 0.27, "RS": 0.32, "ST": 0.62, "TP": 1.0}
CENTRES, WIDTHS = torch.tensor([[0.08, 0.22, 0.26, 0.3, 0.5], [0.025, 0.01, 0.012, 0.012, 0.05]])
HEIGHTS = torch.tensor([[0.2, -0.15, 1.0, -0.3, 0.35], [0.1, 0.1, -0.6, 0.3, 0.25]])


def recordings(count: int, steps: int = 1301, level: float = 0.045) -> tuple[Tensor, Tensor]:
    """Spikes [steps, count, 4] and the phase of each step [steps, count]; a beat takes 180 to 240 steps and wavers."""
    pace = 1 + 0.1 * torch.randn(steps, count)
    phase = (pace.cumsum(0) / (180 + 60 * torch.rand(count)) + torch.rand(count)) % 1
    waves = torch.exp(-(((phase.unsqueeze(2) - CENTRES) / WIDTHS) ** 2) / 2)
    leads = waves @ HEIGHTS.T + 0.01 * torch.randn(steps, count, 2)
    last, spikes = leads[0], []
    for lead in leads:
        up, down = lead > last + level, lead < last - level
        last = torch.where(up | down, lead, last)
        spikes.append(torch.cat((up, down), 1))
    return torch.stack(spikes).float(), torch.bucketize(phase, torch.tensor([*PHASES.values()]), right=True)


class Net(nn.Module):
    # Steps depend on one another through the layers alone: the net streams.
    mixes_time = False

    def __init__(self) -> None:
        super().__init__()
        # Side by side they remember for different times.
        self.hidden = nn.ModuleList(snnlib.SRMLinear(4, 32, tau_m=m, tau_s=m / 2) for m in (4, 10, 30, 80))
        self.mixed = snnlib.SRMLinear(128, 64, tau_m=20, tau_s=10)
        self.read = snnlib.SRMReadout(192, len(PHASES), tau_m=10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.cat([layer(x) for layer in self.hidden], 2)
        return self.read(torch.cat((hidden, self.mixed(hidden)), 2))


torch.manual_seed(0)
(train, labels), (test, test_labels) = recordings(200), recordings(60)  # 8 % of the inputs are spikes
net = Net()
snnlib.prepare_(net, train[:, :25], 0.05, gain=False)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(5):
    for batch in torch.randperm(train.shape[1]).split(20):
        optimizer.zero_grad()
        snnlib.losses.tet_loss(net(train[:, batch]), labels[:, batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = net(test).argmax(2) == test_labels
    recall = [f"{name} {right[test_labels == i].float().mean():.0%}" for i, name in enumerate(PHASES)]
    print(f"epoch {epoch + 1}: {right.float().mean():.1%} of the test steps are right:", *recall)
assert right.float().mean() > 0.8, "the net did not learn"
