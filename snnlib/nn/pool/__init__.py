"""Pooling of spikes."""
