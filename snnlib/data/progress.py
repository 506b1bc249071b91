"""A progress bar where tqdm is installed, as the extras bring it; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, description: str, unit: str, show: bool) -> Iterator[Callable[[], object]]:
    """A bar for the length of a block; a call of what it gives says that one more unit is done."""
    try:
        from tqdm import tqdm  # noqa: PLC0415
    except ImportError:
        yield lambda: None
        return
    with tqdm(total=total, desc=description, unit=unit, disable=not show) as bar:
        yield bar.update
