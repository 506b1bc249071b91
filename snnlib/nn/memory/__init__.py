"""Memory of a training step: what autograd saves, in fewer bits, and blocks of memory that are used again."""
