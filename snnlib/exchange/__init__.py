"""Nets of other libraries: recognised, converted, compared."""
