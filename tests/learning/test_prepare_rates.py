"""The rate, clip norm and counts of `prepare_`'s report fit N and T; batches that they do not fit warn."""

import math
import re
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.neurons import ALIF, LIF


def _images(samples: int, steps: int) -> Tensor:
    image = torch.rand(samples, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    return image.expand(steps, *image.shape)


def _image_net(batch_first: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    options = {"tau_m": 5.0, "tau_s": 3.0, "batch_first": batch_first}
    return nn.Sequential(
        snnlib.SRMConv2d(1, 6, 5, **options),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMLinear(6 * 4 * 4, 10, **options),
    )


def _events(samples: int, steps: int) -> Tensor:
    return (torch.rand(steps, samples, 40, generator=torch.Generator().manual_seed(1)) < 0.1).float()


@pytest.mark.parametrize("samples", [2, 4, 20, 50, 200])
@pytest.mark.parametrize("steps", [2, 5, 10, 20, 40])
def test_rates_of_images_follow_samples_and_steps(samples: int, steps: int) -> None:
    rate = 1e-3 * min(1, math.sqrt(samples / 50)) * min(1, (5 / steps) ** 1.5)
    report = snnlib.prepare_(_image_net(), _images(samples, steps))
    assert report.learning_rate == pytest.approx(rate) and report.clip_norm == 1
    assert (report.desired, report.undesired) == (max(steps // 2, min(steps, 5)), max(steps // 15, 1))
    shown = float(re.findall(r"Adam at (\S+), gradients clipped at 1", report.advice)[0])
    assert shown == pytest.approx(rate, rel=0.05)
    assert f"desired={report.desired}, undesired={report.undesired}" in report.advice
    named = f"batches of {samples} samples and {steps} steps"
    assert (named in report.advice) == (rate < 1e-3)


def test_batch_first_exchanges_samples_and_steps() -> None:
    report = snnlib.prepare_(_image_net(batch_first=True), _images(50, 20).transpose(0, 1))
    assert report.learning_rate == pytest.approx(1e-3 / 8)


LOSSES: dict[str, tuple[Callable[[], nn.Module], bool, float]] = {
    "counts of LIF": (
        lambda: snnlib.SpikingLinear(40, 4, neuron=LIF(tau=2.0)),
        True,
        7e-4 * math.sqrt(8 / 25),
    ),
    "counts of ALIF": (
        lambda: snnlib.SpikingLinear(40, 4, neuron=ALIF(tau_m=8.0, tau_a=20.0)),
        True,
        0.3 * 7e-4 * math.sqrt(8 / 25),
    ),
    "counts of LIF, SGD": (lambda: snnlib.SpikingLinear(40, 4, neuron=LIF(tau=2.0)), False, 0.1),
    "potentials": (lambda: snnlib.SRMReadout(40, 4), True, 1e-3),
    "potentials, SGD": (lambda: snnlib.SRMReadout(40, 4), False, 0.1),
    "counts of SRM": (lambda: snnlib.SRMLinear(40, 4), True, 1e-3 * math.sqrt(8 / 25)),
    "counts of SRM, SGD": (lambda: snnlib.SRMLinear(40, 4), False, 0.1 * math.sqrt(8 / 25)),
}


@pytest.mark.parametrize("layers", [1, 3, 4, 6])
@pytest.mark.parametrize("samples", [4, 25, 100])
@pytest.mark.parametrize("steps", [10, 30, 100])
def test_rates_of_surrogate_gradients_follow_samples_steps_and_layers(
    layers: int, samples: int, steps: int
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*[snnlib.SpikingLinear(40, 40) for _ in range(layers)])
    report = snnlib.prepare_(net, _events(samples, steps))
    rate = 7e-4 * min(1, math.sqrt(samples / 25)) * min(1, math.sqrt(30 / steps)) * min(1, 3 / layers)
    assert report.learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(("samples", "factor"), [(4, 0.4), (25, 1.0), (100, 1.0)])
@pytest.mark.parametrize(("gain", "rate"), [(True, 1e-3), (False, 0.1)])
def test_rates_of_spike_times_follow_samples_alone(
    samples: int, factor: float, gain: bool, rate: float
) -> None:
    for layers, steps in ((1, 10), (6, 100)):
        torch.manual_seed(0)
        net = nn.Sequential(*[snnlib.SRMLinear(40, 40) for _ in range(layers)])
        report = snnlib.prepare_(net, _events(samples, steps), gain=gain)
        assert report.learning_rate == pytest.approx(factor * rate)
        assert (f"batches of {samples} samples" in report.advice) == (samples < 25)


def test_batch_norm_keeps_the_rate_of_deep_nets() -> None:
    torch.manual_seed(0)
    net = snnlib.models.from_notation("20-20-20-20-20-4", (40, 1, 1), neuron=LIF(), batch_norm=True)
    report = snnlib.prepare_(net, 4 * _events(25, 30)[..., None, None])
    assert report.start == "as drawn" and report.learning_rate == pytest.approx(7e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_rates_of_other_losses(name: str) -> None:
    build, gain, rate = LOSSES[name]
    report = snnlib.prepare_(nn.Sequential(snnlib.SpikingLinear(40, 40), build()), _events(8, 30), gain=gain)
    assert report.learning_rate == pytest.approx(rate)
    # No clipping, in a loop that takes the norm from the report.
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.full((3,), 1e6)
    torch.nn.utils.clip_grad_norm_([weight], report.clip_norm)
    assert torch.equal(weight.grad, torch.full((3,), 1e6))


def _train(
    x: Tensor, rate: float | None, *, of_adam: bool = True, gather: int = 1, batches: int = 3
) -> tuple[list[str], float]:
    """Warnings of a loop, and the rate of the report; `rate` None takes it."""
    net = _image_net()
    report = snnlib.prepare_(net, x)
    rate = report.learning_rate if rate is None else rate
    parameters = net.parameters()
    optimizer = torch.optim.Adam(parameters, rate) if of_adam else torch.optim.SGD(parameters, rate)
    labels = torch.arange(x.shape[1]) % 10
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(batches):
            counts = snnlib.readout.spike_count(net(x))
            wanted = {"desired": report.desired, "undesired": report.undesired}
            loss = snnlib.losses.spike_count_loss(counts, labels, **wanted, one_sided=True, reduction="sum")
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), report.clip_norm)
            if (number + 1) % gather == 0:
                optimizer.step()
                optimizer.zero_grad()
    return [str(each.message) for each in caught if "the optimiser moves" in str(each.message)], rate


@pytest.mark.parametrize(("samples", "steps"), [(4, 5), (2, 5), (50, 20), (50, 12), (4, 20)])
def test_a_rate_that_is_too_high_is_named_and_the_advice_is_right(samples: int, steps: int) -> None:
    x = _images(samples, steps)
    (said,), _ = _train(x, 1e-3)
    assert said.startswith("0: the optimiser moves the weights by 0.001 in a step")
    assert f"batches of {samples} samples of {steps} steps" in said
    advised = float(re.findall(r"lower the learning rate to (\S+),", said)[0])
    said_then, reported = _train(x, None)
    assert said_then == [] and advised == pytest.approx(reported, rel=0.05)
    assert _train(x, advised)[0] == []


@pytest.mark.parametrize(
    "options",
    [
        {"x": _images(50, 5), "rate": 1e-3},
        {"x": _images(20, 5), "rate": 1e-3},
        {"x": _images(50, 8), "rate": 1e-3},
        {"x": _images(50, 5), "rate": 3e-3},
        # Its steps are small where gradients are clipped.
        {"x": _images(4, 5), "rate": 0.01, "of_adam": False},
        # Six samples make a step.
        {"x": _images(3, 5), "rate": 1e-3, "gather": 2},
    ],
    ids=["README", "20", "8 steps", "3e-3", "SGD", "gathered"],
)
def test_rates_that_learned_are_not(options: dict[str, object]) -> None:
    assert _train(**options)[0] == []


def test_nets_that_were_standardised_by_hand_have_rates_of_their_own() -> None:
    net = snnlib.nn.standardize_weights_(_image_net(), homeostasis=True)
    optimizer = torch.optim.Adam(net.parameters(), 2e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(3):
            net(_images(4, 5)).sum().backward()
            optimizer.step()
