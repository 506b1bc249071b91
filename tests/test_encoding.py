"""Encoders: what each code says, by its definition; both layouts, dtypes, bad input."""

import math
from typing import Any

import pytest
import torch

from snnlib import encoding


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_direct_is_the_values_at_every_step() -> None:
    values = torch.randn(2, 3, 4, generator=_generator())
    out = encoding.direct(values, 5)
    assert out.shape == (5, 2, 3, 4) and all(torch.equal(step, values) for step in out)
    assert out.untyped_storage().nbytes() == values.untyped_storage().nbytes()


def test_rates_are_the_values() -> None:
    values = torch.linspace(0, 1, 11).expand(4, 11)
    spikes = encoding.rate(values, 4000, generator=_generator())
    assert set(spikes.unique().tolist()) == {0.0, 1.0}
    # Five standard errors of a rate over 16000 draws.
    assert (spikes.mean((0, 1)) - values[0]).abs().max() < 5 * 0.5 / math.sqrt(16000)
    assert spikes[..., 0].sum() == 0 and spikes[..., -1].min() == 1
    assert torch.equal(spikes, encoding.rate(values, 4000, generator=_generator()))


@pytest.mark.parametrize("tau", [None, 3.0])
def test_larger_values_fire_earlier_and_once(tau: float | None) -> None:
    values = torch.linspace(0, 1, 50).unsqueeze(0)
    spikes = encoding.latency(values, 20, tau=tau, threshold=0.1)
    assert spikes.sum(0).tolist() == (values > 0.1).float().tolist()
    fired = values[0][values[0] > 0.1]
    steps = spikes.argmax(0)[0][values[0] > 0.1]
    assert (steps.diff() <= 0).all() and steps[0] > 10 * steps[-1] == 0
    for value, step in zip(fired.tolist(), steps.tolist(), strict=True):
        time = 19 * (1 - value) / 0.9 if tau is None else tau * math.log(value / (value - 0.1))
        assert abs(step - time) <= 0.5 + 1e-4


def test_delta_follows_the_signal() -> None:
    signal = torch.randn(200, 3, 2, generator=_generator()).cumsum(0) / 4
    events = encoding.delta(signal, 0.25, polarity=False)
    level = signal[0] + 0.25 * events.cumsum(0)
    assert (signal - level).abs().max() < 0.25 + 1e-5
    assert torch.equal(events, events.round()) and events.min() < 0 < events.max()
    falls, rises = encoding.delta(signal, 0.25).unbind(2)
    assert torch.equal(rises - falls, events) and (rises * falls).sum() == 0


def test_population_neurons_fire_by_their_distance() -> None:
    values = torch.tensor([[0.0, 1.0], [0.5, 0.25]])
    spikes = encoding.population(values, 50, 6, beta=1.0)
    assert spikes.shape == (50, 2, 12)
    assert spikes.sum(0).max() == 1
    centers = [(index - 0.5) / 4 for index in range(6)]
    for sample, feature in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for index, center in enumerate(centers):
            response = math.exp(-0.5 * ((float(values[sample, feature]) - center) * 4) ** 2)
            step = round(49 * (1 - response))
            expected = [step] if step < 49 else []
            assert spikes[:, sample, 6 * feature + index].nonzero().flatten().tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_layouts_and_dtypes(dtype: torch.dtype) -> None:
    values = torch.rand(3, 4, generator=_generator()).to(dtype)
    signal = torch.randn(6, 3, 4, generator=_generator()).to(dtype)
    for time_first, batch_first in (
        (encoding.direct(values, 6), encoding.direct(values, 6, batch_first=True)),
        (
            encoding.rate(values, 6, generator=_generator()),
            encoding.rate(values, 6, generator=_generator(), batch_first=True),
        ),
        (encoding.latency(values, 6), encoding.latency(values, 6, batch_first=True)),
        (encoding.delta(signal, 0.5), encoding.delta(signal.transpose(0, 1), 0.5, batch_first=True)),
        (encoding.population(values, 6, 4), encoding.population(values, 6, 4, batch_first=True)),
    ):
        assert time_first.dtype == dtype and time_first.shape[:2] == (6, 3)
        assert torch.equal(time_first.transpose(0, 1), batch_first)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("rate", (torch.tensor([1.5]), 3), r"values: expected numbers in \[0, 1\], got 1.5 to 1.5"),
        ("rate", (torch.tensor([math.nan]), 3), r"values: expected numbers in \[0, 1\]"),
        ("rate", (torch.tensor([0.5]), 0), r"time_steps: expected an integer >= 1, got 0"),
        ("latency", (torch.tensor([-0.5]), 3), r"values: expected numbers in \[0, 1\]"),
        ("delta", (torch.zeros(3, 1), 0.0), r"threshold: expected a finite number > 0, got 0"),
        ("delta", (torch.zeros(3), 1.0), r"signal: expected \[T, N, \.\.\.\]"),
        ("population", (torch.zeros(3, 1), 3, 2), r"neurons: expected an integer >= 3, got 2"),
        ("population", (torch.zeros(3), 3, 4), r"values: expected \[N, F, \.\.\.\]"),
    ],
)
def test_bad_input(name: str, arguments: tuple[Any, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        getattr(encoding, name)(*arguments)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="values: expected a floating dtype"):
        encoding.rate(torch.ones(2, dtype=torch.int64), 3)


def test_population_refuses_nan() -> None:
    with pytest.raises(ValueError, match="values: expected numbers, got NaN"):
        encoding.population(torch.tensor([[float("nan")]]), 5, 4)
