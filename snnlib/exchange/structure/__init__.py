"""Structure of nets, read from their modules: what every exporter and converter starts from."""
