"""The answer of a reader or writer of nets to a module that it cannot take."""


class Unsupported(ValueError):  # noqa: N818 - an answer, not a failure
    """A module that has no counterpart here; the message says why."""
