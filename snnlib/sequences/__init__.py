"""Sequences of spikes as tensors: lengths of samples, steps that are kept, counts, and gradients by time.

Neurons and what is above them read it; it knows nothing of neurons.
"""
