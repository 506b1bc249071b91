"""Memory of a training step: packing of saved tensors, and reuse of blocks."""
