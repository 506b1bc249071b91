"""Pages that need another library are skipped where it is not installed; `make test-peers` runs them."""

from importlib.util import find_spec

import pytest

NEEDS = {"from-snntorch.md": "snntorch"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        library = NEEDS.get(item.path.name)
        if library and find_spec(library) is None:
            item.add_marker(
                pytest.mark.skip(reason=f"{library} is not installed: make test-peers runs this page")
            )
