"""Heat maps of the pixels and time steps of an input that drive a net's answer."""

from snnlib import guesses
from snnlib.explain.grad_cam import GradCAM
from snnlib.explain.occlusion import Occlusion, occlusion_test

__all__ = ["GradCAM", "Occlusion", "occlusion_test"]
guesses.publish(__name__, __all__)
