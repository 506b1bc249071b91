"""The answer of a reader or writer of nets to a module that it cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Unsupported(ValueError):  # noqa: N818 - an answer, not a failure
    """A module that has no counterpart here; the message says why.

    Args:
        reason: the message.
        named: whether it names the module already.
    """

    def __init__(self, reason: str, named: bool = False) -> None:
        super().__init__(reason)
        self.named = named


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Puts the module before what is raised within, unless a module inside of it stands there already.

    Raises:
        Unsupported: the named one, for an `Unsupported` or any other ValueError.
    """
    try:
        yield
    except ValueError as reason:
        if isinstance(reason, Unsupported) and reason.named:
            raise
        raise Unsupported(f"{where}: {reason}", named=True) from reason
