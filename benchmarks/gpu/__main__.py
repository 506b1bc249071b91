"""Runs check.py as a module of the package `gpu`: `python3 benchmarks/gpu --help`."""

import sys
from pathlib import Path

# Python puts this folder in front. Its parent goes there instead: names as general as `report` stay within the package.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from gpu.check import main  # noqa: E402

sys.exit(main())
