"""All combinations of a library, a way into `convert` and a surrounding, and pairs of surroundings."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

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


def paired(library: str, form: str, repeats: int = 1, made: Sequence[str] = ()) -> Iterator[Plan]:
    """Plans with two surroundings of different kinds, in which each kind occurs once or twice.

    Args:
        library: the library.
        form: the way in.
        repeats: how often all kinds are drawn.
        made: the neurons that there are; all if empty.
    """
    draws = random.Random(f"{library} {form}")
    by_kind: dict[str, list[Option]] = {}
    for option in OPTIONS:
        there = not made or option.kind != "constant" or option.name.partition(".")[0] in made
        if there and plan_of(library, form, option) is not None:
            by_kind.setdefault(option.kind, []).append(option)
    for _ in range(repeats):
        kinds = draws.sample([*by_kind], len(by_kind))
        for first, second in zip(kinds[::2], kinds[1::2] + kinds[:1], strict=False):
            # Some have no place beside each other, such as frames and a layer for vectors.
            plans = (
                plan_of(library, form, draws.choice(by_kind[first]), draws.choice(by_kind[second]))
                for _ in range(9)
            )
            yield from [plan for plan in plans if plan is not None][:1]


WAYS = [(library, form) for library, forms in FORMS.items() for form in forms]
