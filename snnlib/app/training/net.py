"""The net of a run, built from its settings."""

from __future__ import annotations

from functools import partial

from torch import nn

from snnlib.app.errors import ConfigError
from snnlib.app.kinds.base import DataFacts
from snnlib.app.training.config import TrainConfig
from snnlib.app.training.neuron import SPIKE_TIME_NEURONS, build_neuron, build_recurrent_neuron
from snnlib.app.training.objective import LOSSES
from snnlib.models import from_notation
from snnlib.neurons import LoihiIntegrator
from snnlib.nn import Sparse, SpikingLinear, SRMLinear, SRMReadout, standardize_weights_


def build_net(config: TrainConfig, facts: DataFacts) -> nn.Module:
    """Returns the net of a run, untrained.

    Raises:
        ConfigError: a net that is not understood, does not fit the frames or has no neuron per class.
    """
    try:
        net = _layers(config, facts)
    except ConfigError:
        raise
    except ValueError as error:
        # The library's messages start with the name of the argument that they refuse.
        field, _, text = str(error).partition(": ")
        if field in ("tau_m", "tau_s", "tau_grad"):
            raise ConfigError(field, text) from error
        if field == "connections":
            raise ConfigError("density", text.replace("None", "1", 1)) from error
        raise ConfigError("net", text if field == "notation" else str(error)) from error
    except (RuntimeError, MemoryError, OverflowError) as error:
        raise ConfigError(
            "net",
            f"expected layers that fit into memory, got {config.net.net!r}: {str(error).splitlines()[0]}",
        ) from error
    outputs = config.net.net.rpartition("-")[2].partition("D")[0]
    if outputs != str(len(facts.classes)):
        raise ConfigError(
            "net",
            f"expected {len(facts.classes)} output neurons, one per class, as last layer, got {outputs!r}",
        )
    potentials = LOSSES[config.learning.loss].of_potentials
    # Weights of a chip have another size, as no time constant divides currents; so they learn at the pace of others.
    # Outputs that fire learn worse from the larger steps.
    on_chip = config.net.dialect is not None and potentials and config.net.density == 1
    if config.net.neuron in SPIKE_TIME_NEURONS or on_chip:
        standardize_weights_(
            net, homeostasis=config.net.weight_scheme == "standardized" or config.net.neuron == "cuba-once"
        )
    if potentials:
        name, last = list(net.named_children())[-1]
        assert isinstance(last, SRMLinear | SpikingLinear)
        sizes = last.in_features, last.out_features
        if config.net.dialect is None:
            readout: nn.Module = SRMReadout(*sizes, tau_m=config.net.tau_m, tau_s=config.net.tau_s)
        else:
            membrane = LoihiIntegrator(config.net.tau_m, tau_s=config.net.tau_s)
            layer = SpikingLinear(*sizes, neuron=membrane)
            # With the time constant in the gain weights learn as an SRMReadout's do.
            layer.gain.fill_(1 / config.net.tau_s)
            layer.weight.data.mul_(config.net.tau_s)
            readout = layer
        net.set_submodule(name, readout)
    return net


def _layers(config: TrainConfig, facts: DataFacts) -> nn.Sequential:
    neuron = build_neuron(config.net)
    if neuron is None:
        return from_notation(
            config.net.net,
            facts.input_shape,
            tau_m=config.net.tau_m,
            tau_s=config.net.tau_s,
            tau_grad=config.net.tau_grad,
            input_grad_scale=config.learning.input_grad_scale,
        )
    return from_notation(
        config.net.net,
        facts.input_shape,
        neuron=neuron,
        recurrent_neuron=partial(build_recurrent_neuron, config.net),
        batch_norm=config.net.batch_norm,
        dropout=config.net.dropout,
        connections=Sparse(density=config.net.density) if config.net.density < 1 else None,
    )
