"""What `mkdocs build` asks for while it writes the pages of `docs/site/pages.py`."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Entries of the navigation that are patterns become their pages, in alphabetical order."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def _expanded(entries: list[Any], root: Path) -> list[Any]:
    made: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            made.append({title: _expanded(pages, root) for title, pages in entry.items()})
        elif "*" in entry:
            made += sorted(str(page.relative_to(root)) for page in root.glob(entry))
        else:
            made.append(entry)
    return made
