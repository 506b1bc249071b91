"""Nets that a loss drives to fire always, or that guess, are told what to change, and the advice works."""

import math
import re
import warnings
from collections.abc import Callable, Iterable
from itertools import islice

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

import snnlib
from snnlib.learning.preparing.report import Preparation
from snnlib.neurons import LIF, CubaLIF, Neuron

NEURONS: dict[str, Callable[[], Neuron]] = {"LIF": LIF, "CubaLIF": CubaLIF}
Loss = Callable[[Tensor, Tensor], Tensor]


def _events() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    x = torch.rand(20, 40, 60, generator=generator) < 0.05
    for sample, label in enumerate(labels.tolist()):
        x[:, sample, 5 * label : 5 * label + 5] |= torch.rand(20, 5, generator=generator) < 0.2
    return x.float(), labels


def _net(neuron: Callable[[], Neuron] = LIF) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SpikingLinear(60, 50, neuron=neuron()), snnlib.SpikingLinear(50, 4, neuron=neuron())
    )


def _train(net: nn.Module, rate: float, loss: Loss, updates: int = 60) -> tuple[list[str], float]:
    """Warnings of a training, and the last accuracy."""
    x, labels = _events()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(updates):
            counts = snnlib.readout.spike_count(net(x))
            optimizer.zero_grad()
            loss(counts, labels).backward()
            optimizer.step()
    accuracy = float((counts.argmax(1) == labels).float().mean())
    return [str(warning.message) for warning in caught], accuracy


def _up(counts: Tensor, _: Tensor) -> Tensor:
    """A loss that wants all outputs to fire, as a softmax of plain counts does by its first steps."""
    return -counts.mean()


def _prepared(neuron: Callable[[], Neuron] = LIF) -> tuple[nn.Module, Preparation]:
    net = _net(neuron)
    return net, snnlib.prepare_(net, _events()[0])


@pytest.mark.parametrize("neuron", NEURONS)
def test_outputs_that_always_fire_are_given_a_loss_that_learns(neuron: str) -> None:
    net, report = _prepared(NEURONS[neuron])
    said, _ = _train(net, report.learning_rate, _up)
    (text,) = [text for text in said if text.startswith("1: ")]
    assert re.match(r"1: fires in \d+% of all steps in training batch \d+; ", text)
    (call,) = re.findall(r"snnlib\.losses\.count_cross_entropy\(.*?\)", text)
    (rate,) = re.findall(r"report\.learning_rate", text)
    net, report = _prepared(NEURONS[neuron])
    given = {"snnlib": snnlib, "report": report}
    said, accuracy = _train(
        net,
        eval(rate, given),
        lambda counts, labels: eval(call, {**given, "counts": counts, "labels": labels}),
    )
    assert not said and accuracy > 0.9


def test_a_rate_too_high_is_named_with_the_one_of_the_report() -> None:
    net, report = _prepared()
    said, _ = _train(net, 10 * report.learning_rate, _up)
    (text,) = [text for text in said if text.startswith("1: fires in ")]
    moved, wanted = map(float, re.findall(r"by (\S+) in a step: .*snnlib.prepare_, (\S+)$", text)[0])
    assert wanted == pytest.approx(report.learning_rate, rel=0.05)
    assert moved == pytest.approx(10 * report.learning_rate, rel=0.2)


def _entropy(report: Preparation) -> Loss:
    return lambda counts, labels: snnlib.losses.count_cross_entropy(counts, labels, scale=report.logit_scale)


@pytest.mark.parametrize(("weight", "word"), [(20.0, "fires in 99% of all steps"), (-1.0, "no neuron fired")])
def test_first_layers_that_always_or_never_fire_are_given_prepare(weight: float, word: str) -> None:
    net = _net()
    nn.init.constant_(net[0].weight, weight)
    x, _ = _events()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(31):
            net(x).sum().backward()
    (text,) = [str(one.message) for one in caught if "SpikingLinear( 60" in str(one.message)]
    assert word in text and "call snnlib.prepare_(net, x) on a batch of training data" in text
    net, report = _prepared()
    said, accuracy = _train(net, report.learning_rate, _entropy(report))
    assert not said and accuracy > 0.9


@pytest.mark.parametrize(("updates", "warned"), [(99, 0), (100, 1), (300, 1)])
def test_a_loss_at_that_of_guessing_is_named_once(updates: int, warned: int) -> None:
    net, report = _prepared()
    report.logit_scale *= 10
    said, _ = _train(net, 0.0, _entropy(report), updates)
    assert len(said) == warned
    assert all(f"ln(4) = {math.log(4):.2f}" in text and "snnlib.prepare_(net, x)" in text for text in said)


def test_potentials_at_that_of_guessing_are_named() -> None:
    layer = nn.Linear(6, 3)
    with pytest.warns(UserWarning, match=r"^loss: expected less than ln\(3\) = 1\.10"):
        for _ in range(100):
            potential = 0 * layer(torch.ones(5, 2, 6))
            snnlib.losses.tet_loss(potential, torch.tensor([0, 2])).backward()


@pytest.mark.parametrize(("before", "warned"), [(8.0, False), (1.1, True)])
def test_a_loss_that_falls_far_is_quiet(before: float, warned: bool) -> None:
    """Outputs with a deadline begin far above a guess while they are silent."""
    times = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in range(100):
            scale = before if call < 50 else 1.0
            snnlib.losses.first_spike_loss(times, torch.tensor([0, 1]), scale=scale)
    assert bool(caught) == warned


