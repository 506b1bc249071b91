"""Recurrent and bidirectional layers."""
