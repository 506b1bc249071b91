"""Batch norm over sequences."""
