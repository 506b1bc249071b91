"""`convert` of generated nets: equal, kept or refused by name, never different; a judge of its own says which.

Stand-ins of the libraries' classes get pairs of surroundings in every way in; with the libraries installed every
combination of a way in and a surrounding is asked.
"""

import importlib.util

import convert_cases
import convert_judge
import convert_nets
import peer_kits
import pytest
import torch
from convert_nets import FORMS, Plan
from standin_libraries import STANDINS
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")
# Fewer and shorter sequences than with the libraries.
FEW = ((4, 3), (3, 2))


def _require(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"compares with {library}, which is not installed")


def _assert_none_differs(plans: list[Plan], kit: peer_kits.SnnTorch, few: bool = False) -> list[str]:
    sizes = FEW if few else convert_judge.SIZES
    found = [(plan, convert_judge.outcome(plan, kit, sizes)) for plan in plans]
    wrong = [f"{plan.names}: {outcome.text}" for plan, outcome in found if outcome.kind == "different"]
    assert not wrong, "\n".join(wrong)
    return [outcome.kind for _, outcome in found]


@pytest.mark.parametrize(("library", "form"), convert_cases.WAYS)
def test_no_pair_of_surroundings_differs_on_stand_ins(library: str, form: str) -> None:
    kit = peer_kits.KITS[library](STANDINS[library])
    plans = [*convert_cases.paired(library, form, made=[*vars(STANDINS[library])])]
    kinds = _assert_none_differs(plans, kit, few=True)
    assert len(kinds) >= 6
    plain = convert_judge.outcome(Plan(library, form), kit, FEW)
    assert plain.kind == ("kept" if (library, form) == ("norse", "sequence m") else "equal"), plain.text


@pytest.mark.parametrize("kind", sorted({option.kind for option in convert_cases.OPTIONS}))
@pytest.mark.parametrize(("library", "form"), convert_cases.WAYS)
def test_no_surrounding_differs(library: str, form: str, kind: str) -> None:
    _require(library)
    plans = [plan for plan in convert_cases.single(library, form) if plan.names and plan.kinds == {kind}]
    _assert_none_differs(plans, peer_kits.KITS[library]())


@pytest.mark.parametrize(("library", "form"), convert_cases.WAYS)
def test_no_pair_of_surroundings_differs(library: str, form: str) -> None:
    _require(library)
    _assert_none_differs([*convert_cases.paired(library, form, repeats=3)], peer_kits.KITS[library]())


@pytest.mark.parametrize("conv", [False, True])
@pytest.mark.parametrize("library", FORMS)
def test_stand_ins_are_what_they_stand_for(library: str, conv: bool) -> None:
    _require(library)
    kits = peer_kits.KITS[library](), peer_kits.KITS[library](STANDINS[library])
    for form in FORMS[library]:
        plan = Plan(library, form, conv=conv)
        theirs, ours = (_answers(plan, kit) for kit in kits)
        assert theirs.keys() == ours.keys()
        for name, expected in theirs.items():
            found = ours[name]
            assert (expected is None) == (found is None)
            if expected is not None:
                torch.testing.assert_close(found, expected, msg=f"{form}: {name}")


def _answers(plan: Plan, kit: peer_kits.SnnTorch) -> dict[str, Tensor | None]:
    net = convert_nets.build(plan, kit)
    return convert_judge.answers(
        lambda given: convert_nets.run(plan, kit, net, given), net, convert_nets.inputs(plan)
    )


class _Wrong(torch.nn.Module):
    """A conversion that halves one spike."""

    def __init__(self, made: torch.nn.Module) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        out = self.made(x).clone()
        out[-1, 0] *= 0.5
        return out


def test_the_judge_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = convert_judge.snnlib.convert
    monkeypatch.setattr(convert_judge.snnlib, "convert", lambda net, x: _Wrong(convert(net, x)))
    kit = peer_kits.SnnTorch(STANDINS["snntorch"])
    found = convert_judge.outcome(Plan("snntorch", "chain"), kit, FEW)
    assert found.kind == "different" and "output 0" in found.text
