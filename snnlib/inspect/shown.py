"""How a notebook shows a report that is a text of several lines."""

from __future__ import annotations

from html import escape


class ShownAsText:
    """Shows in a notebook what `print` does, columns and lines as they are, in place of the object's `repr`.

    >>> class Rates(ShownAsText):
    ...     def __str__(self):
    ...         return "rate < 0.1"
    >>> Rates()._repr_html_()
    '<pre>rate &lt; 0.1</pre>'
    """

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
