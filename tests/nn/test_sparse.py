"""Sparse connections: the bits of a full matrix with zeros, and what layers with them can do."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_bits
from torch import Tensor, nn

import snnlib
from snnlib import Sparse, neurons, surrogate
from snnlib.functional import SparselyConnected
from snnlib.functional.plan import sequence_map
from snnlib.functional.recurrent import Recurrence
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer

TRIANGLE = surrogate.Triangle(width=0.5, height=0.4)
NEURONS: tuple[Callable[[], neurons.Neuron], ...] = (
    lambda: neurons.CubaLIF(surrogate=TRIANGLE),
    lambda: neurons.CubaLIF(surrogate=surrogate.ATan(0.8)),
    lambda: neurons.LIF(surrogate=TRIANGLE),
    neurons.AdLIF,
)


def _random(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def _events(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = (torch.rand(shape, generator=generator) < 0.3).to(dtype)
    return x * torch.randn(shape, generator=generator).to(dtype) if _random(generator, 0, 4) == 0 else x


def _by_connection(grad: Tensor, operator: SparselyConnected) -> Tensor:
    """Elements of a full matrix where there are connections."""
    return grad[operator.targets.long(), operator.sources().long()]


def _pair(
    generator: torch.Generator, case: int, dtype: torch.dtype = torch.float32
) -> tuple[RecurrentLayer, RecurrentLayer, Tensor]:
    """A sparse recurrent layer, a full one with the same weights and zeros, and an input."""
    inputs, hidden, steps, batch = (
        _random(generator, *sizes) for sizes in ((1, 90), (1, 90), (1, 16), (1, 6))
    )
    batch_first = _random(generator, 0, 2) == 0
    options: dict[str, Any] = {"dtype": dtype, "batch_first": batch_first}
    share = float(torch.rand((), generator=generator))
    back = Sparse(torch.rand(hidden, hidden, generator=generator) < share)
    some = Sparse(density=max(share, 0.01), generator=generator)
    make = NEURONS[case % len(NEURONS)]
    sparse = RecurrentLayer(
        inputs, hidden, neuron=make(), connections=some, recurrent_connections=back, **options
    )
    full = RecurrentLayer(inputs, hidden, neuron=make(), **options)
    with torch.no_grad():
        for weight in (sparse.weight, sparse.recurrent_weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.7)
        full.weight.copy_(sparse.operator.dense())
        full.recurrent_weight.copy_(sparse.recurrent_operator.dense())
    shape = (batch, steps, inputs) if batch_first else (steps, batch, inputs)
    return sparse, full, _events(generator, *shape, dtype=dtype)


def _results(layer: RecurrentLayer, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """Spikes of two chunks, the state, and gradients of both weights and of the input."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    first, state = layer.run(x, None, lengths)
    second, state = layer.run(x, state, lengths)
    signal = torch.linspace(-1, 1, first.numel(), dtype=x.dtype).view_as(first)
    ((first + 2 * second) * signal).sum().backward()
    assert layer.weight.grad is not None and layer.recurrent_weight.grad is not None and x.grad is not None
    grads = layer.weight.grad, layer.recurrent_weight.grad, x.grad
    return [part.detach() for part in (first, second, *state, *grads)]


