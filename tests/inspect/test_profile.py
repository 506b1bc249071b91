"""Counted operations against nets that are run with weights and inputs set to one, by hand, and against NeuroBench."""

import itertools
import math
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib.functional import SparselyConnected
from snnlib.functional.currents import Delayed
from snnlib.functional.plan import layer_currents
from snnlib.inspect.energy import ENERGY_MODELS
from snnlib.inspect.products import CountedCall, OperationProducts, Products, nonzero_counts
from snnlib.neurons import Neuron
from snnlib.nn.fusion.fuse import unfused
from snnlib.nn.fusion.fused_block import Block
from snnlib.sequences.time_first import time_first

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def _random_net(seed: int) -> tuple[nn.Sequential, Tensor]:
    """A net of the layers that NeuroBench knows, in any geometry, some weights zero, and inputs of any kind."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dims = draw.randint(0, 3)
    groups = draw.choice([1, 2])
    layers: list[nn.Module] = []
    if dims == 0:
        sizes = [draw.randint(1, 9) for _ in range(3)]
        shape = [sizes[0]]
        layers = [
            nn.Linear(sizes[0], sizes[1], bias=draw.random() < 0.5),
            nn.ReLU(),
            nn.Linear(sizes[1], sizes[2]),
        ]
    else:
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        shape = [2 * groups, *(draw.randint(6, 8) for _ in range(dims))]
        kernel = [draw.randint(1, 4) for _ in range(dims)]
        options = {"stride": [draw.randint(1, 2) for _ in range(dims)], "padding": draw.randint(0, 2)}
        if draw.random() < 0.4:
            options = {"padding": "same", "dilation": draw.randint(1, 2)}
        mode = draw.choice(["zeros", "circular"]) if options["padding"] != 0 else "zeros"
        layers = [
            conv(2 * groups, 2 * groups, kernel, groups=groups, padding_mode=mode, **options),
            draw.choice([nn.ReLU, nn.Sigmoid])(),
            conv(2 * groups, 3, 1),
        ]
    for layer in layers:
        if hasattr(layer, "weight"):
            layer.weight.data[torch.rand_like(layer.weight) < 0.3] = 0
    kinds: list[Callable[[Tensor], Tensor]] = [
        lambda x: (x > 0.5).float(),
        lambda x: (x > 0.5).float() - (x < -0.5).float(),
        lambda x: x.relu(),
        lambda x: 2 * (x > 0.5).float(),
    ]
    return nn.Sequential(*layers), draw.choice(kinds)(torch.randn(draw.randint(2, 5), *shape))


def _by_running(layer: nn.Module, x: Tensor, ones: bool) -> int:
    """Operations of a layer: its output where nonzero inputs and weights, or all of them, are one."""
    with torch.no_grad():
        copy = type(layer).__new__(type(layer))
        copy.__dict__ = {**layer.__dict__, "_parameters": {}}
        weight = torch.ones_like(layer.weight) if ones else layer.weight.ne(0)
        copy.weight, copy.bias = weight.double(), None
        return round(float(copy(torch.ones_like(x).double() if ones else x.ne(0).double()).sum()))


@pytest.mark.parametrize("seed", range(30))
def test_counts_are_those_of_running_with_ones(seed: int) -> None:
    net, x = _random_net(seed)
    counted = snnlib.profile(net, x, batch_first=True)
    now = x
    for name, layer in net.named_children():
        if hasattr(layer, "weight"):
            unit = bool(((now == 0) | (now.abs() == 1)).all())
            found = counted[name]
            assert (found.acs if unit else found.macs) == _by_running(layer, now, ones=False)
            assert (found.macs if unit else found.acs) == 0
            assert found.dense == _by_running(layer, now, ones=True)
            if getattr(layer, "padding_mode", "zeros") == "zeros":
                assert found.inputs == now.numel() and found.nonzero_inputs == int(now.count_nonzero())
            assert found.zero_weights == int(layer.weight.eq(0).sum())
        now = layer(now)
    assert counted.samples == len(x)


def test_numbers_are_those_of_neurobench() -> None:
    """To the last digit, on 30 random nets."""
    reason = "compares with neurobench, which is not installed"
    models = pytest.importorskip("neurobench.models", reason=reason)
    static = pytest.importorskip("neurobench.metrics.static", reason=reason)
    workload = pytest.importorskip("neurobench.metrics.workload", reason=reason)
    for seed in range(30):
        net, x = _random_net(seed)
        found = snnlib.profile(net, x, batch_first=True).neurobench()
        model = models.TorchModel(net)
        for name in ("Footprint", "ParameterCount", "ConnectionSparsity"):
            assert found[name] == getattr(static, name)()(model), name
        model.register_hooks()
        model(x)
        for name in ("ActivationSparsity", "SynapticOperations", "ActivationSparsityByLayer"):
            assert found[name] == getattr(workload, name)()(model, None, (x,)), name
        model.cleanup_hooks()


def _spikes(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(1)) < rate).float()


@pytest.mark.parametrize(
    "options", [{"padding": "same"}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}]
)
@pytest.mark.parametrize("kind", ["srm", "lif", "cuba"])
def test_spiking_layers_count_as_the_convolution_in_them(kind: str, options: dict[str, int]) -> None:
    neuron = {"srm": snnlib.neurons.SRM, "lif": snnlib.neurons.LIF, "cuba": snnlib.neurons.CubaLIF}[kind]()
    layer, x = snnlib.SpikingConv2d(2, 4, 4, neuron=neuron, **options), _spikes(5, 3, 2, 9, 8)
    layer.weight.data[:, :, 0] = 0
    plain = nn.Conv2d(2, 4, 4, bias=False, **options)
    plain.weight.data = layer.weight.data
    found, expected = snnlib.profile(layer, x).total, snnlib.profile(snnlib.PerStep(plain), x).total
    assert (found.acs, found.macs, found.dense) == (expected.acs, expected.macs, expected.dense)
    assert found.acs > 0 and found.zero_weights == 4 * found.weights // 16
    out = layer(x)
    assert found.membrane_updates == out.numel() and found.nonzero_outputs == int(out.count_nonzero())
    assert found.state_bytes == {"srm": 3, "lif": 1, "cuba": 2}[kind] * 4 * out[0, 0].numel()


def test_fused_net_counts_as_the_unfused_one() -> None:
    net = nn.Sequential(
        snnlib.SRMConv2d(2, 4, 3, padding=1),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMConv2d(4, 4, 3),
        snnlib.SpikeAvgPool2d(2),
        snnlib.SRMReadout(4, 3),
    )
    x = _spikes(6, 2, 2, 9, 9)
    snnlib.prepare_(net, x)
    expected = snnlib.profile(net, x)
    assert snnlib.profile(snnlib.fuse_(net), x) == expected
    with unfused(net):
        pooled = net[1](net[0](x))
        assert expected["2"].nonzero_inputs == int(pooled.count_nonzero()) > 0
    # Pooled spikes are fractions, which have to be multiplied.
    assert expected["0"].macs == 0 < expected["0"].acs and expected["2"].acs == 0 < expected["2"].macs
    frames = net[3](net[2](pooled.detach())).flatten(0, 1).flatten(1)
    assert expected["4"].dense == 12 * 4 * 3 and expected["4"].nonzero_inputs == int(frames.count_nonzero())


def test_fused_blocks_count_without_running_as_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 20, 3, padding="same", bias=False)
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 3, 3, padding=1, stride=2),
        snnlib.AvgPool2d(2),
        snnlib.PerStep(conv, nn.BatchNorm2d(20)),
        snnlib.neurons.LIF(),
        snnlib.AvgPool2d(2),
        snnlib.SpikingConv2d(20, 2, 1, neuron=snnlib.neurons.CubaLIF()),
        snnlib.AvgPool2d(1),
    ).eval()
    # A single sample is many bands of rows, which share inputs; windows leave out a row and a column.
    x = _spikes(6, 1, 2, 21, 19)
    snnlib.prepare_(net, x)
    conv.weight.data *= 30
    expected = snnlib.profile(net, x)
    assert expected["3"].nonzero_outputs > 0 and expected["0"].membrane_updates == 6 * 3 * 11 * 10
    fused, apart = snnlib.fuse_(net), Block.run_apart
    assert snnlib.profile(fused, x) == expected

    def only_two_states(block: Block, x: Tensor) -> Tensor:
        assert isinstance(block.neurons, snnlib.SpikingConv2d) and block.neurons is net[5]
        return apart(block, x)

    monkeypatch.setattr(Block, "run_apart", only_two_states)
    assert snnlib.profile(fused, x) == expected


@pytest.mark.parametrize("value", [1.0, 0.5])
def test_inputs_that_no_neuron_sees_count_as_inputs(value: float) -> None:
    layer, x = snnlib.SRMConv2d(1, 20, 1, stride=3), torch.zeros(2, 1, 1, 9, 9)
    x[0, 0, 0, 0, 0], x[1, 0, 0, 7, 7], x[1, 0, 0, 8, 8] = 1.0, value, 1.0
    found = snnlib.profile(nn.Sequential(layer), x)["0"]
    assert (found.acs, found.macs) == ((20, 0) if value == 1 else (0, 20))
    assert found.nonzero_inputs == 3 and found.inputs == 162


def test_spikes_of_nan_are_counted() -> None:
    layer = snnlib.SRMLinear(3, 4)
    layer.weight.data[2] = math.nan
    found = snnlib.profile(nn.Sequential(layer), torch.ones(5, 2, 3))["0"]
    assert found.nonzero_outputs == int(layer(torch.ones(5, 2, 3)).count_nonzero()) >= 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_counts_of_the_kernel_are_those_of_torch(dtype: torch.dtype) -> None:
    plain = (torch.rand(300, 3, 700, generator=torch.Generator().manual_seed(0)) < 0.2).to(dtype)
    for last in (1.0, -1.0, -0.0, 0.5, math.inf, math.nan, 2.0**-24):
        plain[-1, -1, -1] = last
        for x in (plain, plain.transpose(1, 2), plain[::2, :, ::3], plain[:, :1, :1]):
            found = nonzero_counts(x)
            with snnlib.use_path("reference"):
                expected = nonzero_counts(x)
            assert torch.equal(found.per_cell, expected.per_cell) and found.unit == expected.unit
            assert found.total == int(x.count_nonzero())


def test_any_function_that_multiplies_is_counted() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[1.0, 0.0, 2.0]]))
            self.attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            frames = torch.einsum("ni,oi->no", x, self.weight) + nn.functional.conv_transpose1d(
                x[:, None], torch.ones(1, 1, 2)
            ).sum(2)
            self.attention(*[x[:, None, :1].expand(-1, 5, 4)] * 3)
            return frames

    x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    counted = snnlib.profile(Net(), x, batch_first=True)
    assert (counted[""].acs, counted[""].dense) == ((1 + 2) + 2 * 4, 6 + 2 * 6)
    # Projections in and out 4 x 4 x 4; scores and values 2 heads x 5 x 5 x 2 each; for 2 samples of 5 places.
    heads = 2 * 2 * 2 * 5 * 5 * 2
    out = sum(layer.dense for layer in counted.layers if layer.name.startswith("attention"))
    assert out == 2 * 5 * 4 * 4 * 4 + heads
    assert counted.uncounted == ()
    bilinear = snnlib.profile(_Pair(nn.Bilinear(2, 2, 3)), torch.ones(3, 2), batch_first=True)
    assert bilinear.uncounted == ("_trilinear",) and "Not counted: _trilinear." in str(bilinear)


class _Pair(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x, x)


def test_recurrent_torch_layers_are_counted_step_by_step() -> None:
    net, x = nn.RNN(3, 4), _spikes(5, 2, 3)
    counted = snnlib.profile(net, x)[""]
    assert counted.acs == int(x.sum()) * 4
    # The first hidden state is zero.
    assert counted.macs == 4 * 2 * 4 * 4 and counted.dense == 5 * 2 * (3 * 4 + 4 * 4)
    assert counted.weights == 3 * 4 + 4 * 4 + 8


def test_recurrent_spiking_layers_are_counted_with_their_own_spikes() -> None:
    torch.manual_seed(0)
    layer, x = snnlib.SpikingRNN(4, 6), _spikes(9, 2, 4)
    layer.layers[0].recurrent_weight.data[:, 0] = 0
    layer.layers[0].weight.data *= 3
    net = nn.Sequential(layer)
    counted, spikes = snnlib.profile(net, x)["0.layers.0"], layer(x).detach()
    back = int(spikes[:-1, :, 1:].sum()) * 6
    assert back > 0 and counted.acs == int(x.sum()) * 6 + back
    assert counted.dense == 9 * 2 * 6 * (4 + 6) and (counted.weights, counted.zero_weights) == (60, 6)
    with snnlib.losses.SynapticOperationsLoss(net) as loss:
        net(x)
    assert loss.operations().item() == counted.acs / 2
    assert loss().item() == pytest.approx(counted.acs / counted.dense)


@pytest.mark.parametrize(
    ("per", "fan_out", "neuron"),
    [
        *itertools.product(["channel", "connection"], [None, 2], [None]),
        # SRM neurons have no recurrent kernels.
        ("connection", None, snnlib.neurons.SRM()),
        ("connection", 2, snnlib.neurons.SRM()),
        ("channel", 2, snnlib.neurons.SRM()),
    ],
)
def test_spikes_that_come_back_later_meet_each_connection_once_a_step(
    per: str, fan_out: int | None, neuron: Neuron | None
) -> None:
    torch.manual_seed(0)
    layer = snnlib.SpikingRNN(
        4,
        6,
        neuron=neuron,
        recurrent_connections=None if fan_out is None else snnlib.Sparse(fan_out=fan_out),
        recurrent_delays=snnlib.Delays(3, per),
    )
    x, one = _spikes(9, 2, 4), layer.layers[0]
    one.weight.data *= 3
    assert one.recurrent_delays is not None
    one.recurrent_delays.steps.data[...] = torch.rand(one.recurrent_delays.steps.shape) * 3
    # At whole steps, as profiles are.
    layer.eval()
    counted, spikes = snnlib.profile(layer, x)["layers.0"], layer(x).detach()
    assert counted.dense == 9 * 2 * 6 * (4 + (fan_out or 6)) and counted.inputs == 9 * 2 * (4 + 6)
    assert counted.nonzero_inputs == int(x.sum()) + int(spikes[:-1].sum())
    delay = one.recurrent_delays.steps.detach().round()
    exists, operator = torch.ones(6, 6), one.recurrent_operator
    if isinstance(operator, SparselyConnected):
        exists = operator.dense(torch.ones(12))
        delay = operator.dense(delay) if per == "connection" else delay
    arrives = [exists * (delay + step < 8) for step in range(8)]
    back = sum(int((spikes[step].sum(0) * arrives[step].sum(0)).sum()) for step in range(8))
    assert back > 0 and counted.acs == int(x.sum()) * 6 + back


def test_late_spikes_of_a_chunk_before_are_counted_where_they_arrive() -> None:
    generator = torch.Generator().manual_seed(0)
    spikes = (torch.rand(12, 2, 5, generator=generator) < 0.4).float()
    weight, delay = torch.ones(5, 5), torch.rand(5, 5, generator=generator) * 3

    def products(chunk: Tensor, past: Tensor | None) -> Products:
        args = {"weight": weight, "delay": delay, "past": past, "rounded": False}
        products = OperationProducts(nn.Identity(), set())
        _, found = products.run("snnlib::recurrent_forward", args, lambda: (chunk,), CountedCall(""))
        assert found is not None
        return found

    whole = products(spikes, None)
    # The longest delay of 3 steps spans 5 with the step that every spike takes and the second tap.
    first = products(spikes[:7], None)
    second = products(spikes[7:], spikes[2:7].flip(0))
    assert first.effective > 0 and second.effective > 0
    for name in ("effective", "dense", "inputs", "nonzero"):
        assert getattr(first, name) + getattr(second, name) == getattr(whole, name)


@pytest.mark.parametrize("per", ["channel", "connection"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["linear", "one axis", "two axes"])
def test_events_that_arrive_later_are_counted_where_they_arrive(
    kind: str, batch_first: bool, per: str
) -> None:
    torch.manual_seed(0)
    neuron, how = snnlib.neurons.CubaLIF(), {"delays": snnlib.Delays(5, per), "batch_first": batch_first}
    layer, space = {
        "linear": lambda: (snnlib.SpikingLinear(6, 5, neuron=neuron, **how), ()),
        "one axis": lambda: (snnlib.SpikingConv1d(6, 5, 3, padding=1, neuron=neuron, **how), (7,)),
        "two axes": lambda: (
            snnlib.SpikingConv2d(6, 5, (2, 3), stride=(2, 1), padding=1, neuron=neuron, **how),
            (5, 6),
        ),
    }[kind]()
    layer.eval().weight.data.flatten()[::4] = 0
    x = _spikes(9, 2, 6, *space)
    x = x.transpose(0, 1).contiguous() if batch_first else x

    def currents(x: Tensor, weight: Tensor, delay: Tensor) -> Tensor:
        own = Delayed(layer.operator, delay, 0, True)
        found = layer_currents(time_first(x, batch_first), weight, own)
        return time_first(found, batch_first)

    now, all_now = x.double(), torch.ones_like(x).double()
    still = torch.zeros_like(layer.delays())
    met = currents(now, layer.weight.detach().ne(0).double(), delay=layer.delays().detach())
    dense = currents(all_now, torch.ones_like(layer.weight).detach().double(), delay=still)
    counted = snnlib.profile(nn.Sequential(layer), x, batch_first=batch_first)["0"]
    assert counted.acs == round(float(met.sum())) > 0
    assert counted.dense == round(float(dense.sum())) and counted.inputs == x.numel()
    if kind == "linear" or per == "connection":
        assert counted.nonzero_inputs == int(x.sum())


def test_batches_add_up_and_leave_the_net_as_it_was() -> None:
    net = nn.Sequential(
        snnlib.SpikingLinear(6, 5), snnlib.SpikeDropout(0.5), snnlib.SpikingLinear(5, 3)
    ).train()
    x = _spikes(7, 4, 6)
    state = torch.get_rng_state()
    whole = snnlib.profile(net, x)
    parts = snnlib.profile(net, [(part, torch.zeros(2)) for part in x.to(torch.uint8).split(2, dim=1)])
    assert parts == whole
    assert net.training and net[1].training and torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_energy_is_counts_times_published_numbers() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(3, 2))
    counted = snnlib.profile(net, torch.ones(4, 1, 3))
    # 24 accumulations, 8 updates of one state.
    assert math.isclose(counted.energy(), (24 * 0.9 + 8 * 4.6) * 1e-12)
    assert math.isclose(counted.energy("loihi"), (24 * 23.6 + 8 * 40.5) * 1e-12)
    traffic = 24 * 4 + 8 * 8
    assert math.isclose(counted.energy("45nm-sram") - counted.energy(), traffic * 2.5e-12)
    for model in ENERGY_MODELS.values():
        assert model.assumptions in str(counted) and model.source in str(counted)
    with pytest.raises(ValueError, match=r"model: expected one of 45nm, .* got 'brain'"):
        counted.energy("brain")
    with pytest.raises(KeyError, match="expected one of 0, got '7'"):
        counted["7"]


def test_data_that_are_none_are_named() -> None:
    net = snnlib.SpikingLinear(3, 2)
    with pytest.raises(ValueError, match="data: expected at least one batch, got none"):
        snnlib.profile(net, [])
    with pytest.raises(TypeError, match=r"data: expected a tensor \[T, N, ...\] in batch 0, got str"):
        snnlib.profile(net, ["x"])


def test_a_compiled_net_runs_as_it_was_written() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    compiled = torch.compile(net, backend="eager")
    x = torch.randn(2, 4, 6)
    with torch.no_grad():
        compiled(x)
    assert snnlib.profile(compiled, x).total.macs == snnlib.profile(net, x).total.macs > 0


def test_a_profile_is_a_table_in_a_notebook() -> None:
    net = nn.Sequential(snnlib.SRMLinear(6, 4), snnlib.SRMReadout(4, 2))
    counted = snnlib.profile(net, torch.ones(5, 3, 6))
    page = counted._repr_html_()
    assert page.count("<tr>") == len(counted.table()) and f"<td>{counted['0'].dense // 3:,}</td>" in page
    notes = str(counted).splitlines()[len(counted.table()) :]
    assert notes[0] == "Means of 3 samples."
    assert page.endswith(notes[-1])
    assert page.count("<br>") == len(notes) - 1


@pytest.mark.parametrize("delays", [None, "channel", "connection"])
def test_graded_spikes_count_as_unit_spikes_too(delays: str | None) -> None:
    torch.manual_seed(0)
    graded = snnlib.neurons.IF(levels=4)
    how = {} if delays is None else {"delays": snnlib.Delays(3, delays)}  # type: ignore[arg-type]
    net = nn.Sequential(
        snnlib.SpikingConv2d(2, 3, 3, padding=1, neuron=graded),
        nn.Flatten(2),
        snnlib.SpikingLinear(108, 5, neuron=snnlib.neurons.LIF(levels=2), **how),
        snnlib.SpikingLinear(5, 4),
    ).eval()
    net[0].weight.data.abs_().mul_(6)
    net[2].weight.data.abs_().mul_(6)[:, ::3] = 0
    x = 3 * (torch.rand(9, 2, 2, 6, 6) < 0.4).float()
    spikes, late = net[0](x).flatten(0, 1).flatten(1), net[:3](x).flatten(0, 1)
    assert spikes.unique().tolist() == [0, 1, 2, 3, 4] and late.max() == 2
    counted = snnlib.profile(net, x)
    inputs = snnlib.profile(nn.Sequential(net[0]), x / 3)["0"].acs
    assert counted["0"].acs == 0 and (counted["0"].graded, counted["0"].additions) == (inputs, 3 * inputs)
    connections = net[2].weight.ne(0).sum(0)
    if delays is None:
        assert counted["2"].graded == counted["2"].macs == int((spikes.ne(0).sum(0) * connections).sum())
        assert counted["2"].additions == int((spikes.sum(0) * connections).sum())
    else:
        # Spikes of the last steps arrive after the end.
        assert counted["2"].graded < counted["2"].additions < int((spikes.sum(0) * connections).sum())
    assert counted["3"].additions == int(late.sum()) * 4
    total = counted.total
    saved = counted.energy("45nm") - counted.energy("45nm", unit_spikes=True)
    assert saved == pytest.approx((total.graded * 4.6 - total.additions * 0.9) * 1e-12 / 2)
    assert "45nm, unit spikes" in [row[0] for row in counted.energy_rows()]
    assert f"they are {total.additions / 2:,.0f} ACs where a spike of n is n unit spikes" in str(counted)


def test_recurrent_graded_spikes_count_as_unit_spikes_too() -> None:
    torch.manual_seed(0)
    neuron = snnlib.neurons.IF(levels=4, surrogate=snnlib.surrogate.Triangle(height=0.5))
    net = snnlib.SpikingRNN(6, 5, neuron=neuron).eval()
    net.layers[0].weight.data.abs_().mul_(4)
    x = (torch.rand(9, 2, 6) < 0.5).float()
    spikes, counted = net(x), snnlib.profile(net, x)["layers.0"]
    assert spikes.max() > 1 and counted.acs == int(x.sum()) * 5
    assert (
        counted.additions == int(spikes[:-1].sum()) * 5 > counted.graded == int(spikes[:-1].ne(0).sum()) * 5
    )


def test_binary_and_analogue_nets_have_one_reading() -> None:
    net = nn.Sequential(snnlib.SpikingLinear(6, 5), nn.Linear(5, 4))
    for x in (torch.ones(3, 2, 6), torch.rand(3, 2, 6)):
        counted = snnlib.profile(net, x)
        assert counted.total.graded == counted.total.additions == 0
        assert len(counted.energy_rows()) == 5 and "Graded" not in str(counted)
