"""Entry point of the `snnlib` command: what it says where its packages are not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. `doctor` needs no package beside torch; the others say what to install, with exit code 2."""
    try:
        from snnlib.app import cli  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "snnlib":
            raise
        given = list(sys.argv[1:] if arguments is None else arguments)
        if given == ["doctor"]:
            from snnlib.inspect.environment import print_report  # noqa: PLC0415

            print_report()
            return
        print(
            f"error: the command needs the package {error.name}, which is not installed: pip install 'snnlib[train]'",
            file=sys.stderr,
        )
        sys.exit(2)
    cli.main(arguments)


if __name__ == "__main__":
    main()
