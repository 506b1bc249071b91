"""Fusion of layers with the norm, the neurons and the pool behind them."""
