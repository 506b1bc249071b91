"""Learnable delays: gradients against finite differences, chunks against the whole, kernels, errors."""

import copy

import op_calls
import pytest
import torch
from runs import results_in_chunks
from soft_neuron import Soft
from torch import Tensor

import snnlib
from snnlib import neurons, ops, surrogate
from snnlib.functional.currents import Delayed
from snnlib.functional.plan import layer_currents
from snnlib.nn.recurrent.recurrent_layer import RecurrentLayer
from snnlib.sequences.history import unpacked

BUMP = surrogate.Triangle(0.5, 0.4)


def _make(kind: str, per: str, neuron: neurons.Neuron, batch_first: bool = False) -> torch.nn.Module:
    delays = snnlib.Delays(4, per)
    if kind == "linear":
        return snnlib.SpikingLinear(6, 5, neuron=neuron, delays=delays, batch_first=batch_first)
    if kind == "convolution":
        return snnlib.SpikingConv2d(
            2, 3, 3, stride=2, padding=1, neuron=neuron, delays=delays, batch_first=batch_first
        )
    again = snnlib.Delays(3, per)
    return snnlib.SpikingRNN(
        6, 5, 2, neuron=neuron, delays=delays, recurrent_delays=again, batch_first=batch_first
    )


def _events(kind: str, batch_first: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    shape = (18, 3, 2, 5, 4) if kind == "convolution" else (18, 3, 6)
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.4).to(dtype)
    return x.transpose(0, 1).contiguous() if batch_first else x


def _neuron(name: str) -> neurons.Neuron:
    if name == "SRM":
        return neurons.SRM()
    by_time = {"gradient": "event", "input_gradient": "time"}
    return neurons.CubaLIF(**by_time) if name == "event" else neurons.CubaLIF(surrogate=BUMP)


def _positive(layer: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("weight") and "recurrent" not in name:
                parameter.abs_()
    return layer


@pytest.mark.parametrize("per", ["channel", "connection"])
@pytest.mark.parametrize("operator", [snnlib.functional.FullyConnected(), snnlib.functional.Convolution(2)])
def test_currents_have_the_gradient_of_finite_differences(operator: object, per: str, path: str) -> None:
    generator = torch.Generator().manual_seed(0)
    conv = isinstance(operator, snnlib.functional.Convolution)
    x = torch.randn((5, 1, 2, 3, 3) if conv else (7, 2, 3), generator=generator, dtype=torch.float64)
    weight = torch.randn((2, 2, 2, 2) if conv else (2, 3), generator=generator, dtype=torch.float64)
    delay = (
        torch.rand(weight.shape if per == "connection" else x.shape[2:3], generator=generator).double() * 4
    )
    leaves = [part.requires_grad_() for part in (x, weight, delay)]

    def currents(x: Tensor, weight: Tensor, delay: Tensor) -> Tensor:
        return layer_currents(x, weight, Delayed(operator, delay))  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(currents, leaves, fast_mode=True)


@pytest.mark.parametrize("per", ["channel", "connection"])
def test_recurrent_delays_have_the_gradient_of_finite_differences(per: str) -> None:
    generator = torch.Generator().manual_seed(0)
    current, weight = (torch.randn(shape, generator=generator).double() for shape in ((7, 2, 3), (3, 3)))
    delay = torch.rand(weight.shape if per == "connection" else (3,), generator=generator).double() * 2
    leaves = [part.requires_grad_() for part in (current, weight, delay)]

    def run(current: Tensor, weight: Tensor, delay: Tensor) -> Tensor:
        return snnlib.functional.spiking_recurrent(current, weight, Soft(), delay=delay, max_delay=2).value

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize("per", ["channel", "connection"])
def test_srm_delay_gradient_is_that_of_the_kernel(per: str) -> None:
    """dL/dd = -q min(1/delta_u, clamp) sum of w eps'(time since arrival), by a central difference of eps."""
    tau_m, tau_s, steps = 5.0, 3.0, 40
    neuron = neurons.SRM(tau_m, tau_s)
    layer = snnlib.SpikingLinear(2, 1, neuron=neuron, delays=snnlib.Delays(6, per, initial=2.0)).double()
    times = [(3, 0), (5, 1), (6, 0)]
    x = torch.zeros(steps, 1, 2, dtype=torch.float64)
    for t, i in times:
        x[t, 0, i] = 1.0
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.9, 1.4]]))
    spikes = layer(x)
    (at,) = spikes.flatten().nonzero().flatten().tolist()
    spikes.sum().backward()
    e_m, e_s = 1 - 1 / tau_m, 1 - 1 / tau_s

    def eps(t: float) -> float:
        return (e_s ** (t + 1) - e_m ** (t + 1)) / (tau_s * (e_s - e_m))

    weight = layer.weight.detach().flatten().tolist()

    def potential(step: int) -> float:
        return sum(weight[i] * eps(step - t - 2) for t, i in times if t + 2 <= step)

    slope = potential(at) - potential(at - 1)
    h = 1e-5
    expected = [0.0, 0.0]
    for t, i in times:
        if t + 2 <= at:
            dt = at - t - 2
            expected[i] -= min(1 / slope, 4.0) * weight[i] * (eps(dt + h) - eps(dt - h)) / (2 * h)
    assert layer.delays.steps.grad is not None
    assert torch.allclose(
        layer.delays.steps.grad.flatten().double(), torch.tensor(expected).double(), atol=1e-6
    )
    assert max(map(abs, expected)) > 0.01


