"""Which pixels and time steps of an input drive a net's answer."""

from snnlib.explain.grad_cam import GradCAM

__all__ = ["GradCAM"]
