"""Learning: losses, decoding, calibration, preparation and the health of nets."""
