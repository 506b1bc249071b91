"""Paths of an op: the compiled module, the readable reference, and the choice between algorithms."""
