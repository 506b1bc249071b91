"""What `mkdocs build` asks for while it writes the pages of `docs/site/pages.py`."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Sections of the navigation that are given as a pattern become its pages, in alphabetical order."""
    root = Path(config.docs_dir)
    for section in config.nav:
        if isinstance(section, dict):
            for title, pages in section.items():
                if isinstance(pages, list) and len(pages) == 1 and "*" in str(pages[0]):
                    section[title] = sorted(str(page.relative_to(root)) for page in root.glob(pages[0]))
    return config
