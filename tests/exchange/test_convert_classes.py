"""Every class of neuron and layer of SpikingJelly, snnTorch and Norse, converted: equal answers, or a refusal by name.

Outcomes are written down for the table in docs/moving-nets.md, and none may be worse than the stored one.
"""

import importlib
import importlib.util

import peer_classes
import peer_outcomes
import peer_standins
import peer_tables
import pytest
import torch

import snnlib

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


@pytest.mark.parametrize(("library", "name"), NAMES, ids=[".".join(case) for case in NAMES])
def test_class_answers_as_the_original_or_is_refused(library: str, name: str) -> None:
    _require(library)
    found = peer_outcomes.outcomes(library, peer_classes.found(library)[name])
    peer_tables.record_class(library, name, found)
    for case, before in peer_tables.stored_classes().get(library, {}).get(name, {}).items():
        if before in ORDER:
            assert ORDER.index(found[case]) <= ORDER.index(before), (
                f"{case} was {before} and is {found[case]}"
            )


@pytest.mark.parametrize("start", ["class", "reset value"])
def test_a_start_apart_from_the_reset_value_is_kept(start: str) -> None:
    """SpikingJelly's simple nodes start at 0 whatever they are reset to."""
    _require("neuron")
    classes = peer_classes.found("neuron")
    node = classes["SimpleIFNode"](v_reset=-0.5) if start == "class" else classes["LIFNode"](2.0)
    if start == "reset value":
        node.set_reset_value("v", 0.4)
    net, x = torch.nn.Sequential(torch.nn.Identity(), node), torch.arange(24.0).reshape(6, 1, 4) / 8
    made = snnlib.convert(net, x, quiet=True)
    for _ in range(2):
        node.reset()
        assert torch.equal(made(x), torch.stack([net(step) for step in x]))
    with pytest.raises(ValueError, match="1: its v starts at 0"):
        snnlib.convert(net, x, quiet=True, unsupported="raise")


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("LIFCell", "v_th"),
        ("LIFCell", "v_reset"),
        ("LIFBoxCell", "v_th"),
        ("LSNNCell", "beta"),
        ("IAFCell", "v_th"),
    ],
)
def test_learned_constants_of_norse_learn(cell: str, name: str) -> None:
    _require("norse")
    kind = peer_classes.found("norse")[cell]
    learned = torch.nn.Parameter(torch.tensor(0.5))
    node = kind(p=kind().p._replace(**{name: learned}))
    net = importlib.import_module("norse.torch").SequentialState(torch.nn.Identity(), node)
    x = 16 * torch.rand(9, 3, 4, generator=torch.Generator().manual_seed(0))
    outputs, state = [], None
    for step in x:
        out, state = net(step, state)
        outputs.append(out)
    made = snnlib.convert(net, x, quiet=True)
    expected, found = (
        torch.autograd.grad(out.square().sum(), learned)[0] for out in (torch.stack(outputs), made(x))
    )
    assert expected != 0
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=f"1: a {name} that is learned or differs"):
        snnlib.convert(net, x, quiet=True, unsupported="raise")


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
