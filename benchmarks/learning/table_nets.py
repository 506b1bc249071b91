"""The nets of the table of learning, and how each is trained: as the documentation recommends.

- `SRM`, `CubaLIF event`: the loss, start and optimiser of `stress.recommended`; on Yin-Yang `CubaLIF` nets are those of
  `yin_yang.py`, which learn spike times; where every step has a label, the outputs are potentials;
- `LIF triangle`, `LIF ATan`: convolutional nets behind batch norm (tau 2, triangle of half width 1), squared error of
  output rates, Adam at 1e-3; on sequences (half width 0.5) one layer of LIF neurons, a linear map and leaky
  integrators, cross-entropy of their mean potential, Adam at 5e-3;
- `recurrent`: the recurrent net of `sequence_tasks.py`, and those of `examples/ecg.py` and `examples/spoken_digits.py`
  for their data.

Every learning rate falls with the cosine of the share of the time that is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sequence_tasks
import stress
import torch
from table_problems import Batch, Problem
from tasks import example
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

import snnlib
from snnlib import surrogate
from snnlib.neurons import LIF, Integrator

# Of convolutional nets, and of nets for sequences.
SURROGATES = {
    "LIF triangle": (surrogate.Triangle(1.0), surrogate.Triangle(0.5)),
    "LIF ATan": (surrogate.ATan(), surrogate.ATan()),
}
LIF_TAU = 2.0
CONV_RATE, SEQUENCE_RATE, CLIP = 1e-3, 5e-3, 1.0


@dataclass
class Way:
    """A net that is ready to be trained, and how."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Batch], Tensor]
    # `[N, classes]`, or `[T, N, classes]` where every step has a label; the highest decides.
    scores: Callable[[Batch], Tensor]
    clip: float = CLIP
    after_step: Callable[[], None] = lambda: None


def of_own_steps(output: Tensor, lengths: Tensor | None) -> Tensor:
    """Zero after the last step of each sequence."""
    if lengths is None:
        return output
    own = torch.arange(len(output))[:, None] < lengths
    return output * own[..., None]


def mean_of_own_steps(output: Tensor, lengths: Tensor | None, share: float = 1.0) -> Tensor:
    """Mean over the last share of the steps, or over each sequence's own."""
    if lengths is None:
        return output[-max(round(len(output) * share), 1) :].mean(0)
    return of_own_steps(output, lengths).sum(0) / lengths[:, None]


