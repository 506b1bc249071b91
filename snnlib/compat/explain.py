"""Grad-CAM of vision transformers under the published name."""

from __future__ import annotations

from torch import Tensor, nn

from snnlib.inspect.gradcam import GradCAM


class ViTGradCAM:
    """Grad-CAM of a transformer's last block: `ViTGradCAM(model).generate_heatmap(images)`.

    The library's own: `explain.GradCAM`, for any layer and net. The layer looked at is the first norm of the last
    block, `model.blocks[-1].norm1`, where there is one, else the block: behind the last attention a head that reads the
    class token has no gradient at the patches.

    Args:
        model: a module with `blocks`, images `[N, C, H, W]` in, class scores `[N, K]` out.
        target_layer: another layer of it with tokens `[N, L, D]`.

    Raises:
        TypeError: the model has no `blocks`, and no target layer was given.
    """

    def __init__(self, model: nn.Module, target_layer: nn.Module | None = None) -> None:
        if target_layer is None:
            blocks = getattr(model, "blocks", None)
            if not isinstance(blocks, (nn.ModuleList, nn.Sequential)) or len(blocks) == 0:
                raise TypeError(
                    f"model: expected a transformer with `blocks`, got {type(model).__name__}; give target_layer"
                )
            target_layer = getattr(blocks[-1], "norm1", blocks[-1])
        self.model, self.target_layer = model, target_layer

    def register_hooks(self) -> None:
        """Nothing to do: hooks live as long as a call of `generate_heatmap`."""

    def generate_heatmap(self, input_image: Tensor, target_class: int | Tensor | None = None) -> Tensor:
        """Maps `[N, 1, H, W]` in 0..1, of the class asked for or each image's own answer."""
        with GradCAM(self.model, self.target_layer) as cam:
            return cam(input_image, target_class).unsqueeze(1)
