"""A suite of seconds for an installed snnlib: `pytest --pyargs snnlib.testing.smoke` says whether it runs here."""
