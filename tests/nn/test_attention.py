"""Attention between spiking tokens: its equation, SpikingJelly's spikes and gradients, chunks, and what it refuses."""

import copy
import importlib
from typing import Any

import pytest
import torch
from compare import assert_bits, assert_close
from torch import Tensor, nn

import snnlib
from snnlib.neurons import LIF
from snnlib.nn import SpikingSelfAttention, TokenAttention
from snnlib.nn.layers.attention import Attention

KINDS: dict[str, type[Attention]] = {"self": SpikingSelfAttention, "token": TokenAttention}
every_kind = pytest.mark.parametrize("kind", KINDS)
WIDTH, HEADS = 24, 3


def made(kind: str, **options: Any) -> Any:
    """With weights that are binary fractions, by which every place fires."""
    torch.manual_seed(0)
    neuron = LIF(dialect="spikingjelly", surrogate=snnlib.surrogate.ATan(2.0), detach_reset=True)
    block = KINDS[kind](WIDTH, HEADS, neuron=neuron, **options)
    with torch.no_grad():
        for part in (block.enter, block.leave):
            linear, norm = part[0]  # type: ignore[index,misc]
            linear.weight.copy_(torch.randint(-4, 12, linear.weight.shape) / 8.0)
            norm.running_var.fill_(1.0)
            norm.eps = 0.0
    return block.eval()


def events(*shape: int) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.2).float()


def by_loops(kind: str, block: Any, x: Tensor) -> Tensor:
    """The equation, head by head and token by token."""
    steps, samples, tokens, _ = x.shape
    size = WIDTH // HEADS
    maps = block.enter[1](x.flatten(1, 2) @ block.enter[0][0].weight.T).view(steps, samples, tokens, -1)
    parts = [part.view(steps, samples, tokens, HEADS, size) for part in maps.split(WIDTH, -1)]
    mixed = torch.zeros_like(parts[0] if kind == "self" else parts[0][..., 0])
    for head in range(HEADS):
        q = parts[0][..., head, :]
        for i in range(tokens):
            if kind == "token":
                mixed[:, :, i, head] = block.scale * q[:, :, i].sum(-1)
                continue
            for j in range(tokens):
                k, v = (part[:, :, j, head] for part in parts[1:])
                likeness = (q[:, :, i] * k).sum(-1, keepdim=True)
                mixed[:, :, i, head] += block.scale * likeness * v
    passed = block.mixed(mixed.flatten(1, 2)).view(mixed.shape)
    values = passed if kind == "self" else passed.unsqueeze(-1) * parts[1]
    out = block.leave[1](values.reshape(steps, -1, WIDTH) @ block.leave[0][0].weight.T)
    return out.view(x.shape)


@every_kind
@pytest.mark.parametrize("tokens", [5, 12])
def test_equation(kind: str, tokens: int) -> None:
    """With fewer and more tokens than channels of a head; fused too."""
    block, x = made(kind), events(6, 2, tokens, WIDTH)
    expected = by_loops(kind, block, x)
    assert 0.02 < float(expected.detach().mean()) < 0.98
    assert_bits(block(x), expected)
    assert_bits(snnlib.fuse_(copy.deepcopy(block))(x), expected)


