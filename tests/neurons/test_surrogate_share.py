"""A target share of active steps: measured where the neurons run, held by the controller, frozen in eval mode."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate


def _neuron(
    share: float | None = 0.05, model: type[neurons.SpikingNeuron] = neurons.LIF
) -> neurons.SpikingNeuron:
    return model(surrogate=surrogate.Triangle(share=share))  # type: ignore[call-arg]


def _events(seed: int = 1) -> Tensor:
    return (torch.rand(10, 4, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) < 0.3).float()


def _conv() -> nn.Conv2d:
    conv = nn.Conv2d(3, 6, 3, bias=False)
    conv.weight.data.mul_(12)
    return conv


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "layer": lambda: nn.Sequential(snnlib.SpikingConv2d(3, 6, 3, neuron=_neuron())),
    "two states": lambda: nn.Sequential(snnlib.SpikingConv2d(3, 6, 3, neuron=_neuron(model=neurons.CubaLIF))),
    "by step": lambda: nn.Sequential(
        snnlib.PerStep(_conv()), neurons.KLIF(scale_reset=True, surrogate=surrogate.Triangle(share=0.05))
    ),
    "products": lambda: nn.Sequential(snnlib.PerStep(_conv()), _neuron(model=neurons.Izhikevich)),
    "ALIF": lambda: nn.Sequential(snnlib.PerStep(_conv()), _neuron(model=neurons.ALIF)),
    "batch norm": lambda: nn.Sequential(snnlib.PerStep(_conv(), nn.BatchNorm2d(6)), _neuron()),
    "batch norm, fused": lambda: snnlib.fuse_(
        nn.Sequential(snnlib.PerStep(_conv(), nn.BatchNorm2d(6)), _neuron(), snnlib.AvgPool2d(2))
    ),
}


@pytest.mark.parametrize("name", list(NETS))
def test_the_share_is_held(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]()
    (key,) = (key for key in net.state_dict() if key.endswith("surrogate_width"))
    assert float(net.state_dict()[key]) == 0.5
    shares = []
    for seed in range(40):
        net(_events(seed))
        (share,) = surrogate.update_widths_(net).values()
        shares.append(share)
    assert abs(shares[0] - 0.05) > 0.01
    assert sum(shares[-5:]) / 5 == pytest.approx(0.05, abs=0.01)
    width = float(net.state_dict()[key])
    assert width != 0.5
    assert surrogate.update_widths_(net) == {}
    net.eval()
    net(_events())
    with torch.no_grad():
        net.train()(_events())
    assert surrogate.update_widths_(net) == {} and float(net.state_dict()[key]) == width


def test_the_share_of_a_layer_is_counted_by_hand() -> None:
    """Half width 0.5: potentials between 0.5 and 1.5 thresholds."""
    layer = snnlib.SpikingLinear(1, 5, neuron=neurons.LIF(1.0, surrogate=surrogate.Triangle(share=0.1)))
    layer.weight.data.copy_(torch.tensor([[0.25], [0.75], [1.25], [2.0], [-1.0]]))
    layer(torch.ones(4, 2, 1))
    assert surrogate.update_widths_(layer) == {"neuron": pytest.approx(2 / 5)}
    assert float(layer.neuron.surrogate_width) == pytest.approx(0.5 / 1.25)


def test_gradients_are_those_of_the_width() -> None:
    """Native kernels, `step` and a surrogate with this width as a number agree."""
    torch.manual_seed(0)
    current = torch.randn(8, 3, 5)
    own, fixed = _neuron(), neurons.LIF(surrogate=surrogate.Triangle(0.3))
    own.surrogate_width.fill_(0.3)
    results = []
    for run in (own.run, own.reference, fixed.run):
        x = current.clone().requires_grad_()
        run(x).value.square().sum().backward()
        results.append(x.grad)
    assert results[0].abs().sum() > 0
    for grad in results[1:]:
        torch.testing.assert_close(grad, results[0], rtol=1e-6, atol=1e-7)


def test_it_travels_with_the_net_and_bad_shares_are_refused() -> None:
    net = NETS["layer"]()
    net(_events())
    surrogate.update_widths_(net)
    other = NETS["layer"]()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other[0].neuron.surrogate_width, net[0].neuron.surrogate_width)
    assert net.half()[0].neuron.surrogate_width.dtype == torch.float64
    for share in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match=rf"share: expected a number in \(0, 1\), got {share}"):
            surrogate.Triangle(share=share)
