"""E-prop of `SpikingRNN` and computed forward in time, against NEST's (make_nest_eprop.py made nest_eprop.npz).

The loop below is written from the equations of Bellec et al. 2020 (Nature Communications 11:3625) and of NEST's
documentation, in float64. With input spikes x, hidden spikes z, a = exp(-1 / tau_m), k = exp(-1 / tau_readout) and
r = exp(-1 / adapt_tau), for hidden neuron j, input or hidden neuron i and read-out o::

    v_j[t] = a v_j[t-1] + g (sum_i W_ji x_i[t] + sum_i R_ji z_i[t-1]) - V_th z_j[t-1]      g = 1 - a, or 1
    A_j[t] = V_th + adapt_beta b_j[t],   b_j[t] = r b_j[t-1] + z_j[t-1]                    adaptive neurons
    z_j[t] = 1 where v_j[t] >= A_j[t] and j is not refractory
    y_o[t] = k y_o[t-1] + (1 - k) sum_j O_oj z_j[t]
    d_o[t] = y_o[t] - y*_o[t], or softmax(y[t])_o - y*_o[t];   0 outside of the learning window
    L_j[t] = sum_o B_jo d_o[t]

and with the filtered spikes of a synapse, f_i[t] = a f_i[t-1] + g x_i[t] (z_i[t-1] for a recurrent one)::

    h_j[t] = 0.3 / V_th max(0, 1 - |v_j[t] - A_j[t]| / V_th), 0 while j is refractory
    e_ji[t] = h_j[t] (f_i[t] - adapt_beta s_ji[t]),   s_ji[t+1] = r s_ji[t] + e_ji[t]
    dE/dW_ji = sum_t L_j[t] lowpass(e_ji)[t] + c_reg / T (rate_j - f_target) sum_t e_ji[t]
    dE/dO_oj = sum_t d_o[t] lowpass(z_j)[t],   lowpass(e)[t] = k lowpass(e)[t-1] + (1 - k) e[t]

NEST differs from the paper, or chooses what the paper leaves open, in these points:

- Feedback weights B are random and fixed, and the step of the loss is that of the spike: delays of connections (one
  step each from input to hidden neurons, on to the read-out, to the loss and back) shift what is paired, so that no
  delay is left but the one of a recurrent spike.
- The filters of the membrane scale inputs by 1 - a in the regression ("regular_spike_arrival" off), by 1 in the
  classification; the filter of the read-out and the low-pass of eligibility traces always by 1 - k. The reset
  subtracts V_th, from an adaptive neuron too, and has no gradient.
- The low-pass is what backpropagation through the read-out's filter gives: with B = O^T, all that is cut from
  backpropagation through time is the paths of recurrent spikes and of resets (the second test, with any B).
- A gradient is a sum over the steps of a sequence; with `average_gradient` (classification) it is divided by the
  learning window, the rate's part too. rate_j is spikes per step of the whole sequence, f_target 10 Hz.
- States and traces start at 0 in each sequence; a spike of its last step reaches no hidden neuron, one of the input in
  its first neither (there is none in these tasks).
- A synapse is updated by its first spike after an update. A synapse that was silent for a sequence makes up for it
  later, with gradient 0: the same weights, whenever they are used, as an update of all at once.
- An input that fires in the second step of the next sequence updates its synapses a step before the learning signal of
  the last step has come back: their gradients lack L_j[T - 1] (`early` below).
- Gradient descent: W -= eta dE/dW. Adam as in TensorFlow: epsilon is added to sqrt(v) before its bias is corrected,
  W -= eta sqrt(1 - beta_2^n) / (1 - beta_1^n) m / (sqrt(v) + epsilon).
- A refractory time of 5 ms lets a neuron fire again in the fifth step after a spike; h is 0 in the four between.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate

STORED = Path(__file__).with_name("nest_eprop.npz")
# Changes of the weights of every fourth hidden neuron are stored.
EVERY = 4
Weights = dict[str, np.ndarray]


@dataclass
class Task:
    """Constants of a task and the arrays that NEST was given."""

    threshold: float
    tau: float
    refractory: int
    gain: float
    window: int
    adaptation: np.ndarray
    classes: bool
    arrays: Weights
    adam: bool = False
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @property
    def decay(self) -> float:
        return float(np.exp(-1 / self.tau))


def loaded(name: str) -> Task:
    with np.load(STORED) as stored:
        arrays = {key.removeprefix(name + "_"): stored[key] for key in stored.files if key.startswith(name)}
    neurons = len(arrays["w_rec"])
    arrays["spikes"] = np.unpackbits(arrays["spikes"], axis=-1, count=neurons).astype(float)
    x = np.unpackbits(arrays["input"], axis=-1, count=arrays["w_in"].shape[1]).astype(float)
    sequences, steps = arrays["spikes"].shape[:2]
    arrays["input"] = np.broadcast_to(x, (sequences, steps, x.shape[-1]))
    if name == "regression":
        arrays["target"] = np.broadcast_to(arrays["target"], (sequences, steps, 1))
        gain = 1 - np.exp(-1 / 30.0)
        return Task(0.03, 30.0, 0, gain, steps, np.zeros(neurons), classes=False, arrays=arrays)
    arrays["target"] = np.broadcast_to(arrays["target"][:, None], (sequences, steps, 2))
    beta = 1.7 * (1 - np.exp(-1 / 2000.0)) / (1 - np.exp(-1 / 20.0))
    adaptation = np.where(np.arange(neurons) < 50, 0.0, beta)
    return Task(0.6, 20.0, 5, 1.0, 150, adaptation, classes=True, arrays=arrays, adam=True)


@dataclass
class Sequence:
    """A sequence's loss and gradients, and spikes, errors, learning signals and surrogates by step."""

    loss: float
    spikes: np.ndarray
    errors: np.ndarray
    signals: np.ndarray
    surrogates: np.ndarray
    gradients: Weights


