"""A setting that `with` blocks make for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessSetting(Generic[T]):
    """A value, `default` or that of the block that began last and has not ended.

    For the whole process and not for a thread: backward passes of GPU tensors run in threads of torch's own. Blocks of
    several threads may end in any order; when all have ended, the default holds again.

    >>> mode = ProcessSetting("slow")
    >>> with mode.use("fast"):
    ...     mode.value
    'fast'
    >>> mode.value
    'slow'
    """

    def __init__(self, default: T) -> None:
        self.value = default
        self._default = default
        self._open: list[tuple[object, T]] = []
        self._lock = threading.Lock()

    @contextmanager
    def use(self, value: T) -> Iterator[None]:
        """Let `value` hold within the block."""
        block = object()
        with self._lock:
            self._open.append((block, value))
            self.value = value
        try:
            yield
        finally:
            with self._lock:
                self._open = [other for other in self._open if other[0] is not block]
                self.value = self._open[-1][1] if self._open else self._default
