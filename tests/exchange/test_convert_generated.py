"""`convert` of generated nets: equal, kept or refused by name, never different; a judge of its own says which.

With the libraries installed every combination of a way in and a surrounding is asked.
"""

import importlib.util

import convert_cases
import convert_judge
import peer_kits
import pytest
from convert_nets import Plan

pytestmark = pytest.mark.filterwarnings("ignore")


def _assert_none_differs(plans: list[Plan], kit: peer_kits.SnnTorch) -> dict[str, int]:
    found = [(plan, convert_judge.outcome(plan, kit)) for plan in plans]
    wrong = [f"{plan.names}: {outcome.text}" for plan, outcome in found if outcome.kind == "different"]
    assert not wrong, "\n".join(wrong)
    kinds = [outcome.kind for _, outcome in found]
    return {kind: kinds.count(kind) for kind in ("equal", "kept", "refused", "none")}


@pytest.mark.parametrize("kind", sorted({option.kind for option in convert_cases.OPTIONS}))
@pytest.mark.parametrize(("library", "form"), convert_cases.WAYS)
def test_no_net_of_the_libraries_runs_differently(library: str, form: str, kind: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"compares with {library}, which is not installed")
    plans = [
        plan
        for plan in convert_cases.single(library, form)
        if plan.names[:1] and plan.names[0].startswith(kind)
    ]
    found = _assert_none_differs(plans, peer_kits.KITS[library]())
    # A way in that refuses everything would differ nowhere.
    assert not plans or kind in ("hook", "branch", "state", "attribute") or found["equal"] + found["kept"]


@pytest.mark.parametrize(("library", "form"), convert_cases.WAYS)
def test_no_pair_of_surroundings_runs_differently(library: str, form: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"compares with {library}, which is not installed")
    _assert_none_differs([*convert_cases.paired(library, form)], peer_kits.KITS[library]())
