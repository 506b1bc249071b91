"""All combinations of a library, a way into `convert` and a surrounding, and pairs of surroundings."""

from __future__ import annotations

import random
from collections.abc import Iterator

import convert_constants
import convert_parts
from convert_nets import FORMS, Plan
from convert_surroundings import OPTIONS, Option

# Modules that add surroundings by being imported.
ADDED = (convert_constants, convert_parts)


def plan_of(library: str, form: str, *options: Option) -> Plan | None:
    """The plan of a net; None where one of the surroundings has no place in it."""
    plan = Plan(library, form)
    for option in options:
        if not option.fits(plan):
            return None
        option.put(plan)
    return plan


def single(library: str, form: str) -> Iterator[Plan]:
    """Plans with one surrounding each, and without any."""
    plans = (plan_of(library, form, *options) for options in ((), *((option,) for option in OPTIONS)))
    return (plan for plan in plans if plan is not None)


def paired(library: str, form: str, share: float = 1.0) -> Iterator[Plan]:
    """Plans with two surroundings of different kinds, in which each surrounding occurs once.

    Args:
        library: the library.
        form: the way in.
        share: how many of them.
    """
    draws = random.Random(f"{library} {form}")
    options = [option for option in OPTIONS if plan_of(library, form, option) is not None]
    draws.shuffle(options)
    for first, second in zip(options[::2], options[1::2], strict=False):
        plan = plan_of(library, form, first, second) if first.kind != second.kind else None
        if plan is not None and draws.random() < share:
            yield plan


WAYS = [(library, form) for library, forms in FORMS.items() for form in forms]