def run(task: Task, weights: Weights, x: np.ndarray, target: np.ndarray, early: np.ndarray) -> Sequence:
    """Runs a sequence forward in time, with its gradients: no step looks at a later one.

    `early` says which inputs are updated before the learning signal of the last step.
    """
    steps, neurons, decay, slow = len(x), len(weights["w_rec"]), task.decay, np.exp(-1 / 2000.0)
    start = steps - task.window
    v, b, z, left, filtered_z = (np.zeros(neurons) for _ in range(5))
    y = np.zeros(target.shape[1])
    drive = task.gain * x @ weights["w_in"].T
    # Inputs first, then recurrent spikes; of each pair `[to, from]`: slow and low-passed eligibility, and sums.
    filtered = np.zeros(x.shape[1] + neurons)
    slow_part, low, summed, learned = (np.zeros((neurons, len(filtered))) for _ in range(4))
    readout = np.zeros_like(weights["w_out"])
    spikes, signals, surrogates = (np.zeros((steps, neurons)) for _ in range(3))
    errors = np.zeros((steps, len(y)))
    in_time = np.concatenate((~early, np.ones(neurons, dtype=bool)))
    loss, adaptive, beta = 0.0, bool(task.adaptation.any()), task.adaptation[:, None]
    for t in range(steps):
        filtered = decay * filtered + task.gain * np.concatenate((x[t], z))
        v = decay * v + drive[t] + task.gain * weights["w_rec"] @ z - task.threshold * z
        b = slow * b + z
        limit = task.threshold + task.adaptation * b
        left = np.maximum(left - 1, 0)
        free = left == 0
        surrogate = 0.3 / task.threshold * np.maximum(0, 1 - np.abs(v - limit) / task.threshold) * free
        z = ((v >= limit) & free).astype(float)
        left = np.where(z > 0, task.refractory, left)
        y = decay * y + (1 - decay) * weights["w_out"] @ z
        filtered_z = decay * filtered_z + (1 - decay) * z
        error = np.zeros_like(y)
        if t >= start:
            scores = np.exp(y) / np.exp(y).sum() if task.classes else y
            error = scores - target[t]
            loss += -np.log(scores) @ target[t] / task.window if task.classes else 0.5 * error @ error
        signal = weights["feedback"] @ error
        eligible = surrogate[:, None] * (filtered - beta * slow_part if adaptive else filtered)
        if adaptive:
            slow_part = slow * slow_part + eligible
        low *= decay
        low += (1 - decay) * eligible
        summed += eligible
        if t >= start:
            learned += signal[:, None] * (low if t < steps - 1 else low * in_time)
            readout += error[:, None] * filtered_z
        spikes[t], errors[t], signals[t], surrogates[t] = z, error, signal, surrogate
    excess = 300.0 / steps * (spikes.mean(0) - 0.01)
    gradient = (learned + excess[:, None] * summed) / (task.window if task.adam else 1)
    gradients = {
        "w_in": gradient[:, : x.shape[1]],
        "w_rec": gradient[:, x.shape[1] :] * (1 - np.eye(neurons)),
        "w_out": readout / (task.window if task.adam else 1),
    }
    return Sequence(loss, spikes, errors, signals, surrogates, gradients)


