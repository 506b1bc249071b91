"""Measurements of a net: activity, operations, memory, kernels, heat maps, and the environment."""
