"""Argument checks and the form of their errors: the argument, what was expected, what came.

The lowest package: it imports nothing of snnlib.
"""
# ruff: noqa: F403 - whoever adds a check writes its name once.

from snnlib.checks.arguments import *
from snnlib.checks.calls import *
from snnlib.checks.ops import *
from snnlib.checks.options import *
from snnlib.checks.packages import *
from snnlib.checks.tensors import *
from snnlib.checks.values import *
from snnlib.checks.warnings import *
