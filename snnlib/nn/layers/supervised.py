"""supervised_spikes: makes silent labelled output neurons fire within a block, so that they learn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snnlib.checks import check_integer_labels, without_autocast
from snnlib.functional.spiking import spiking_layer
from snnlib.functional.supervised import supervised_current
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.nn.layers.srm import SRMLinear
from snnlib.sequences.chunk import in_chunk

__all__ = ["supervised_spikes"]


@dataclass
class Teacher:
    """The neurons that the teacher made fire in the last forward pass.

    Args:
        taught: bool `[N]`: samples whose labelled neuron fired only because of the teacher.
    """

    taught: Tensor


@contextmanager
def supervised_spikes(layer: SRMLinear, target: Tensor) -> Iterator[Teacher]:
    """Makes silent labelled output neurons fire once, in forward passes of a `with` block.

    A silent neuron has no spike that a gradient could move. The teacher adds a current that pushes it over the
    threshold at the step of its highest potential (`functional.supervised_current` has the equation). The spike has
    the ordinary event-driven gradient: a loss that asks for more or earlier spikes raises the weights of the inputs
    before it. All other spikes stay the same, and neurons that fire by themselves get no teacher.

    Use it for training only, since the outputs depend on the label. `taught` of the block's value marks these samples;
    do not count them as correct.

    Args:
        layer: the net's output layer, one neuron per class; it has a hook within the block.
        target: labels `[N]` of the batch, integers from 0 to classes - 1.

    Raises:
        TypeError: another layer than an `SRMLinear`, or `target` is not an integer tensor.
        ValueError: in the forward pass, labels that do not fit, or a chunk of a sequence (a state is given or
            returned).

    Source: the supervised spike of Zhu et al., NeurIPS 2022.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.SRMLinear(20, 3))
    >>> _ = torch.nn.init.zeros_(net[0].weight)
    >>> x, labels = torch.ones(10, 2, 20), torch.tensor([0, 2])
    >>> with snnlib.nn.supervised_spikes(net[0], labels) as teacher:
    ...     spikes = net(x)
    >>> teacher.taught.tolist()
    [True, True]
    >>> snnlib.readout.spike_count(spikes).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if not isinstance(layer, SRMLinear):
        raise TypeError(f"layer: expected an SRMLinear, got {type(layer).__name__}")
    check_integer_labels(target)
    layer.training_watch.stop()
    result = Teacher(torch.zeros_like(target, dtype=torch.bool))

    def teach(_layer: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any], spikes: Tensor) -> Tensor:
        x = (inputs[0] if inputs else named["x"]).flatten(2)
        if in_chunk(layer):
            raise ValueError("layer: expected calls with a whole sequence, got a chunk")
        # Half precision would round the teacher's current, and with it the push, by more than what it leaves to spare.
        exact = torch.promote_types(spikes.dtype, torch.float32)
        with without_autocast(x):
            x, weight = (tensor.to(spikes.dtype).to(exact) for tensor in (x, layer.effective_weight))
            with torch.no_grad():
                current = nn.functional.linear(x, weight)
                order = layer.batch_first
                teacher = supervised_current(current, target, layer.neuron, layer.threshold, order)
                # Neurons that are pushed: [1, N, classes], or [N, 1, classes].
                silent = (spikes == 0).all(int(order), keepdim=True)
                taught = (teacher != 0).any(int(order), keepdim=True) & silent
            result.taught = taught.flatten(0, 1).any(1)
            # Saves a pass where nobody is silent; on a GPU asking would take longer, and could not be captured.
            if spikes.device.type == "cpu" and not bool(taught.any()):
                return spikes
            # The teacher is one more input per neuron, of weight 1.
            one_more = torch.cat((weight, torch.eye(len(weight), dtype=exact, device=weight.device)), 1)
            with_teacher = spiking_layer(
                torch.cat((x, teacher), 2), one_more, layer.operator, layer.neuron, return_state=False
            ).value
        return torch.where(taught, with_teacher.to(spikes.dtype), spikes)

    handle = layer.register_forward_hook(of_this_thread(teach), with_kwargs=True)
    try:
        yield result
    finally:
        handle.remove()
