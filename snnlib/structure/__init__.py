"""A net's structure, from its modules, for exchange and inspection."""
