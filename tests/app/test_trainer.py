"""Process-wide settings of a run, which it restores at its end."""

import torch

from snnlib.app.training import trainer


def test_deterministic_runs_do_not_fill_memory_that_is_written_to_anyhow() -> None:
    """On a GPU each fill is a kernel of its own, a half of what the neurons' kernels move."""

    def is_filled() -> bool:
        return bool(torch.empty(1000).isnan().all())

    assert not torch.are_deterministic_algorithms_enabled()
    with trainer.quiet_lightning():
        # As Lightning does for `deterministic=True`.
        torch.use_deterministic_algorithms(True)
        assert not is_filled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
