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
    for encode, given, options in (
        (encoding.direct, values, {"time_steps": 6}),
        (encoding.rate, values, {"time_steps": 6}),
        (encoding.latency, values, {"time_steps": 6}),
        (encoding.delta, signal, {"threshold": 0.5}),
        (encoding.population, values, {"time_steps": 6, "neurons": 4}),
        (encoding.at_times, values.flatten(1), {"time_steps": 6, "dt": 0.3}),
    ):
        seeded = [{"generator": _generator()} if encode is encoding.rate else {} for _ in range(2)]
        time_first = encode(given, **options, **seeded[0])
        other = given.transpose(0, 1) if encode is encoding.delta else given
        batch_first = encode(other, **options, **seeded[1], batch_first=True)
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
        ("at_times", (torch.zeros(3), 3), r"times: expected \[N, C\] or \[N, C, K\], got shape \(3,\)"),
        ("at_times", (torch.tensor([[-0.6]]), 3), r"times: expected none before the first step, got -0.6"),
        ("at_times", (torch.tensor([[0.0, 2.5]]), 3), r"expected none after the last of 3 steps, got 2.5"),
        ("population", (torch.zeros(3, 1), 3, 2), r"neurons: expected an integer >= 3, got 2"),
        ("population", (torch.zeros(3), 3, 4), r"values: expected \[N, F, \.\.\.\]"),
    ],
)
def test_bad_input(name: str, arguments: tuple[Any, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        getattr(encoding, name)(*arguments)


@pytest.mark.parametrize("late", ["error", "clamp", "drop"])
def test_spikes_stand_in_the_step_nearest_to_their_time(late: Any) -> None:
    steps = torch.randint(0, 4000, (3, 5, 7), generator=_generator())
    steps[0, 0, :2] = 11
    times = steps.double() * 0.005 + (torch.rand(steps.shape, generator=_generator()) - 0.5) * 0.0049
    times[1, 2] = math.nan
    times[2, 3] = math.inf
    times[2, 4, 0] = 1e30 if late != "error" else -math.inf
    expected = torch.zeros(4000, 3, 5)
    for n, c, k in torch.cartesian_prod(*(torch.arange(size) for size in steps.shape)).tolist():
        if (n, c, k) == (2, 4, 0):
            expected[-1, n, c] += late == "clamp"
        elif (n, c) not in ((1, 2), (2, 3)):
            expected[steps[n, c, k], n, c] += 1
    assert expected.max() > 1
    counts = encoding.at_times(times, 4000, dt=0.005, mode="count", late=late, dtype=torch.float32)
    assert torch.equal(counts, expected)
    spikes = encoding.at_times(times, 4000, dt=0.005, late=late)
    assert spikes.dtype == torch.float64 and torch.equal(spikes, expected.clamp(max=1).double())


def test_one_time_per_channel() -> None:
    steps = torch.tensor([[0, 3], [2, 2]])
    spikes = encoding.at_times(steps, 4)
    assert spikes.dtype == torch.float32 and torch.equal(spikes.argmax(0), steps) and spikes.sum() == 4
    assert encoding.at_times(steps, 4, dtype=torch.bool).dtype == torch.bool
    # Float32 times on the grid of a long sequence, where a quotient rounded down would be a step early.
    grid = torch.randint(0, 100_000, (1, 200), generator=_generator())
    spikes = encoding.at_times(grid * 0.001, 100_000, dt=0.001)
    assert torch.equal(spikes.argmax(0), grid) and not encoding.at_times(torch.zeros(0, 3, 0), 2).numel()


def test_times_refuse_what_they_cannot_say() -> None:
    with pytest.raises(ValueError, match=r"late: expected one of error, clamp, drop, got 'keep'"):
        encoding.at_times(torch.zeros(1, 1), 3, late="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dtype must hold counts up to 2, got torch.bool"):
        encoding.at_times(torch.zeros(1, 1, 2), 3, mode="count", dtype=torch.bool)
    with pytest.raises(TypeError, match=r"times: expected real numbers, got torch.bool"):
        encoding.at_times(torch.zeros(1, 1, dtype=torch.bool), 3)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="values: expected a floating dtype"):
        encoding.rate(torch.ones(2, dtype=torch.int64), 3)


def test_population_refuses_nan() -> None:
    with pytest.raises(ValueError, match="values: expected numbers, got NaN"):
        encoding.population(torch.tensor([[float("nan")]]), 5, 4)


def test_spikes_between_two_steps_are_shared() -> None:
    times = torch.tensor([[0.25, 0.3], [0.0, float("nan")]], dtype=torch.float64)
    x = encoding.at_times(times, 5, dt=0.1, mode="shared")
    expected = torch.zeros(5, 2, 2, dtype=torch.float64)
    expected[2, 0, 0] = expected[3, 0, 0] = 0.5
    expected[3, 0, 1] = expected[0, 1, 0] = 1.0
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-12)
    # Two spikes of one channel are added up.
    both = encoding.at_times(torch.tensor([[[1.25, 1.5]]]), 4, mode="shared")
    assert both.flatten().tolist() == [0.0, 1.25, 0.75, 0.0]
    with pytest.raises(ValueError, match=r"^times: expected none after the last of 2 steps"):
        encoding.at_times(torch.tensor([[1.5]]), 2, mode="shared")
    assert encoding.at_times(torch.tensor([[1.5]]), 2, mode="shared", late="drop").flatten().tolist() == [
        0,
        0.5,
    ]
    with pytest.raises(TypeError, match=r"^dtype: expected a floating-point dtype"):
        encoding.at_times(torch.tensor([[1.5]]), 3, mode="shared", dtype=torch.int64)
