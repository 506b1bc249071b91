"""Records of surrogates without compact support have a known size, and kernels write them in place."""

import op_calls
import opdb_neurons
import pytest
import torch
from compare import assert_same_bits

import snnlib
from snnlib.backends import native


@pytest.mark.parametrize("channels", [1, 3, 10, 16, 17])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (40, 1), (33, 8)])
@pytest.mark.parametrize("time_dim", [0, 1])
def test_records_of_all_sizes(channels: int, size: tuple[int, int], time_dim: int, isas: list[str]) -> None:
    """Rows that end within a group of numbers stand before those of another task."""
    generator = torch.Generator().manual_seed(channels)
    x = (torch.rand(5, 3, 2, *size, generator=generator) < 0.3).float()
    weight = torch.randint(-2, 4, (channels, 2, 3, 3), generator=generator) / 2
    table = opdb_neurons.coefficients(1, channels, generator, keep0=0.0, offset0=0.25, scale=2.0)
    layer = (x, weight, table, None, [1, 1], [1, 1], [1, 1], 1, [1, 1], opdb_neurons.WIDE, time_dim)
    with snnlib.use_path("reference"):
        expected = op_calls.layer_forward(*layer, False, True, True)
    steps = x.shape[time_dim]
    assert expected[3].shape == (1, steps * (15 // steps) * channels * size[0] * size[1])
    with snnlib.use_path("native"):
        for isa in isas:
            native._module.select_isa(isa)
            for threads in (1, 4):
                torch.set_num_threads(threads)
                assert_same_bits(
                    op_calls.layer_forward(*layer, False, True, True), expected, f"{isa}, {threads}"
                )
