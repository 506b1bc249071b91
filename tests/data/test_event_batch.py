"""Recordings as a sequence whose frames are made chunk by chunk."""

import pytest
import torch
from compare import assert_bits

from snnlib.data import EventBatch, as_events, to_frames


def _events(batch: int, count: int = 400) -> list[object]:
    generator = torch.Generator().manual_seed(3)
    draw = lambda high: torch.randint(0, high, (count,), generator=generator).numpy()  # noqa: E731
    return [as_events(t=draw(4000), x=draw(8), y=draw(8), p=draw(2)) for _ in range(batch)]


@pytest.mark.parametrize("mode", ["binary", "count"])
@pytest.mark.parametrize("late", ["clamp", "drop"])
def test_event_batch_gives_the_frames(mode: str, late: str) -> None:
    recordings = _events(3)
    options = {"step_us": 100, "sensor_size": (8, 8), "mode": mode, "late": late, "time_steps": 39}
    whole = torch.stack([to_frames(events, **options) for events in recordings], 1)
    batch = EventBatch(recordings, **options)
    parts = [batch.frames(first, min(first + 8, 39)) for first in range(0, 39, 8)]
    assert_bits(torch.cat(parts), whole)
    assert len(batch) == 3
    assert "3 recordings, " in repr(batch)


def test_event_batch_errors() -> None:
    recordings = _events(2)
    with pytest.raises(ValueError, match="events: expected at least one recording"):
        EventBatch([], step_us=100)
    with pytest.raises(
        ValueError, match=r'at most \d+ steps of 10 us, got 1\d+; as_events\(..., origin="first"\)'
    ):
        EventBatch([as_events([1_700_000_000_000_000], [1], [1], [1])], step_us=10)
    with pytest.raises(ValueError, match="events: expected all within 3 steps of 100 us, got"):
        EventBatch(recordings, step_us=100, sensor_size=(8, 8), time_steps=3, late="error")
    with pytest.raises(ValueError, match=r"events: expected field x in 0\.\.3"):
        EventBatch(recordings, step_us=100, sensor_size=(8, 4))
    with pytest.raises(ValueError, match="first, end: expected 0 <= first"):
        EventBatch(recordings, step_us=100, sensor_size=(8, 8)).frames(3, 99)


def test_events_of_a_thousand_large_recordings():
    corner = as_events([0], [1279], [719], [1])
    batch = EventBatch([corner] * 1200, step_us=10, sensor_size=(720, 1280))
    assert batch._cells.tolist() == [(number + 1) * 2 * 720 * 1280 - 1 for number in range(1200)]
