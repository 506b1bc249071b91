"""Runs a net on a batch of sequences of different lengths; padding has no effect."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from snnlib.checks import check_floating, check_lengths, check_rank
from snnlib.nn.time.time_mixing import check_time_steps
from snnlib.sequences.lengths import sequences_of, without_padding
from snnlib.sequences.time_first import time_first

__all__ = ["run_ragged"]


def run_ragged(net: nn.Module, x: Tensor, lengths: Tensor, *, batch_first: bool = False) -> Any:
    """Runs a net on sequences of different lengths; each sample's output is the same as without padding.

    Layers of neurons are causal, so padding after the last step does not affect earlier steps: the net runs once on
    the padded batch. In this call `Bidirectional` starts each sample at its own last step, and `SpikeDoctor` ignores
    padding. Padding of the input and of an output over time is set to zero, with a gradient of 0, so counts of output
    spikes need no mask.

    Args:
        net: any module over sequences that keeps their time steps.
        x: padded sequences `[T, N, ...]`, as from `snnlib.data.collate_ragged`, floating.
        lengths: number of steps of each sample, int `[N]`, 0 to T.
        batch_first: whether sequences are `[N, T, ...]`.

    Returns:
        The net's output; an output `[T, N, ...]` has zeros after each sample's last step.

    Raises:
        TypeError: an input that is not floating, or lengths that are not integers.
        ValueError: lengths that do not fit; a net whose modules would mix padding into other steps: batch
            normalisation in training mode, a bidirectional `torch.nn.RNN`, attention over time, or your own modules
            without `mixes_time = False`; a layer that changes the number of steps.

    >>> import torch, snnlib
    >>> net = torch.nn.Sequential(snnlib.Bidirectional(snnlib.SpikingRNN(20, 32)), torch.nn.Linear(64, 5))
    >>> samples = [torch.rand(steps, 20).round() for steps in (30, 50)]
    >>> x = torch.nn.utils.rnn.pad_sequence(samples)
    >>> scores = snnlib.run_ragged(net, x, torch.tensor([30, 50]))
    >>> alone = net(samples[0].unsqueeze(1))
    >>> scores.shape, bool(scores[30:, 0].any()), torch.allclose(scores[:30, :1], alone, atol=1e-6)
    (torch.Size([50, 2, 5]), False, True)
    """
    check_floating("x", x)
    check_rank("x", x, "[T, N, ...]", at_least=2)
    x = time_first(x, batch_first)
    if isinstance(lengths, Tensor):
        lengths = lengths.to(x.device)
    lengths = check_lengths(lengths, x)
    if bool((lengths < len(x)).any()):
        check_time_steps("net", net, padded=True)
    with sequences_of(lengths, len(x)):
        out = net(time_first(without_padding(x, lengths), batch_first))
    if not isinstance(out, Tensor) or out.dim() < 3 or time_first(out, batch_first).shape[:2] != x.shape[:2]:
        return out
    return time_first(without_padding(time_first(out, batch_first), lengths), batch_first)
