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
            "net", f"expected layers that fit into memory, got {config.net!r}: {str(error).splitlines()[0]}"
        ) from error
    outputs = config.net.rpartition("-")[2].partition("D")[0]
    if outputs != str(len(facts.classes)):
        raise ConfigError(
            "net",
            f"expected {len(facts.classes)} output neurons, one per class, as last layer, got {outputs!r}",
        )
    potentials = LOSSES[config.loss].of_potentials
    # Weights of a chip have another size, as no time constant divides currents; so they learn at the pace of others.
    # Outputs that fire learn worse from the larger steps.
    on_chip = config.dialect is not None and potentials and config.density == 1
    if config.neuron in SPIKE_TIME_NEURONS or on_chip:
        standardize_weights_(
            net, homeostasis=config.weight_scheme == "standardized" or config.neuron == "cuba-once"
        )
    if potentials:
        name, last = list(net.named_children())[-1]
        assert isinstance(last, SRMLinear | SpikingLinear)
        sizes = last.in_features, last.out_features
        if config.dialect is None:
            readout: nn.Module = SRMReadout(*sizes, tau_m=config.tau_m, tau_s=config.tau_s)
        else:
            membrane = LoihiIntegrator(config.tau_m, tau_s=config.tau_s)
            layer = SpikingLinear(*sizes, neuron=membrane)
            # With the time constant in the gain weights learn as an SRMReadout's do.
            layer.gain.fill_(1 / config.tau_s)
            layer.weight.data.mul_(config.tau_s)
            readout = layer
        net.set_submodule(name, readout)
    return net


def _layers(config: TrainConfig, facts: DataFacts) -> nn.Sequential:
    neuron = build_neuron(config)
    if neuron is None:
        return from_notation(
            config.net,
            facts.input_shape,
            tau_m=config.tau_m,
            tau_s=config.tau_s,
            tau_grad=config.tau_grad,
            input_grad_scale=config.input_grad_scale,
        )
    return from_notation(
        config.net,
        facts.input_shape,
        neuron=neuron,
        recurrent_neuron=partial(build_recurrent_neuron, config),
        batch_norm=config.batch_norm,
        dropout=config.dropout,
        connections=Sparse(density=config.density) if config.density < 1 else None,
    )