class TestSameBitsAsAFullMatrix:
    @pytest.mark.filterwarnings("ignore:neuron. its surrogate")
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("part", range(4))
    def test_spikes_and_gradients(self, part: int, threads: int, isas: list[str]) -> None:
        """Weight gradients go by input events on both sides (`use_convolution("events")`, "inputs" or "taps")."""
        generator = torch.Generator().manual_seed(part)
        torch.set_num_threads(threads)
        for case in range(25):
            sparse, full, x = _pair(generator, case)
            lengths = None
            if case % 3 == 0:
                time_dim = int(sparse.batch_first)
                steps, batch = x.shape[time_dim], x.shape[1 - time_dim]
                lengths = torch.randint(0, steps + 1, (batch,), generator=generator)
            with snnlib.use_convolution("events"):
                found, expected = (_results(layer, x, lengths) for layer in (sparse, full))
            *same, of_weight, of_recurrent, of_input = expected
            for a, b in zip(found, same, strict=False):
                assert_bits(a, b)
            assert_bits(found[-3], _by_connection(of_weight, sparse.operator))
            assert_bits(found[-2], _by_connection(of_recurrent, sparse.recurrent_operator))
            # A full matrix has no kernel of events for this one.
            torch.testing.assert_close(found[-1], of_input, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("gradient", ["bptt", "eprop"])
    @pytest.mark.parametrize("training", [False, True])
    @pytest.mark.parametrize("per", ["channel", "connection"])
    def test_recurrent_delays(self, per: str, training: bool, gradient: str, path: str) -> None:
        """Two chunks with lengths; delays lie between steps in training, and are rounded else."""
        generator = torch.Generator().manual_seed(7)
        back = Sparse(torch.rand(21, 21, generator=generator) < 0.3)
        layers = [
            RecurrentLayer(
                9,
                21,
                connections=connections,
                recurrent_connections=recurrent,
                recurrent_delays=snnlib.Delays(5, per),
                recurrent_gradient=gradient,
            ).train(training)
            for connections, recurrent in ((Sparse(fan_out=8, generator=generator), back), (None, None))
        ]
        sparse, full = layers
        steps = torch.rand(21, 21, generator=generator) * 5
        with torch.no_grad():
            for weight in (sparse.weight, sparse.recurrent_weight):
                weight.copy_(torch.randn(weight.shape, generator=generator))
            full.weight.copy_(sparse.operator.dense())
            full.recurrent_weight.copy_(sparse.recurrent_operator.dense())
            full.recurrent_delays.steps.copy_(steps if per == "connection" else steps[0])
            own = _by_connection(steps, sparse.recurrent_operator) if per == "connection" else steps[0]
            sparse.recurrent_delays.steps.copy_(own)
        x = (torch.rand(14, 3, 9, generator=generator) < 0.4).float()
        with snnlib.use_convolution("events"):
            found, expected = (_results(layer, x, torch.tensor([14, 6, 9])) for layer in layers)
        assert 0.02 < float(found[0].mean()) < 0.9
        for a, b in zip(found[:-3], expected[:-3], strict=True):
            assert_bits(a, b)
        of_delays = [layer.recurrent_delays.steps.grad for layer in layers]
        of_full = _by_connection(expected[-2], sparse.recurrent_operator)
        torch.testing.assert_close(found[-2], of_full, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[-1], expected[-1], rtol=1e-5, atol=1e-5)
        if per == "connection":
            of_delays[1] = _by_connection(of_delays[1], sparse.recurrent_operator)
        torch.testing.assert_close(*of_delays, rtol=1e-4, atol=1e-4)
        assert of_delays[0].abs().max() > 0.01

    def test_recurrent_delays_by_steps(self) -> None:
        """The definition step by step, which float32 on a GPU takes, has the kernels' spikes and gradients."""
        generator = torch.Generator().manual_seed(8)
        operator, *_ = Sparse(fan_out=4, generator=generator).build(12, 12)
        # On a grid, so that sums in another order have the same spikes.
        current, weight = (
            (torch.randn(shape, generator=generator) * 8).round() / 8 for shape in ((15, 2, 12), (48,))
        )
        delay = torch.randint(0, 17, (48,), generator=generator) / 4
        back = Recurrence(None, weight, operator, delay, 4)
        neuron = neurons.LIF(8.0, decay_input=False, surrogate=TRIANGLE, discretisation="euler")
        leaves = [part.requires_grad_() for part in (current, weight, delay)]
        through, found = sequence_map(current, operator), []
        for kernel, by in ((neuron.kernel(current), None), (None, through)):
            value, state = back.run(current, neuron, kernel, None, None, by)
            loss = (value * torch.linspace(-1, 1, value.numel()).view_as(value)).sum()
            found.append([value, *state, *torch.autograd.grad(loss, leaves)])
        assert 0.02 < float(found[0][0].detach().mean()) < 0.9
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_one_delay_for_all_is_that_of_a_loop(self) -> None:
        """No spike arrives before the delay of 6 steps has passed, so a loop may go 6 steps at a time."""
        generator = torch.Generator().manual_seed(9)
        operator, *_ = Sparse(fan_out=20, generator=generator).build(50, 50)
        weight = torch.randint(-4, 9, (1000,), generator=generator) / 16
        current = torch.randint(0, 5, (60, 1, 50), generator=generator) / 8
        neuron = neurons.LIF(10.0, decay_input=False, refractory=3)
        back = {"operator": operator, "delay": torch.full((1000,), 5.0), "max_delay": 5, "rounded": True}
        spikes, state, values = torch.zeros(6, 1, 50), None, []
        for chunk in current.split(6):
            spikes, state = neuron.run(chunk + operator(spikes[:, 0], weight)[:, None], state)
            values.append(spikes)
        found = snnlib.functional.spiking_recurrent(current, weight, neuron, **back).value
        assert 0.02 < float(found.mean()) < 0.5
        assert_bits(found, torch.cat(values))

    def test_float64_is_near_the_reference(self) -> None:
        generator = torch.Generator().manual_seed(9)
        for case in (0, 2):
            sparse, _, x = _pair(generator, case, torch.float64)
            found = _results(sparse, x, None)
            with snnlib.use_path("reference"):
                expected = _results(sparse, x, None)
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("neuron", [neurons.SRM, neurons.LIF, lambda: neurons.CubaLIF(gradient="event")])
    def test_layer_without_recurrence(self, neuron: Callable[[], neurons.Neuron]) -> None:
        generator = torch.Generator().manual_seed(1)
        sparse = snnlib.SpikingLinear(60, 40, connections=Sparse(fan_out=12), neuron=neuron())
        full = snnlib.SpikingLinear(60, 40, neuron=neuron())
        with torch.no_grad():
            full.weight.copy_(sparse.operator.dense())
        x = (torch.rand(20, 3, 60, generator=generator) < 0.3).float()
        with snnlib.use_convolution("events"):
            spikes = [layer(x) for layer in (sparse, full)]
        assert float(spikes[0].detach().mean()) > 0.01
        assert_bits(spikes[0], spikes[1])
        for out in spikes:
            (out * torch.arange(40.0)).sum().backward()
        assert sparse.weight.grad is not None and full.weight.grad is not None
        expected = _by_connection(full.weight.grad, sparse.operator)
        torch.testing.assert_close(sparse.weight.grad, expected, rtol=1e-4, atol=1e-4)

    def test_frames_with_axes(self) -> None:
        layer = snnlib.SpikingLinear(3 * 4 * 5, 7, connections=Sparse(fan_out=3))
        x = (torch.rand(6, 2, 3, 4, 5) < 0.3).float()
        assert_bits(layer(x), layer(x.flatten(2)))


class TestConnections:
    @pytest.mark.parametrize("fan_out", [1, 5, 6, 9, 10])
    def test_drawn_ones_rise_and_differ(self, fan_out: int) -> None:
        operator, *_ = Sparse(fan_out=fan_out, generator=torch.Generator().manual_seed(0)).build(500, 10)
        rows = operator.targets.view(500, fan_out)
        assert bool((rows.diff() > 0).all()) and int(rows.min()) >= 0 and int(rows.max()) <= 9
        # Each output is drawn by a tenth of the inputs for each connection, with a binomial's deviation.
        share = fan_out / 10
        off = torch.bincount(rows.flatten(), minlength=10) - 500 * share
        assert float(off.abs().max()) <= 5 * (500 * share * (1 - share)) ** 0.5

    def test_same_seed_same_connections(self) -> None:
        first, second = (
            Sparse(density=0.1, generator=torch.Generator().manual_seed(3)).build(50, 70)[0] for _ in range(2)
        )
        assert_bits(first.targets, second.targets)
        assert first.targets.dtype == torch.int32 and len(first.targets) == 50 * 7

    def test_mask_and_list(self) -> None:
        mask = torch.rand(8, 5) < 0.5
        by_mask = snnlib.SpikingLinear(5, 8, connections=Sparse(mask))
        assert torch.equal(by_mask.operator.dense() != 0, mask)
        targets, sources = mask.nonzero(as_tuple=True)
        order = torch.randperm(len(targets))
        values = torch.randn(len(targets))
        given = Sparse.from_coo(sources[order], targets[order], values[order])
        by_list = snnlib.SpikingLinear(5, 8, connections=given)
        assert torch.equal(by_list.operator.dense()[mask], values)

    def test_several_synapses_between_two_neurons_add_up(self) -> None:
        sources, targets = torch.randint(5, (60,)), torch.randint(8, (60,))
        values = torch.randint(1, 9, (60,)).float()
        given = Sparse.from_coo(sources, targets, values, duplicates="sum")
        operator = snnlib.SpikingLinear(5, 8, connections=given).operator
        full = torch.zeros(8, 5).index_put((targets, sources), values, accumulate=True)
        assert len(operator.targets) == int((full != 0).sum()) < 60
        assert torch.equal(operator.dense(), full)

    def test_weights_are_drawn_for_their_fan_in(self) -> None:
        full = snnlib.SpikingLinear(100, 400)
        sparse = snnlib.SpikingLinear(2000, 400, connections=Sparse(fan_out=20))
        assert sparse.operator.fan_in == 100
        torch.testing.assert_close(sparse.weight.std(), full.weight.std(), rtol=0.03, atol=0)

    @pytest.mark.parametrize(
        ("make", "error"),
        [
            (Sparse, "connections: expected one of"),
            (lambda: Sparse(fan_out=3, density=0.1), "connections: expected one of"),
            (lambda: Sparse(density=0.0), "density: expected a share"),
            (lambda: Sparse(fan_out=0), "fan_out: expected"),
            (lambda: Sparse(fan_out=9).build(4, 8), "fan_out: expected up to 8"),
            (lambda: Sparse(torch.ones(3, 4)).build(3, 4), "mask: expected shape"),
            (lambda: Sparse.from_coo(torch.tensor([4]), torch.tensor([0])).build(4, 8), "sources: expected"),
            (
                lambda: Sparse.from_coo(torch.tensor([0, 0]), torch.tensor([1, 1])).build(4, 8),
                "targets: expected one connection of an input and an output",
            ),
            (
                lambda: Sparse.from_coo(torch.tensor([0]), torch.tensor([1]), duplicates="sum"),
                "values: expected the weights",
            ),
            (
                lambda: Sparse.from_coo(torch.tensor([0]), torch.tensor([1]), duplicates="mean"),
                "duplicates: expected one of error, sum",
            ),
            (lambda: SparselyConnected(torch.tensor([0, 2]), torch.tensor([1, 1]), 3), "targets: expected"),
            (lambda: SparselyConnected(torch.tensor([0, 1]), torch.tensor([3]), 3), "targets: expected"),
            (lambda: SparselyConnected(torch.tensor([0, 3, 2]), torch.tensor([0, 1]), 3), "starts: expected"),
            (
                lambda: SparselyConnected(torch.tensor([0, 1]), torch.tensor([0]), 3).values,
                "weight: expected",
            ),
            (
                lambda: snnlib.SpikingLinear(
                    4, 5, connections=Sparse(fan_out=2), delays=snnlib.Delays(3, per="connection")
                ),
                "delays: expected",
            ),
            (
                lambda: snnlib.functional.spiking_recurrent(
                    torch.zeros(4, 2, 5),
                    torch.zeros(10),
                    snnlib.neurons.LIF(),
                    operator=Sparse(fan_out=2).build(5, 5)[0],
                    delay=torch.zeros(5),
                    max_delay=1,
                ),
                r"delay: expected shape \(10,\), got \(5,\)",
            ),
        ],
    )
    def test_errors_name_the_argument(self, make: Callable[[], object], error: str) -> None:
        with pytest.raises(ValueError, match=error):
            make()

    @pytest.mark.parametrize("path", ["native", "reference"])
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize(
        ("name", "place", "value", "error"),
        [
            ("targets", 7, 80, "expected outputs from 0 to 79.*, got 80 in row 1"),
            ("targets", 5, -1, "expected outputs from 0 to 79.*, got -1 in row 1"),
            ("starts", 2, 4, "expected 0 to 300 in rising order, got .5, 4. in row 1"),
            ("starts", 2, 1 << 40, "expected 0 to 300 in rising order, got .*1099511627776"),
        ],
    )
    def test_products_refuse_wrong_indices(
        self, path: Any, threads: int, name: str, place: int, value: int, error: str
    ) -> None:
        """Indices changed in place, unseen by the operator, raise an error."""
        torch.set_num_threads(threads)
        operator, *_ = Sparse(fan_out=5).build(60, 80)
        getattr(operator, name)[place] = value
        x, signal, weight = torch.ones(1, 60), torch.ones(1, 80), torch.zeros(300)
        products: tuple[Callable[[], Tensor], ...] = (
            lambda: operator(x, weight),
            lambda: operator.input_backward(signal, x, weight),
            lambda: operator.weight_backward(signal, x, weight),
        )
        for product in products:
            with snnlib.use_path(path), pytest.raises(ValueError, match=f"{name}: {error}"):
                product()

    @pytest.mark.parametrize("path", ["native", "reference"])
    def test_delayed_spikes_refuse_wrong_indices(self, path: Any) -> None:
        layer = RecurrentLayer(
            3, 60, recurrent_connections=Sparse(fan_out=5), recurrent_delays=snnlib.Delays(3)
        )
        layer.recurrent_operator.targets[7] = 80
        error = "targets: expected outputs from 0 to 59.*, got 80 in row 1"
        with snnlib.use_path(path), pytest.raises(ValueError, match=error):
            layer(torch.ones(4, 1, 3))

    def test_fewer_frames_than_threads_and_no_outputs(self) -> None:
        torch.set_num_threads(2)
        starts, none = torch.zeros(5, dtype=torch.int64), torch.zeros(0)
        options = (None, starts, none.int(), 0, (), (), (), 1, True)
        assert snnlib.ops.currents.currents_forward(torch.ones(1, 1, 4), none, *options).shape == (1, 1, 0)

    def test_type(self) -> None:
        with pytest.raises(TypeError, match="connections: expected an instance of"):
            snnlib.SpikingLinear(4, 5, connections=0.1)  # type: ignore[arg-type]


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        snnlib.SpikingLinear(60, 80, connections=Sparse(density=0.2), neuron=NEURONS[2]()),
        snnlib.SpikingRNN(80, 40, connections=Sparse(fan_out=8), recurrent_connections=Sparse(fan_out=4)),
    )


