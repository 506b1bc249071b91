"""Sound as what an exported program takes: the front end as `log_mel.h` reads it, and sound for the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from snnlib.data import LogMel, StackFrames


class SoundInput:
    """A front end and what makes steps of its frames, in C; without the latter each frame is a step.

    Attributes:
        numbers, constants, memory: fields of `snn_log_mel` by name; of memory the type and the number of each.
    """

    def __init__(self, front_end: LogMel, stack: StackFrames | None) -> None:
        self.front_end, self.stack = front_end, stack
        self.window, self.hop = (1, 1) if stack is None else (stack.window, stack.hop)
        self.numbers, tables = front_end.program()
        self.constants = {name: torch.from_numpy(table) for name, table in tables.items()}
        half = self.numbers["size"] // 2
        self.memory = {
            # An array has at least one number.
            "before": (torch.int16, max(front_end.window - front_end.hop, 1)),
            "mean": (torch.int64, front_end.channels),
            "real": (torch.int32, half),
            "imaginary": (torch.int32, half),
        }

    @property
    def ram_bytes(self) -> int:
        """Bytes of state and scratch, of the frames of a step, and of the number of new ones."""
        own = sum(size * kind.itemsize for kind, size in self.memory.values())
        return own + self.window * self.front_end.channels + 4

    @property
    def flash_bytes(self) -> int:
        """Bytes of tables."""
        return sum(table.nbytes for table in self.constants.values())

    def heard(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        """Input `[T, N, window, C]` of the net from sound `[samples, N]`, and the samples of these steps."""
        heard = (self.front_end(each) for each in sound.unbind(1))
        steps = [frames.unsqueeze(1) if self.stack is None else self.stack(frames) for frames in heard]
        frames = torch.stack(steps, 1)
        used = sound[: len(frames) * self.hop * self.front_end.hop]
        samples = [torch.from_numpy(self.front_end.samples(each)) for each in used.unbind(1)]
        return frames, torch.stack(samples, 1)

    def lines(self) -> str:
        """Returns the declarations for the header of the program."""
        return f"""
#define NET_SAMPLE_RATE {self.front_end.sample_rate}
/* Samples that net_sound takes. */
#define NET_HOP {self.front_end.hop}
/* Frames that a step is made of, and those of them that are new. */
#define NET_FRAMES {self.window}
#define NET_NEW_FRAMES {self.hop}

/* Take the next NET_HOP samples. Returns 1 where they complete the frames of a time step, which net_step then ends,
 * else 0. */
int net_sound(const int16_t* samples);
"""
