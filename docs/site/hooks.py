"""Hooks of `mkdocs build` for the pages of `docs/site/pages.py`."""

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
signatures: Any = importlib.import_module("signatures")
_LOG = logging.getLogger("mkdocs.hooks.signatures")


def on_config(config: Any) -> Any:
    """Entries of the navigation that are patterns become their pages, in alphabetical order."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warns, which ends a strict build, of a signature that is not the one at run time."""
    for path in signatures.wrong_on(html):
        _LOG.warning("%s: the signature of %s is not that of inspect.signature", page.file.src_path, path)
    return html


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
