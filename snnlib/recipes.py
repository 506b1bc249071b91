"""Recipes under their public name; see `snnlib.app.recipes`."""

from snnlib.app.recipes import *  # noqa: F403
