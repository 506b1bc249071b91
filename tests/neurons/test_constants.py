"""Constants that would not be learned are refused by name."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import snnlib
from snnlib import neurons, surrogate


@pytest.mark.parametrize(
    "wrap", [lambda x: nn.Parameter(torch.tensor(x)), lambda x: torch.tensor(x, requires_grad=True)]
)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: snnlib.SRMLinear(3, 2, tau_m=v(5.0)), r"tau_m: expected a number"),
        (lambda v: snnlib.SRMLinear(3, 2, input_grad_scale=v(1.0)), r"input_grad_scale: expected a number"),
        (lambda v: snnlib.SRMReadout(3, 2, tau_s=v(2.0)), r"tau_s: expected a number"),
        (lambda v: neurons.LIF(tau=v(2.0)), r'tau: expected a number or a tensor.*use learnable=\("tau",\)'),
        (lambda v: neurons.LIF(threshold=v(1.0)), r'threshold: .*use learnable=\("threshold",\)'),
        (lambda v: neurons.PLIF(tau=v(2.0)), r"tau: .*w learns"),
        (lambda v: neurons.SRM(threshold=v(1.0)), r"threshold: .*this model learns no constants"),
        (lambda v: neurons.LIF(reset_value=v(0.0)), r"reset_value: expected a number"),
        (lambda v: neurons.LIF(floor=v(-1.0)), r"floor: expected a number"),
        (lambda v: surrogate.Triangle(width=v(0.5)), r"width: expected a number"),
        (lambda v: surrogate.ATan(v(2.0)), r"alpha: expected a number"),
    ],
)
def test_what_would_not_be_learned_is_refused(
    make: Callable[[Callable[[float], Tensor]], object], message: str, wrap: Callable[[float], Tensor]
) -> None:
    with pytest.raises(TypeError, match=message):
        make(wrap)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: snnlib.SpikingConv2d(2, 3, 3, bias=True), "bias: .* SpikingConv2d, .* have no bias"),
        (lambda: snnlib.SpikingLinear(3, 2, beta=0.9), r"beta: .*it belongs to the neuron"),
        (lambda: snnlib.SpikingRNN(3, 2, hiden=3), r"hiden: .*did you mean hidden_size\?"),
        (lambda: neurons.LIF(beta=0.9), r"beta: expected an option of LIF, .*LIF.from_beta"),
        (lambda: neurons.LIF(treshold=1.0), r"treshold: .*did you mean threshold\?"),
        (lambda: neurons.LIF(tau_m=2.0), r"tau_m: .*did you mean tau\?"),
        (lambda: neurons.CubaLIF(tau=2.0), r"tau: .*did you mean tau_m\?"),
        (lambda: snnlib.SRMReadout(3, 2, bias=True), r"bias: .*have no bias"),
    ],
)
def test_unknown_options_have_a_hint(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