@every_kind
def test_spikingjelly(kind: str) -> None:
    """Spikes to the bit, gradients to 1e-5, and the paper's threshold of 1/2 beside a scale of half the size."""
    theirs = pytest.importorskip(
        "spikingjelly.activation_based.layer.attention",
        reason="compares with SpikingJelly, which is not installed",
    )
    surrogate = importlib.import_module("spikingjelly.activation_based.surrogate").ATan(2.0)
    name = {"self": "SpikingSelfAttention", "token": "TokenQKAttention"}[kind]
    other = getattr(theirs, name)(WIDTH, HEADS, surrogate_function=surrogate).eval()
    block, x = made(kind), events(6, 2, 10, WIDTH)
    spikes = block(x)
    block.scale /= 2
    block.mixed = LIF(
        2.0, threshold=0.5, surrogate=snnlib.surrogate.ATan(2.0), dialect="spikingjelly", detach_reset=True
    )
    pairs = [
        (block.enter[0], other.qkv_conv_bn if kind == "self" else other.qk_conv_bn),
        (block.leave[0], other.proj_conv_bn),
    ]
    with torch.no_grad():
        for (linear, norm), (conv, batch_norm) in pairs:
            conv.weight.copy_(linear.weight.unsqueeze(-1))
            batch_norm.running_var.copy_(norm.running_var)
            batch_norm.eps = norm.eps
    results = []
    for net, turned in ((block, False), (other, True)):
        leaf = x.clone().requires_grad_()
        out = net(leaf.transpose(2, 3)).transpose(2, 3) if turned else net(leaf)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        results.append((out.detach(), leaf.grad))
    assert_bits(results[0][0], results[1][0])
    assert_bits(results[0][0], spikes.detach())
    assert results[1][1].any()
    assert_close(results[0][1], results[1][1], 1e-5)
    for (linear, _), (conv, _) in pairs:
        assert_close(linear.weight.grad, conv.weight.grad[..., 0], 1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@every_kind
def test_in_a_net(kind: str) -> None:
    """Chunks, lengths, layouts, dtypes, compilation, checkpoints, preparation and counts."""
    net, x = (
        nn.Sequential(snnlib.nn.Residual(made(kind)), snnlib.nn.Residual(made(kind))),
        events(8, 3, 6, WIDTH),
    )
    expected = net(x).detach()
    stream = snnlib.Stream(net)
    assert_bits(torch.cat([stream(chunk) for chunk in x.split(3)]).detach(), expected)
    assert_bits(snnlib.run_ragged(net, x, torch.tensor([8, 2, 5]))[:2, 1].detach(), expected[:2, 1])
    for dtype in (torch.float64, torch.bfloat16):
        assert_bits(copy.deepcopy(net).to(dtype)(x.to(dtype)).detach(), expected.to(dtype))
    first = made(kind, batch_first=True)
    assert_bits(first(x.transpose(0, 1)).transpose(0, 1), made(kind)(x))
    fused = snnlib.fuse_(copy.deepcopy(net))
    checkpointed = snnlib.checkpoint_time(fused, x, steps=3)
    assert_bits(checkpointed.detach(), expected)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert_bits(compiled(x).detach(), expected)
    trained = copy.deepcopy(net).train()
    for module in trained.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eps = 1e-5
    snnlib.prepare_(trained, x)
    trained(x).sum().backward()
    assert all(p.grad is not None for p in trained.parameters())
    layers = {row.name: row for row in snnlib.profile(net, x).layers}
    assert layers["0.body.mixed"].membrane_updates > 0
    uses = (net[0].body.enter[0][0].weight != 0).sum(0)  # type: ignore[index,union-attr]
    assert layers["0.body.enter.0.0"].acs == int((x.flatten(0, 2).sum(0) * uses).sum())
    again = nn.Sequential(*(snnlib.nn.Residual(KINDS[kind](WIDTH, HEADS, neuron=LIF())) for _ in range(2)))
    again.load_state_dict(net.state_dict())


@every_kind
def test_refused(kind: str) -> None:
    model = KINDS[kind]
    with pytest.raises(ValueError, match=r"^heads: expected a divisor of width=24, got 5$"):
        model(24, 5)
    with pytest.raises(
        ValueError, match=r"^x: expected tokens \[T, N, L, C\] with C = 24, got shape \(4, 2, 24\)$"
    ):
        model(24, 3)(torch.zeros(4, 2, 24))
    for scale in (0.0, -1.0, torch.inf, torch.nan):
        with pytest.raises(ValueError, match=r"^scale: expected a finite number > 0, got"):
            model(24, 3, scale=scale)


@pytest.mark.parametrize(
    "made_with",
    [
        lambda neuron: SpikingSelfAttention(24, 3, neuron=neuron),
        lambda neuron: TokenAttention(24, 3, neuron=neuron),
        lambda neuron: snnlib.nn.TokenPerceptron(24, neuron=neuron),
        lambda neuron: snnlib.models.spikformer(width=16, neuron=neuron),
    ],
    ids=["self", "token", "perceptron", "spikformer"],
)
def test_neurons_that_cannot_be_copied_are_refused(made_with: Any) -> None:
    with pytest.raises(ValueError, match=r"^neuron: expected batch_first=False, as its copies get"):
        made_with(LIF(batch_first=True))
    with pytest.raises(TypeError, match=r"^neuron: expected an instance of .*Neuron, got 'LIF'$"):
        made_with("LIF")
