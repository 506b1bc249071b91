"""Packages that the command needs beside torch."""

# Packages that `snnlib[train]` brings and torch does not.
PACKAGES = ("typer", "rich", "lightning", "tensorboard", "matplotlib", "jinja2")
INSTALL = "pip install 'snnlib[train]'"
