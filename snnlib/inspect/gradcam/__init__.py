"""Heat maps of the pixels and time steps of an input that drive a net's answer."""

from snnlib.inspect.gradcam.grad_cam import GradCAM
from snnlib.inspect.gradcam.occlusion import Occlusion, occlusion_test

__all__ = ["GradCAM", "Occlusion", "occlusion_test"]
