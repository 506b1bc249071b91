"""The command `snnlib`: settings, recipes, training, report and pictures."""
