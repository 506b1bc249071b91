"""Layers whose spikes come back, or that read a sequence in both directions."""