CASES = [
    (kind, per, neuron)
    for kind in ("linear", "convolution", "recurrent")
    for per in ("channel", "connection")
    for neuron in ("surrogate", "event", "SRM")
    if kind != "recurrent" or neuron != "SRM"
]


@pytest.mark.parametrize(("kind", "per", "neuron"), CASES)
def test_chunks_equal_the_whole(kind: str, per: str, neuron: str) -> None:
    torch.manual_seed(0)
    batch_first = per == "connection"
    layer = _positive(_make(kind, per, _neuron(neuron), batch_first).double())
    x = _events(kind, batch_first)
    whole, chunks = (results_in_chunks(layer, x, sizes) for sizes in ([18], [7, 1, 10]))
    assert 0 < float(whole[0].detach().mean()) < 1
    assert torch.equal(chunks[0], whole[0])
    for got, want in zip(chunks[1:], whole[1:], strict=True):
        assert torch.allclose(got, want, rtol=0, atol=1e-12 * max(1.0, float(want.abs().max())))


@pytest.mark.parametrize("per", ["channel", "connection"])
def test_stream_packs_the_steps_that_are_on_their_way(per: str) -> None:
    torch.manual_seed(0)
    layer = _positive(_make("linear", per, _neuron("surrogate"))).eval()
    x = _events("linear", dtype=torch.float32)
    stream = snnlib.Stream(layer)
    got = torch.cat([stream(chunk) for chunk in x.split([2, 5, 11])])
    assert torch.equal(got, layer(x))
    history = stream.states["module" if "module" in stream.states else ""][-1]
    assert history.dtype == torch.uint8
    assert tuple(history.shape) == (5, 3, 1)


@pytest.mark.parametrize("inputs", (3, 20))
def test_lengths_where_only_some_chunks_hold_zeros_and_ones(inputs: int) -> None:
    """Steps that wait are packed to bits in some of the chunks only; each sample gets what it gets alone."""
    torch.manual_seed(inputs)
    layer = snnlib.SpikingLinear(inputs, 5, delays=snnlib.Delays(2, initial=1.5)).double().eval()
    x = (torch.rand(9, 3, inputs, dtype=torch.float64) < 0.5).double()
    x[4:] *= torch.rand(5, 3, inputs, dtype=torch.float64)
    lengths = torch.tensor([9, 3, 6])
    value, state = layer.run(x, lengths=lengths)
    for i, length in enumerate(lengths.tolist()):
        alone, after = layer.run(x[:length, i : i + 1])
        torch.testing.assert_close(value[:length, i : i + 1], alone, rtol=0, atol=0)
        history = after[1]
        if history.dtype == torch.uint8:
            history = unpacked(history, (1, inputs)).double()
        torch.testing.assert_close(state[1][:, i : i + 1], history, rtol=0, atol=0)


