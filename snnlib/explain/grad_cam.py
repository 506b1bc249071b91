"""Grad-CAM for conv nets, spiking conv nets and vision transformers."""

from __future__ import annotations

from collections import Counter
from threading import get_ident
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnlib.checks import as_sizes, check_floating, check_rank
from snnlib.explain.layout import batch_first, check_layout, layout_of, patch_grid, to_frames
from snnlib.explain.score import Target, scores_of
from snnlib.nn.fusion.hooks import of_this_thread
from snnlib.structure.layers import evaluating


class GradCAM:
    """Gradient-weighted class activation maps: where a layer's evidence for a class lies.

    With the target layer's output A and its gradient `G = d score / d A`, for each sample::

        alpha_c = mean over space (and time) of G_c
        map     = relu(sum_c alpha_c A_c)

    The map is scaled bilinearly to the input's height and width and divided by its maximum; where that is 0 the map is
    0. A `with` block holds the hook on the target layer for several calls; a call alone hooks itself. It runs the
    model once, in evaluation mode, for all samples of the batch, also under `torch.no_grad()` and
    `torch.inference_mode()`. Training flags are restored, and no `.grad` of a parameter or input is written.

    Spiking nets. Gradients of snnlib's layers are gradients of spikes (`dL/ds`), so they need no conversion. Before an
    event-driven layer they are nonzero at spikes only, `G = A * (...)`: alpha_c is the total gradient of the spikes of
    channel c, divided by the number of all elements. A channel without spikes has alpha 0. If the output neuron of the
    class is silent, no spike has a gradient, and the map is zero. Each step has its own map, from one alpha for the
    sequence or one per step.

    Args:
        model: any module; its output is class scores `[N, K]`, sequences of output spikes `[T, N, K]` (the score is the
            spike count) or, with a function as target, anything.
        target_layer: the module of `model` whose output is explained; the last conv layer is the usual choice. In a
            transformer whose head reads the class token only, it must come before the last attention:
            `blocks[-1].norm1`.
        layout: one letter per dimension of the layer's output: N, C, H and W, or L for tokens, T for time. Default by
            rank: `"NLC"`, `"NCHW"`, `"TNCHW"`. Others are `"NTCHW"` (`batch_first`), `"TNLC"`, `"TNCL"`, `"NHWC"`.
        prefix_tokens: tokens before the patches, such as the class token. Default: 0 or 1, whichever fits.
        grid: rows and columns of the patches. Default: as many as make square patches of the input.
        stride: input pixels per cell of the layer's output; the map then covers that many pixels in the middle of the
            input. Default: it covers all of it, which is right where convolutions pad as much as they take away.
        time: `"mean"` for one map per sample, the mean of its steps' maps, or `"per_step"`.
        alpha: `"global"`, one alpha for the sequence, or `"per_step"`, from each step's gradient alone.
        time_gradients: whether the gradient at this layer is dL/dt, because `compat.LossReverse` is between it and the
            score; alpha is then negated. Default False, also for layers of `snnlib.compat` under a plain score.
        normalize: whether to divide each sample's map by its maximum.

    Raises:
        ValueError: an option out of its range, or `target_layer` is not in `model`.

    Source: Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization",
    ICCV 2017, section 3.

    >>> import torch, snnlib
    >>> net = snnlib.models.from_notation("4C3p1-P2-10", (2, 8, 8), tau_m=8.0, tau_s=4.0)
    >>> events = (torch.rand(12, 3, 2, 8, 8) < 0.2).float()          # [T, N, C, H, W]
    >>> with snnlib.explain.GradCAM(net, net.conv1) as cam:
    ...     maps = cam(events)
    >>> maps.shape
    torch.Size([3, 8, 8])
    """

    def __init__(
        self,
        model: nn.Module,
        target_layer: nn.Module,
        *,
        layout: str | None = None,
        prefix_tokens: int | None = None,
        grid: tuple[int, int] | None = None,
        stride: int | tuple[int, int] | None = None,
        time: Literal["mean", "per_step"] = "mean",
        alpha: Literal["global", "per_step"] = "global",
        time_gradients: bool = False,
        normalize: bool = True,
    ) -> None:
        if not any(module is target_layer for module in model.modules()):
            raise ValueError(
                f"target_layer: expected a module of the model, got a {type(target_layer).__name__} outside it"
            )
        if layout is not None:
            check_layout(layout)
        if prefix_tokens is not None and prefix_tokens < 0:
            raise ValueError(f"prefix_tokens: expected an integer >= 0, got {prefix_tokens}")
        if time not in ("mean", "per_step"):
            raise ValueError(f"time: expected 'mean' or 'per_step', got {time!r}")
        if alpha not in ("global", "per_step"):
            raise ValueError(f"alpha: expected 'global' or 'per_step', got {alpha!r}")
        self.model, self.target_layer = model, target_layer
        self.layout, self.prefix_tokens = layout, prefix_tokens
        self.grid = None if grid is None else as_sizes("grid", grid, 2, minimum=1)
        self.stride = None if stride is None else as_sizes("stride", stride, 2, minimum=1)
        self.time, self.alpha = time, alpha
        self.time_gradients, self.normalize = time_gradients, normalize
        # Open `with` blocks and calls, the hook for them, and during a call the layer's outputs, by thread.
        self._open = Counter[int]()
        self._hooks: dict[int, torch.utils.hooks.RemovableHandle] = {}
        self._outputs: dict[int, list[Tensor]] = {}

    def __enter__(self) -> Self:
        """Registers a hook for this thread on the target layer."""
        thread = get_ident()
        if not self._open[thread]:
            self._hooks[thread] = self.target_layer.register_forward_hook(of_this_thread(self._record))
        self._open[thread] += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the hook at the end of the outermost block."""
        thread = get_ident()
        self._open[thread] -= 1
        if not self._open[thread]:
            self._hooks.pop(thread).remove()

    def __call__(self, x: Tensor, target: Target = None) -> Tensor:
        """Returns the maps of a batch.

        Args:
            x: the model's input, height and width last: `[N, C, H, W]` or `[T, N, C, H, W]` (`[N, T, ...]`).
            target: the class to explain, for all samples or one each `[N]`; or a function that makes a score, one or
                one per sample, of the model's output. Default: each sample's class with the highest score.

        Returns:
            `[N, H, W]`, or with `time="per_step"` `[T, N, H, W]` (`[N, T, H, W]` where the layout has N first), in the
            dtype of the layer's output, float32 for half. In 0..1 with `normalize`, over the steps of a sample
            together.

        Raises:
            TypeError: the layer's output is not a floating-point tensor, or a target no integer.
            ValueError: a target that is no class, a layer that is not called just once or that the score does not
                depend on, an output that does not fit `layout`; a transformer's layer after which only prefix tokens
                count. The message names the argument.
        """
        check_rank("x", x, "[N, C, H, W] or [T, N, C, H, W]", at_least=3)
        with self:
            output, gradient = self._run(x, target)
        layout = layout_of(output, self.layout)
        if self.time == "per_step" and "T" not in layout:
            raise ValueError(f"time: expected 'mean' for a layer of layout {layout!r}, got 'per_step'")
        size = (x.shape[-2], x.shape[-1])
        frames, slopes = self._to_grid(to_frames(output, layout), to_frames(gradient, layout), size)
        steps = _class_activation(frames, -slopes if self.time_gradients else slopes, self.alpha)
        maps = steps.mean(0, keepdim=True) if self.time == "mean" else steps
        maps = _scale_to(maps, size, self.stride)
        if self.normalize:
            highest = maps.amax((0, 2, 3), keepdim=True)
            maps = torch.where(highest > 0, maps / highest, 0)
        if self.time == "mean":
            return maps[0]
        return maps.transpose(0, 1) if batch_first(layout) else maps

    def _record(self, _layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
        outputs = self._outputs.get(get_ident())
        if outputs is None:
            return None
        check_floating("target_layer: its output", output)
        # A leaf of its own: works for frozen parameters, and no gradient flows further back. What the model gets is a
        # copy, so that an in-place operation after the layer does not change A.
        leaf = output.detach().requires_grad_()
        outputs.append(leaf)
        return leaf.clone()

    def _run(self, x: Tensor, target: Target) -> tuple[Tensor, Tensor]:
        """The target layer's output and the gradient of the summed scores by it."""
        outputs = self._outputs[get_ident()] = list[Tensor]()
        gradient = None
        try:
            with evaluating(self.model), torch.inference_mode(mode=False), torch.enable_grad():
                # Autograd saves no inference tensor.
                answer = self.model(x.clone() if x.is_inference() else x)
                if len(outputs) != 1:
                    raise ValueError(
                        f"target_layer: expected one call of the layer per forward pass, got {len(outputs)}"
                    )
                layout = layout_of(outputs[0], self.layout)
                score = scores_of(answer, target, layout, outputs[0].shape[layout.index("N")]).sum()
            if score.requires_grad:
                # Samples do not depend on each other, so the sum's gradient holds each sample's own.
                (gradient,) = torch.autograd.grad(score, outputs, allow_unused=True)
        finally:
            del self._outputs[get_ident()]
        if gradient is None:
            raise ValueError(
                f"target_layer: expected a layer that the score depends on, got a {type(self.target_layer).__name__} "
                "without a gradient of the score"
            )
        return outputs[0].detach(), gradient

    def _to_grid(self, frames: Tensor, slopes: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Tokens `[T, N, C, L]` as `[T, N, C, H, W]`; frames as they are."""
        if frames.dim() == 5:
            return frames, slopes
        prefix, grid = patch_grid(frames.shape[3], self.prefix_tokens, self.grid, size)
        before, patches = slopes[..., :prefix], slopes[..., prefix:]
        if bool(before.any()) and not bool(patches.any()):
            raise ValueError(
                "target_layer: expected a layer from which patch tokens reach the score, got a layer after which only "
                f"the {prefix} prefix token(s) do: all patch gradients are 0; choose a layer before the last "
                "attention, such as blocks[-1].norm1"
            )
        shape = (*frames.shape[:3], *grid)
        return frames[..., prefix:].reshape(shape), patches.reshape(shape)


def _class_activation(frames: Tensor, slopes: Tensor, alpha: str) -> Tensor:
    """`relu(sum_c alpha_c A_c)`: maps `[T, N, H, W]` from A and G `[T, N, C, H, W]`."""
    dtype = torch.promote_types(frames.dtype, torch.float32)
    weights = slopes.to(dtype).mean((0, 3, 4) if alpha == "global" else (3, 4), keepdim=True)
    return (weights * frames.to(dtype)).sum(2).relu()


def _scale_to(maps: Tensor, size: tuple[int, int], stride: tuple[int, ...] | None) -> Tensor:
    """Maps `[T, N, h, w]` as `[T, N, H, W]`; 0 where no cell of the layer lies."""
    covered = size if stride is None else (maps.shape[2] * stride[0], maps.shape[3] * stride[1])
    # Maps go as pictures of one channel: the number of pictures may be 0, that of channels not.
    scaled = F.interpolate(maps.flatten(0, 1).unsqueeze(1), covered, mode="bilinear", align_corners=False)
    rows, columns = size[0] - covered[0], size[1] - covered[1]
    placed = F.pad(scaled, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
    return placed.reshape(*maps.shape[:2], *size)
