"""Spiking layers, their delays and readouts, and modules that stand between them."""
