"""A net's structure, read off its modules: what exchange and inspection of nets are built on."""
