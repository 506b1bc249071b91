"""Every class of neuron and layer of SpikingJelly, snnTorch and Norse, converted: equal answers, or a refusal by name.

Outcomes are written down for the table in docs/moving-nets.md, and none may be worse than the stored one.
"""

import importlib.util

import peer_classes
import peer_standins
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore")

PACKAGES = {"neuron": "spikingjelly", "layer": "spikingjelly", "snntorch": "snntorch", "norse": "norse"}
NAMES = [(library, name) for library, recipes in peer_classes.RECIPES.items() for name in recipes]
ORDER = ("exact", "kept", "refused")


def _require(library: str) -> None:
    if importlib.util.find_spec(PACKAGES[library]) is None:
        pytest.skip(f"compares with {PACKAGES[library]}, which is not installed")


@pytest.mark.parametrize("library", peer_classes.RECIPES)
def test_every_class_has_a_recipe(library: str) -> None:
    _require(library)
    assert set(peer_classes.found(library)) == set(peer_classes.RECIPES[library])


@pytest.mark.parametrize(("library", "name"), NAMES, ids=".".join)
def test_class_answers_as_the_original_or_is_refused(library: str, name: str) -> None:
    _require(library)
    found = peer_classes.outcomes(library, peer_classes.found(library)[name])
    peer_classes.record(library, name, found)
    for case, before in peer_classes.stored().get(library, {}).get(name, {}).items():
        if before in ORDER:
            assert ORDER.index(found[case]) <= ORDER.index(before), (
                f"{case} was {before} and is {found[case]}"
            )


def test_stand_ins_behave_as_the_originals() -> None:
    _require("neuron")
    classes, torch_seed = peer_classes.found("neuron") | peer_classes.found("layer"), torch.manual_seed(0)
    x = 2 * torch.rand(9, 3, 4, generator=torch_seed) - 0.25
    for ours, theirs in (
        (peer_standins.QIFNode("m"), classes["QIFNode"](step_mode="m")),
        (peer_standins.SynapseFilter(4.0, "m"), classes["SynapseFilter"](4.0, True, "m")),
        (peer_standins.NonSpikingLIFNode(), classes["NonSpikingLIFNode"]()),
        (peer_standins.LIFNode(2.0, "m"), classes["LIFNode"](2.0, step_mode="m")),
    ):
        found, expected = (torch.stack([*module(x)]) for module in (ours, theirs))
        torch.testing.assert_close(found, expected)
        assert found.any()


def test_the_page_has_the_stored_outcomes() -> None:
    assert peer_classes.table(peer_classes.stored()) in peer_classes.PAGE.read_text(encoding="utf-8")