def update(task: Task, weights: Weights, gradients: Weights, number: int) -> None:
    """Gradient descent, or Adam as NEST has it; `number` counts updates from 1."""
    for name, gradient in gradients.items():
        if not task.adam:
            weights[name] = weights[name] - 1e-4 * gradient
            continue
        m, v = task.moments.get(name, (np.zeros_like(gradient), np.zeros_like(gradient)))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        task.moments[name] = m, v
        rate = 5e-3 * np.sqrt(1 - 0.999**number) / (1 - 0.9**number)
        weights[name] = weights[name] - rate * m / (np.sqrt(v) + 1e-8)


@pytest.mark.parametrize("name", ["regression", "classification"])
def test_eprop_of_nest(name: str) -> None:
    task = loaded(name)
    arrays = task.arrays
    initial = {key: arrays[key].astype(float) for key in ("w_in", "w_rec", "w_out", "feedback")}
    weights, losses = dict(initial), []
    following = [x[1] > 0 for x in arrays["input"][1:]] + [np.zeros(arrays["input"].shape[2], dtype=bool)]
    sequences = zip(arrays["input"], arrays["target"], following, strict=True)
    for number, (x, target, early) in enumerate(sequences, start=1):
        found = run(task, weights, x, target, early)
        losses.append(found.loss)
        assert (found.spikes == arrays["spikes"][number - 1]).all()
        if number == 1:
            watched = [0, 1, len(initial["w_rec"]) - 1]
            # Stored in float32.
            np.testing.assert_allclose(found.signals[:, watched], arrays["signals"], rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(
                found.surrogates[:, watched], arrays["surrogates"], rtol=1e-6, atol=1e-6
            )
        if number < len(arrays["input"]):
            update(task, weights, found.gradients, number)
    off = np.abs(np.array(losses) / arrays["losses"] - 1).max()
    print(f"{name}: losses {np.round(losses, 4)}, {off:.1e} off")
    np.testing.assert_allclose(losses, arrays["losses"], rtol=1e-9)
    for key in ("w_in", "w_rec", "w_out"):
        change, theirs = weights[key] - initial[key], arrays["change_" + key[2:]]
        change = change if key == "w_out" else change[::EVERY]
        # The fourth update comes with a spike in the fifth sequence.
        senders = arrays["input"] if key == "w_in" else arrays["spikes"]
        active = senders[-1].any(0)
        print(
            f"    {key}: {np.abs(change - theirs)[:, active].max():.1e} off, {np.abs(theirs).max():.1e} at most"
        )
        # Stored in float32; the smallest changes are what is left of larger ones that nearly cancel.
        np.testing.assert_allclose(change[:, active], theirs[:, active], rtol=1e-5, atol=1e-9)


class Spike(torch.autograd.Function):
    """Step function of v - A with the slope h."""

    @staticmethod
    def forward(ctx: Any, above: Tensor, free: Tensor, threshold: float) -> Tensor:
        ctx.save_for_backward(0.3 / threshold * (1 - (above / threshold).abs()).clamp(min=0) * free)
        return ((above >= 0) & (free > 0)).double()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


def backpropagated(task: Task, weights: Weights, x: np.ndarray, errors: np.ndarray) -> Weights:
    """Gradients of `sum d B^T lowpass(z)` and of the rate's loss, without the paths of recurrent spikes and resets."""
    w_in, w_rec, feedback = (torch.tensor(weights[name]) for name in ("w_in", "w_rec", "feedback"))
    w_in.requires_grad_()
    w_rec.requires_grad_()
    neurons, slow = len(w_rec), float(np.exp(-1 / 2000.0))
    beta = torch.tensor(task.adaptation)
    v = b = z = left = low = torch.zeros(neurons, dtype=torch.float64)
    loss, spikes = torch.zeros((), dtype=torch.float64), []
    for step, error in zip(torch.tensor(x), torch.tensor(errors), strict=True):
        fixed = z.detach()
        v = task.decay * v + task.gain * (w_in @ step + w_rec @ fixed) - task.threshold * fixed
        b = slow * b + z
        left = (left - 1).clamp(min=0)
        z = Spike.apply(v - task.threshold - beta * b, (left == 0).double(), task.threshold)
        left = torch.where(z > 0, float(task.refractory), left)
        low = task.decay * low + (1 - task.decay) * z
        loss = loss + error @ (feedback.T @ low)
        spikes.append(z)
    excess = torch.stack(spikes).mean(0) - 0.01
    share = task.window if task.adam else 1
    ((loss + 150 * (excess**2).sum()) / share).backward()
    assert w_in.grad is not None and w_rec.grad is not None
    return {"w_in": w_in.grad.numpy(), "w_rec": w_rec.grad.numpy() * (1 - np.eye(neurons))}


@pytest.mark.parametrize("name", ["regression", "classification"])
def test_it_is_backpropagation_with_paths_cut(name: str) -> None:
    task, steps = replace(loaded(name), window=120), 200
    weights = {key: task.arrays[key].astype(float) for key in ("w_in", "w_rec", "w_out", "feedback")}
    x, target = task.arrays["input"][0, :steps], task.arrays["target"][0, :steps]
    found = run(task, weights, x, target, np.zeros(x.shape[1], dtype=bool))
    wanted = backpropagated(task, weights, x, found.errors)
    for key, gradient in wanted.items():
        np.testing.assert_allclose(
            found.gradients[key], gradient, rtol=1e-9, atol=1e-12 * np.abs(gradient).max()
        )


class NestNeuron(neurons.Neuron):
    """NEST's neurons with and without adaptation: their membrane goes on in a refractory time."""

    state_names = ("v", "b", "z", "left")

    def __init__(self, task: Task) -> None:
        super().__init__({"threshold": task.threshold, "beta": torch.tensor(task.adaptation)})
        self.task = task

    def step(self, state: Any, current: Tensor, params: Any) -> tuple[Tensor, Any]:
        v, b, z, left = state
        threshold, beta = params["threshold"], params["beta"]
        v = self.task.decay * v + self.task.gain * current - threshold * z.detach()
        b = float(np.exp(-1 / 2000.0)) * b + z
        left = (left.detach() - 1).clamp(min=0)
        z = Spike.apply(v - threshold - beta * b, (left == 0).double(), self.task.threshold)
        return z, (v, b, z, torch.where(z > 0, float(self.task.refractory), left))


@pytest.mark.filterwarnings("ignore:neuron. its surrogate")
@pytest.mark.parametrize("name", ["regression", pytest.param("classification", marks=pytest.mark.slow)])
def test_layers_have_the_losses_of_nest(name: str) -> None:
    """The regression by kernels, the classification by `step`; losses and optimisers are those of the loop above."""
    task, wide = loaded(name), {"dtype": torch.float64}
    arrays, window = task.arrays, task.window
    weights = {key: arrays[key].astype(float) for key in ("w_in", "w_rec", "w_out")}
    (hidden, inputs), outputs = weights["w_in"].shape, len(weights["w_out"])
    slope = surrogate.Triangle(width=1.0, height=0.3 / task.threshold)
    shared: dict[str, Any] = {"threshold": task.threshold, "discretisation": "exponential"}
    lif = neurons.LIF(task.tau, **shared, surrogate=slope, reset="subtract", reset_time="next")
    neuron = NestNeuron(task) if task.classes else lif
    rnn = snnlib.SpikingRNN(inputs, hidden, neuron=neuron, recurrent_gradient="eprop", **wide)
    feedback = snnlib.nn.RandomFeedback(nn.Linear(hidden, outputs, bias=False, **wide))
    feedback.feedback.copy_(torch.tensor(arrays["feedback"].T))
    readout = nn.Sequential(feedback, neurons.Integrator(task.tau, discretisation="exponential"))
    leaves = [rnn.layers[0].weight, rnn.layers[0].recurrent_weight, feedback.readout.weight]
    losses, following = [], [*(x[1] > 0 for x in arrays["input"][1:]), np.zeros(inputs, dtype=bool)]
    for number, (x, target, early) in enumerate(
        zip(arrays["input"], arrays["target"], following, strict=True), start=1
    ):
        with torch.no_grad():
            for leaf, value in zip(leaves, weights.values(), strict=True):
                leaf.copy_(torch.tensor(value))
        spikes = rnn(torch.tensor(x)[:, None])
        assert (spikes[:, 0].detach().numpy() == arrays["spikes"][number - 1]).all()
        y, wanted = readout(spikes)[-window:, 0], torch.tensor(target[-window:])
        errors = -(y.log_softmax(1) * wanted).sum(1) if task.classes else 0.5 * (y - wanted).square().sum(1)
        losses.append(float(errors.detach().sum()) / (window if task.classes else 1))
        rates = 150 * (spikes.mean(0) - 0.01).square().sum()
        share = window if task.adam else 1
        found = torch.autograd.grad((errors.sum() + rates) / share, leaves, retain_graph=True)
        (in_time,) = torch.autograd.grad((errors[:-1].sum() + rates) / share, leaves[:1])
        gradients = {key: grad.numpy() for key, grad in zip(weights, found, strict=True)}
        gradients["w_in"][:, early] = in_time.numpy()[:, early]
        gradients["w_rec"] *= 1 - np.eye(hidden)
        update(task, weights, gradients, number)
    print(f"{name}: {np.abs(np.array(losses) / arrays['losses'] - 1).max():.1e} off")
    np.testing.assert_allclose(losses, arrays["losses"], rtol=1e-9)
