"""A setting that an environment variable or `with` blocks make for the whole process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from snnlib.checks import check_choice

T = TypeVar("T", bound=str)


class ProcessSetting(Generic[T]):
    """Process-wide choice of a word: by the innermost open block, else by an environment variable.

    For the whole process and not for a thread: backward passes of GPU tensors run in threads of torch's own. Blocks of
    several threads may end in any order; when all have ended, the variable holds again. Without it, or where it is
    empty, the first word holds.

    >>> mode = ProcessSetting("SNNLIB_MODE", ("slow", "fast"))
    >>> with mode.use("fast", "mode"):
    ...     mode.value
    'fast'
    >>> mode.value
    'slow'
    """

    def __init__(self, variable: str, words: tuple[T, ...]) -> None:
        default = os.environ.get(variable) or words[0]
        check_choice(f"environment variable {variable}", default, *words)
        self.value: T = default  # type: ignore[assignment]
        self._words, self._default = words, self.value
        self._open: list[tuple[object, T]] = []
        self._lock = threading.Lock()

    @contextmanager
    def use(self, value: T, name: str) -> Iterator[None]:
        """Lets `value` hold within the block; `name` is that of the argument."""
        check_choice(name, value, *self._words)
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
