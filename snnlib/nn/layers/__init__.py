"""Spiking layers, their delays and readouts, and modules between layers."""
