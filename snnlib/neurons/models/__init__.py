"""Neuron models, one per file: equation, arguments, `step` and the coefficients for the kernels."""