def test_eval_rounds() -> None:
    layer = snnlib.SpikingLinear(1, 1, neuron=neurons.IF(), delays=snnlib.Delays(5, initial=2.6))
    with torch.no_grad():
        layer.weight.fill_(1.0)
    x = torch.zeros(8, 1, 1)
    x[0] = 1.0
    assert layer.eval()(x).flatten().nonzero().flatten().tolist() == [3]
    layer.train()
    current = layer.input_current(x, layer.weight).detach().flatten()
    assert torch.allclose(current[2:4], torch.tensor([0.4, 0.6]))
    assert layer.delays.freeze_().steps.tolist() == [3.0]
    assert not layer.delays.steps.requires_grad


@pytest.mark.parametrize("rounded", [False, True])
def test_dense_products_give_what_events_give(rounded: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, signal = (
        torch.randn(shape, generator=generator).double() for shape in ((12, 3, 7), (5, 7), (12, 3, 5))
    )
    delay = torch.rand(7, generator=generator).double() * 4
    found = []
    for algorithm in ("events", "dense"):
        leaves = [part.clone().requires_grad_() for part in (x, weight, delay)]
        with snnlib.use_convolution(algorithm):  # type: ignore[arg-type]
            operator = snnlib.functional.FullyConnected()
            out = layer_currents(*leaves[:2], Delayed(operator, leaves[2], rounded=rounded))
            found.append([out, *torch.autograd.grad(out, leaves, signal)])
    for got, want in zip(*found, strict=True):
        assert torch.allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("per", ["channel", "connection"])
def test_events_are_listed_part_by_part(per: str) -> None:
    """Inputs that are too large for one list of events: sums for gradients go on from part to part."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(1100, 9, 512, generator=generator) < 1e-3).float()
    shape = (3, 512) if per == "connection" else (512,)
    weight, delay = torch.randn(3, 512, generator=generator), torch.rand(shape, generator=generator) * 3
    signal = torch.randn(1100, 9, 3, generator=generator)
    backward = op_calls.delayed_linear_backward
    whole = backward(signal, x, weight, delay, False, 0, False, True, True)
    parts = [
        backward(signal[:, n : n + 1], x[:, n : n + 1], weight, delay, False, 0, False, True, True)
        for n in range(9)
    ]
    for got, *one in zip(whole, *parts, strict=True):
        assert torch.allclose(got, sum(one), atol=1e-4)


@pytest.mark.parametrize("rounded", [False, True])
def test_events_that_are_all_one_give_what_others_give(rounded: bool) -> None:
    """Kernels add taps of events that are all 1 without a product; one event of another sample takes that from all."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(40, 3, 21, generator=generator) < 0.2).float()
    weight, signal = torch.randn(19, 21, generator=generator), torch.randn(40, 3, 19, generator=generator)
    delay = torch.rand(19, 21, generator=generator) * 6
    found = []
    for last in (1.0, 2.0):
        # The last step of the last sample, whose event arrives behind the end wherever it is late.
        x[-1, 2, 0], delay[:, 0] = last, 3.0
        current = op_calls.delayed_linear_forward(x, weight, delay, rounded, 0)
        gradients = op_calls.delayed_linear_backward(signal, x, weight, delay, rounded, 0, False, True, True)
        found.append([current, *gradients[1:]])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_events_of_delays_beyond_the_sequence_never_arrive() -> None:
    """Nor do kernels keep room for them, which would be many gigabytes."""
    x, weight = torch.ones(5, 2, 3), torch.ones(4, 3)
    delay = torch.full((4, 3), 2.0**30)
    delay[0, 0] = 5.0
    for rounded in (False, True):
        leaves = [part.clone().requires_grad_() for part in (x, weight, delay)]
        with snnlib.use_path("native"):
            current = op_calls.delayed_linear_forward(*leaves, rounded, 0)
            current.sum().backward()
        assert not current.any()
        for leaf in leaves[:2]:
            assert leaf.grad is not None
            assert not leaf.grad.any()
        by_delay = leaves[2].grad
        assert by_delay is not None
        # At 5 rounded steps the event of step 0 would arrive one step earlier in the last step, in both samples.
        assert float(by_delay[0, 0]) == (-1.0 if rounded else 0.0)
        by_delay[0, 0] = 0.0
        assert not by_delay.any()


def test_delays_beyond_any_index_never_arrive() -> None:
    """As many steps as no integer of 32 bits holds: nothing is read or written outside the sequence."""
    x, delay = torch.rand(5, 2, 3, dtype=torch.float64), torch.tensor([3e9, 1.0, 1e18]).double()
    for rounded in (False, True):
        late = ops.delay.delay_forward(x, delay, rounded)
        assert torch.equal(late[1:, :, 1], x[:-1, :, 1])
        assert not late[:, :, ::2].any()
        grad_x, grad_delay = ops.delay.delay_backward(x, x, delay, rounded, True, True)
        assert not grad_x[:, :, ::2].any()
        assert not grad_delay[::2].any()
        matrix = (x, torch.ones(4, 3).double(), delay, rounded, 0)
        currents = op_calls.delayed_linear_forward(*matrix)
        assert torch.equal(currents, late[:, :, 1:2].expand(5, 2, 4))
        signals = op_calls.delayed_linear_backward(currents, *matrix, True, True, True)
        assert not any(signal[..., ::2].any() for signal in signals)


def test_srm_delays_of_groups() -> None:
    """Groups are a weight that is zero between them."""
    torch.manual_seed(0)
    grouped, full = (
        snnlib.SpikingConv2d(
            *(4, 6, 3),
            groups=groups,
            neuron=neurons.SRM(),
            delays=snnlib.Delays(4, initial=torch.tensor([1.0, 2.0, 3.0, 1.0])),
        ).double()
        for groups in (2, 1)
    )
    _positive(grouped)
    with torch.no_grad():
        full.weight.zero_()
        full.weight[:3, :2], full.weight[3:, 2:] = grouped.weight[:3], grouped.weight[3:]
    x = (torch.rand(20, 2, 4, 5, 5) < 0.3).double()
    signal = torch.randn(20, 2, 6, 3, 3).double()
    for layer in (grouped, full):
        layer(x).backward(signal)
    assert full.delays.steps.grad is not None
    assert float(full.delays.steps.grad.abs().min()) > 0
    assert torch.allclose(grouped.delays.steps.grad, full.delays.steps.grad, atol=1e-9)


def test_bad_delays() -> None:
    with pytest.raises(ValueError, match=r"max_delay: expected a whole number of time steps >= 1, got 0"):
        snnlib.Delays(0)
    for steps in (float("inf"), float("nan"), 2.5):
        with pytest.raises(
            ValueError, match=rf"max_delay: expected a whole number of time steps >= 1, got {steps}"
        ):
            snnlib.Delays(steps)
    with pytest.raises(TypeError, match="learnable: expected True or False, got 'no'"):
        snnlib.Delays(3, learnable="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"per: expected channel or connection, got 'neuron'"):
        snnlib.Delays(3, "neuron")
    with pytest.raises(ValueError, match="initial: expected delays from 0 to max_delay = 3"):
        snnlib.Delays(3, initial=4.0)
    with pytest.raises(ValueError, match=r"initial: expected a number or shape \(6,\)"):
        snnlib.SpikingLinear(6, 5, delays=snnlib.Delays(3, initial=torch.ones(5)))
    with pytest.raises(TypeError, match=r"delays: expected an instance of snnlib\.Delays"):
        snnlib.SpikingLinear(6, 5, delays=3)  # type: ignore[arg-type]
    delays = snnlib.Delays(6)
    layer = snnlib.SpikingLinear(6, 5, delays=delays)
    with pytest.raises(ValueError, match="delays for this layer alone"):
        snnlib.SpikingLinear(6, 5, delays=delays)
    with pytest.raises(
        ValueError, match=r"delays: expected a max_delay below the 6 steps of the sequence, got 6"
    ):
        layer(torch.zeros(6, 2, 6))
    with pytest.raises(ValueError, match=r"^recurrent_delays: expected a max_delay below the 3 steps"):
        snnlib.SpikingRNN(6, 5, recurrent_delays=snnlib.Delays(3))(torch.zeros(3, 2, 6))
    _, state = layer.run(torch.zeros(6, 2, 6))
    with pytest.raises(ValueError, match=r"state: expected"):
        layer.run(torch.zeros(6, 3, 6), state)
    grouped = snnlib.SpikingConv2d(2, 4, 3, groups=2, delays=snnlib.Delays(2, "connection"))
    with pytest.raises(ValueError, match="delays: expected a fully connected map or a convolution"):
        grouped(torch.ones(5, 1, 2, 4, 4))


def test_delays_beyond_a_bound_go_back_to_it() -> None:
    """Only in a training step: a pass without gradients leaves the parameter as it is."""
    delays = snnlib.Delays(4, initial=torch.tensor([0.0, 4.0, 2.0]))
    delays.build(3, torch.empty(1, 3))
    optimiser = torch.optim.SGD(delays.parameters(), 1.0)
    delays().backward(torch.tensor([1.0, -1.0, 1.0]))
    assert delays.steps.grad is not None
    assert delays.steps.grad.tolist() == [1.0, -1.0, 1.0]
    optimiser.step()
    with torch.no_grad():
        assert delays().tolist() == [0, 4, 1] and delays.steps.tolist() == [-1, 5, 1]
    assert delays.eval()().tolist() == [0, 4, 1] and delays.steps.tolist() == [-1, 5, 1]
    assert delays.train()().tolist() == [0, 4, 1] == delays.steps.tolist()


WAYS = ("whole", "chunks", "checkpoint_time", "parts of the batch")


def _gradients(layer: torch.nn.Module, x: Tensor, weights: Tensor, way: str) -> list[Tensor]:
    """Gradients of all delays by a weighted sum of the outputs, in one call or in several."""
    loss, state = torch.zeros((), dtype=x.dtype), None
    if way == "checkpoint_time":
        loss = snnlib.checkpoint_time(
            layer, x, steps=5, reduce=lambda out, t: (out * weights[t : t + len(out)]).sum()
        )
    elif way == "chunks":
        for part, weight in zip(x.split(7), weights.split(7), strict=True):
            out, state = layer.run(part, state)  # type: ignore[operator]
            loss = loss + (out * weight).sum()
    else:
        size = x.shape[1] if way == "whole" else 1
        for part, weight in zip(x.split(size, 1), weights.split(size, 1), strict=True):
            (layer(part) * weight).sum().backward()
    if loss.requires_grad:
        loss.backward()
    grads = [p.grad for name, p in layer.named_parameters() if name.endswith("steps")]
    return [grad for grad in grads if grad is not None]


@pytest.mark.parametrize("bound", [0.0, 1.0])
@pytest.mark.parametrize(
    ("kind", "per", "neuron", "eprop"),
    [(*case, False) for case in CASES]
    + [(*case, True) for case in CASES if case[0] == "recurrent" and case[2] == "surrogate"],
)
def test_gradients_at_a_bound_add_up(kind: str, per: str, neuron: str, eprop: bool, bound: float) -> None:
    torch.manual_seed(0)
    layer = _positive(_make(kind, per, _neuron(neuron)).double())
    for module in layer.modules():
        if isinstance(module, snnlib.Delays):
            torch.nn.init.constant_(module.steps, bound * module.max_delay)
        if isinstance(module, RecurrentLayer):
            module.recurrent_gradient = "eprop" if eprop else "bptt"
            # So that spikes of both layers come and go.
            module.weight.data.mul_(0.35)
    x = _events(kind)
    weights = torch.randn(layer(x).shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    whole, *others = (_gradients(copy.deepcopy(layer), x, weights, way) for way in WAYS)
    assert len(whole) == (4 if kind == "recurrent" else 1)
    assert all(bool(grad.any()) for grad in whole)
    for way, grads in zip(WAYS[1:], others, strict=True):
        for grad, expected in zip(grads, whole, strict=True):
            assert (grad - expected).abs().max() <= 1e-9 * expected.abs().max(), way


def test_parameter_groups_and_files() -> None:
    layer = snnlib.SpikingLinear(6, 5, neuron=neurons.LIF(learnable=("tau",)), delays=snnlib.Delays(4))
    groups = snnlib.parameter_groups(layer, lr=1e-3, weight_decay=1e-4)
    assert [group["lr"] for group in groups] == pytest.approx([1e-3, 3e-3, 0.1])
    other = snnlib.SpikingLinear(6, 5, neuron=neurons.LIF(learnable=("tau",)), delays=snnlib.Delays(4))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.delays.steps, layer.delays.steps)
    assert layer.half().delays.steps.dtype == torch.float32


@pytest.mark.parametrize("neuron", ["surrogate", "event", "SRM"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("per", ["channel", "connection"])
def test_frames_are_taken_as_they_are(neuron: str, batch_first: bool, per: str, path: str) -> None:
    """A fully connected layer gives for frames what it gives for their features, in chunks as well."""
    torch.manual_seed(0)
    delays = snnlib.Delays(4, per)
    layer = snnlib.SpikingLinear(40, 5, neuron=_neuron(neuron), delays=delays, batch_first=batch_first)
    _positive(layer.double())
    frames, time_dim = _events("convolution", batch_first), int(batch_first)
    signal, found = None, []
    for x in (frames, frames.flatten(2)):
        leaf = x.clone().requires_grad_()
        whole = layer(leaf)
        signal = torch.randn_like(whole) if signal is None else signal
        gradients = torch.autograd.grad(whole, [leaf, *layer.parameters()], signal)
        outputs, state = [], None
        for chunk in x.split([7, 11], time_dim):
            value, state = layer.run(chunk, state)
            outputs.append(value)
        assert torch.equal(torch.cat(outputs, time_dim), whole)
        found.append([whole, gradients[0].reshape(x.flatten(2).shape), *gradients[1:]])
    assert 0 < float(found[0][0].detach().mean()) < 1
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_delays_of_frames_and_of_features() -> None:
    """As a function, one delay per channel of the frames counts for all of their cells; other numbers are an error."""
    x, weight = _events("convolution").requires_grad_(), torch.rand(5, 40).double()
    operator, delay = snnlib.functional.FullyConnected(), torch.tensor([1.0, 2.5]).double().requires_grad_()
    short, long = (
        layer_currents(x, weight, Delayed(operator, own)) for own in (delay, delay.repeat_interleave(20))
    )
    assert torch.equal(short, long)
    for got, want in zip(*(torch.autograd.grad(o.sum(), (x, delay)) for o in (short, long)), strict=True):
        assert torch.equal(got, want)
    with pytest.raises(ValueError, match=r"delay: expected .*40.*, got .*3"):
        layer_currents(x, weight, Delayed(operator, torch.ones(3).double()))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("kind", "per", "neuron"), CASES)
def test_empty_batches(kind: str, per: str, neuron: str, batch_first: bool) -> None:
    layer = _make(kind, per, _neuron(neuron), batch_first)
    x = _events(kind, batch_first, torch.float32).narrow(1 - int(batch_first), 0, 0)
    expected, state = layer(x), None
    for chunk in x.split([7, 11], int(batch_first)):
        value, state = layer.run(chunk, state)
        assert value.shape[2:] == expected.shape[2:]
        assert value.numel() == 0
