"""Modules of a net as tools see them, and those of other spiking libraries."""