@pytest.mark.parametrize(
    ("samples", "classes", "share", "first"),
    [
        (4, 10, 0.95, 100),
        (4, 10, 0.9, 0),
        (4, 40, 0.95, 250),
        (1, 10, 0.95, 250),
        (25, 10, 0.95, 100),
        (25, 10, 0.93, 0),
        (25, 40, 0.95, 250),
        (25, 10, 0.995, 100),
    ],
)
def test_a_loss_that_falls_slowly_is_named(samples: int, classes: int, share: float, first: int) -> None:
    """Each class has had 20 samples in the window before the one that warns, or 100 in batches of ten and more."""
    logits = nn.Parameter(torch.zeros(samples, classes))
    labels = torch.arange(samples) % classes
    loss = share * math.log(classes)
    # ln(1 + (C - 1) exp(-a)) for a logit a of the label.
    with torch.no_grad():
        logits[range(samples), labels] = math.log((classes - 1) / math.expm1(loss))
    said: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in range(1, 301):
            snnlib.losses.count_cross_entropy(logits, labels, scale=1.0)
            said += [call] * (len(caught) - len(said))
    assert said == [first] * bool(first)
    said_of = f"batches of {samples} samples learn slowly" if samples < 10 else "begin anew with report"
    assert all(said_of in str(one.message) for one in caught)


def test_the_advice_for_small_batches_is_quiet_and_learns() -> None:
    """SGD at a hundredth of its rate learns slowly in batches of 4; Adam at the rate of the report does not."""
    x, labels = _events()
    accuracies = {}
    for name, gain in (("SGD", False), ("Adam", True)):
        net, order = _net(), torch.Generator().manual_seed(1)
        report = snnlib.prepare_(net, x[:, :4], gain=gain)
        rate = report.learning_rate * (1 if gain else 0.01)
        optimizer = getattr(torch.optim, name)(net.parameters(), lr=rate)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(100):
                if step % 10 == 0:
                    shuffled = torch.randperm(40, generator=order)
                chosen = shuffled[step % 10 * 4 :][:4]
                optimizer.zero_grad()
                _entropy(report)(snnlib.readout.spike_count(net(x[:, chosen])), labels[chosen]).backward()
                optimizer.step()
        told = [str(one.message) for one in caught if "learn slowly" in str(one.message)]
        assert bool(told) != gain and all("Adam at report.learning_rate" in text for text in told)
        with torch.no_grad():
            counts = snnlib.readout.spike_count(net(x))
        accuracies[name] = float((counts.argmax(1) == labels).float().mean())
    assert accuracies["Adam"] > max(0.8, accuracies["SGD"]), accuracies


def test_losses_of_two_nets_and_evaluations_are_apart() -> None:
    nets = [_prepared() for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(150):
            net, report = nets[step % 2]
            x, labels = _events()
            _entropy(report)(snnlib.readout.spike_count(net(x)), labels).backward()
            net.zero_grad()
        with torch.no_grad():
            for _ in range(100):
                snnlib.losses.count_cross_entropy(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))


def _told_of_order(batches: Iterable[tuple[Tensor, Tensor]], loss: str = "count") -> list[str]:
    """Warnings of three batches `[T, N, ...]` of digits that train a net, prepared on the first."""
    net, report = nn.Sequential(nn.Flatten(2), snnlib.SpikingLinear(2312, 10, neuron=LIF())), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x, labels in islice(batches, 3):
            report = report or snnlib.prepare_(net, x)
            if loss == "count":
                _entropy(report)(snnlib.readout.spike_count(net(x)), labels).backward()
            else:
                snnlib.losses.tet_loss(net(x), labels).backward()
    return [str(one.message) for one in caught if str(one.message).startswith("target: expected shuffled")]


@pytest.fixture(scope="module")
def digits() -> Dataset[tuple[Tensor, Tensor]]:
    """The embedded digits, whose order is that of their classes."""
    frames = snnlib.data.ToFrames(time_steps=10, step_us=30_000)
    return snnlib.data.EventDigits(transform=frames, progress=False)


def _loader(
    data: Dataset[tuple[Tensor, Tensor]], seed: int | None, size: int = 50
) -> Iterable[tuple[Tensor, Tensor]]:
    order = torch.Generator().manual_seed(seed or 0)
    return DataLoader(
        data, size, shuffle=seed is not None, generator=order, collate_fn=snnlib.data.stack_time_first
    )


@pytest.mark.parametrize("loss", ["count", "tet"])
def test_digits_sorted_by_class_are_named_and_the_advice_is_quiet(
    digits: Dataset[tuple[Tensor, Tensor]], loss: str
) -> None:
    (text,) = _told_of_order(_loader(digits, None), loss)
    assert "got labels in" in text or "one class each" in text
    assert "DataLoader(..., shuffle=True)" in text and "prepare_(net, x) with a shuffled batch" in text
    assert not any(_told_of_order(_loader(digits, seed), loss) for seed in range(3))


def test_classes_that_cross_a_batch_and_folders_in_any_order_are_named(
    digits: Dataset[tuple[Tensor, Tensor]],
) -> None:
    starts = (130, 144, 300)
    crossing = Subset(digits, [start + i for start in starts for i in range(25)])
    assert "ascending order" in _told_of_order(_loader(crossing, None, 25))[0]
    folders = Subset(digits, [start + i for start in (900, 20, 450) for i in range(25)])
    assert "one class each" in _told_of_order(_loader(folders, None, 25))[0]


def test_batches_of_few_samples_and_labels_by_step_tell_no_order(
    digits: Dataset[tuple[Tensor, Tensor]],
) -> None:
    assert not _told_of_order(_loader(digits, None, 1))
    assert not _told_of_order(_loader(digits, None, 9))
    x, _ = next(iter(_loader(digits, 0, 25)))
    by_step = torch.full((10, 25), 9)
    assert not _told_of_order([(x, by_step)] * 3, "tet")
