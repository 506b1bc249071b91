"""Sequences in chunks, in streams and of different lengths."""
