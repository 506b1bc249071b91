"""Where an op runs: the compiled module, the readable reference, and the choice between algorithms."""