def _input() -> Tensor:
    return (torch.rand(20, 4, 60, generator=torch.Generator().manual_seed(0)) < 0.2).float()


class TestTools:
    def test_copies_and_files(self) -> None:
        net, x = _net(), _input()
        for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert_bits(copied(x), net(x))
            assert copied[0].operator.values is copied[0].weight
        fresh = _net()
        with torch.no_grad():
            fresh[0].weight.zero_()
        fresh.load_state_dict(net.state_dict())
        assert_bits(fresh(x), net(x))

    def test_a_damaged_file_is_refused(self) -> None:
        net = _net()
        stored = {name: part.clone() for name, part in net.state_dict().items()}
        stored["0.operator.targets"][3] = 1000
        with pytest.raises(RuntimeError, match=r"0\.operator\.targets: expected outputs from 0 to 79"):
            net.load_state_dict(stored)

    def test_prepare_reaches_rates(self) -> None:
        net, x = _net(), _input()
        report = snnlib.prepare_(net, x)
        assert 0.02 < float(net[0](x).detach().mean()) < 0.06, report

    def test_profile_counts_what_is_there(self) -> None:
        net, x = _net(), _input()
        found = snnlib.profile(net, x)
        hidden, rows = net[0](x), {layer.name: layer for layer in found.layers}
        # Inputs of the first layer lead to 16 outputs each, its spikes to 8, and recurrent ones back to 4.
        assert rows["0"].acs == int(x.sum()) * 16
        assert rows["1.layers.0"].acs == int(hidden.sum()) * 8 + int(net(x)[:-1].sum()) * 4
        assert rows["1.layers.0"].dense == 4 * 20 * (80 * 8 + 40 * 4)

    def test_stream_and_memory(self) -> None:
        net, x = _net(), _input()
        stream = snnlib.Stream(net)
        assert_bits(torch.cat((stream(x[:7]), stream(x[7:]))), net(x))
        assert snnlib.memory_report(net, x).layers
        assert snnlib.explain_dispatch(net, x)["0"].forward.path == "events"

    def test_fuse_passes_by(self) -> None:
        net, x = _net(), _input()
        expected = net(x)
        assert_bits(snnlib.fuse_(net)(x), expected)

    def test_checkpoints_have_the_same_gradients(self) -> None:
        x, grads = _input(), []
        for chunks in (False, True):
            net = _net()
            out = snnlib.checkpoint_time(net, x, steps=5) if chunks else net(x)
            out.sum().backward()
            grads.append([part.grad for part in net.parameters() if part.grad is not None])
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("recurrent", [False, True])
    def test_bfloat16(self, recurrent: bool) -> None:
        net = _net()[: 1 + recurrent]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(_input())
        out.float().sum().backward()
        assert all(part.grad is not None and part.grad.dtype == torch.float32 for part in net.parameters())

    def test_standardisation_refuses(self) -> None:
        with pytest.raises(ValueError, match="net: expected full matrices or convolutions"):
            snnlib.nn.standardize_weights_(_net())

    def test_delays_of_channels(self) -> None:
        sparse = snnlib.SpikingLinear(
            60, 30, connections=Sparse(fan_out=9), delays=snnlib.Delays(3, initial=2)
        )
        full = snnlib.SpikingLinear(60, 30, delays=snnlib.Delays(3, initial=2))
        with torch.no_grad():
            full.weight.copy_(sparse.operator.dense())
        assert_bits(sparse.eval()(_input()), full.eval()(_input()))

    def test_learns(self) -> None:
        net, x = _net(), _input()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
        target = (torch.rand(4, 40, generator=torch.Generator().manual_seed(1)) < 0.3).float() * 0.3
        losses = []
        for _ in range(40):
            loss = (net(x).mean(0) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.5 * losses[0]
