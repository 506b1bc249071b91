"""Weights of layers: gain, standardisation, sparse connections, pruning and quantisation."""