def of_steps(output: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy at all labelled steps."""
    return cross_entropy(output.flatten(0, 1), labels.t().flatten(), ignore_index=-1)


def by_potentials(
    problem: Problem, net: nn.Module, optimizer: torch.optim.Optimizer, recurrent: bool = False
) -> Way:
    """A net whose outputs are potentials `[T, N, classes]`."""

    def potentials(batch: Batch) -> tuple[Tensor, Batch]:
        batch = problem.for_recurrent(batch) if recurrent else batch
        return net(batch.x), batch

    def scores(batch: Batch) -> Tensor:
        output, batch = potentials(batch)
        return output if problem.per_step else mean_of_own_steps(output, batch.lengths, problem.decides)

    def loss(batch: Batch) -> Tensor:
        found = scores(batch)
        return of_steps(found, batch.labels) if problem.per_step else cross_entropy(found, batch.labels)

    return Way(net, optimizer, loss, scores)


def by_rates(problem: Problem, net: nn.Module, optimizer: torch.optim.Optimizer) -> Way:
    """A net of spiking outputs that learns by the squared error of their rates."""

    def scores(batch: Batch) -> Tensor:
        return net(batch.x).mean(0)

    def loss(batch: Batch) -> Tensor:
        return mse_loss(scores(batch), one_hot(batch.labels, problem.classes).float())

    return Way(net, optimizer, loss, scores)


def event_driven(problem: Problem, neuron: str, first: Batch) -> Way:
    of = problem.setting
    net = stress.make_net(of, neuron)
    if problem.per_step:
        net[-1] = snnlib.SRMReadout(net[-1].in_features, problem.classes, tau_m=of.tau_m, tau_s=of.tau_s)
        snnlib.prepare_(net, first.x)
        adam = torch.optim.Adam(snnlib.parameter_groups(net, CONV_RATE))
        return by_potentials(problem, net, adam)
    optimizer, loss_of, largest = stress.recommended(net, first.x, of, 1.0)
    snnlib.fuse_(net)

    def output(batch: Batch) -> Tensor:
        return of_own_steps(net(batch.x), batch.lengths)

    return Way(
        net,
        optimizer,
        lambda batch: loss_of(lambda: output(batch), batch.labels),
        lambda batch: output(batch).sum(0),
        largest,
    )


def exact_times(problem: Problem) -> Way:
    """The net of `yin_yang.py`, whose first output spike decides."""
    import yin_yang  # noqa: PLC0415

    net = yin_yang.Net(2 * yin_yang.DT, delayed=False)
    optimizer = torch.optim.Adam(yin_yang.groups_of(net))
    last: list[Tensor] = []

    def times(batch: Batch) -> Tensor:
        return net(batch.points)

    def loss(batch: Batch) -> Tensor:
        last[:] = [times(batch)]
        return yin_yang.loss_of(last[0], batch.labels)

    return Way(
        net,
        optimizer,
        loss,
        lambda batch: -times(batch),
        yin_yang.CLIP,
        after_step=lambda: yin_yang.wake_(net, last[0]),
    )


def conv_lif(problem: Problem, chosen: surrogate.Surrogate) -> nn.Sequential:
    """The problem's convolutional net with LIF neurons behind batch norm."""
    of, neuron = problem.setting, LIF(LIF_TAU, surrogate=chosen)
    return snnlib.models.from_notation(of.net, of.shape, neuron=neuron, batch_norm=True)


def sequence_lif(problem: Problem, chosen: surrogate.Surrogate) -> nn.Sequential:
    """One layer of LIF neurons with the problem's time constant, and leaky integrators."""
    of = problem.setting
    hidden = int(of.net.split("-")[0])
    layer = snnlib.SpikingLinear(of.shape[0], hidden, neuron=LIF(of.tau_m, surrogate=chosen))
    return nn.Sequential(layer, nn.Linear(hidden, problem.classes), Integrator(tau=of.tau_s))


def surrogate_lif(problem: Problem, name: str, first: Batch) -> Way:
    images = problem.setting.shape[1] > 1
    of_images, of_sequences = SURROGATES[name]
    net = conv_lif(problem, of_images) if images else sequence_lif(problem, of_sequences)
    snnlib.prepare_(net, first.x)
    rate = CONV_RATE if images else SEQUENCE_RATE
    adam = torch.optim.Adam(snnlib.parameter_groups(net, rate))
    return by_rates(problem, snnlib.fuse_(net), adam) if images else by_potentials(problem, net, adam)


def recurrent(problem: Problem, name: str, first: Batch) -> Way:
    if name == "ecg":
        module = example("ecg")
        net = module.Net("AdLIF", 128, problem.classes, False)
        snnlib.prepare_(net, first.x, 0.08)
        return by_potentials(problem, net, torch.optim.Adam(snnlib.parameter_groups(net, 2e-2)))
    if name == "spoken-digits":
        net = example("spoken_digits").Net("recurrent", 128, problem.classes)
        assert first.lengths is not None
        net.start(first.x[: int(first.lengths.min())])
        groups = snnlib.parameter_groups(net, 1e-2, weight_decay=1e-2)
        return by_potentials(problem, net, torch.optim.AdamW(groups))
    x = problem.for_recurrent(first).x
    net = sequence_tasks.make_net(x.shape[2], problem.classes, problem.longest)
    snnlib.prepare_(net, x)
    adam = torch.optim.Adam(snnlib.parameter_groups(net, SEQUENCE_RATE))
    return by_potentials(problem, net, adam, recurrent=True)


NETS: dict[str, Callable[[Problem, str, Batch], Way]] = {
    "SRM": lambda problem, _, first: event_driven(problem, "SRM", first),
    "CubaLIF event": lambda problem, name, first: (
        exact_times(problem) if name == "yin-yang" else event_driven(problem, "CubaLIF", first)
    ),
    "LIF triangle": lambda problem, _, first: surrogate_lif(problem, "LIF triangle", first),
    "LIF ATan": lambda problem, _, first: surrogate_lif(problem, "LIF ATan", first),
    "recurrent": recurrent,
}
