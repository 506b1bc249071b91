"""What makes nets learn: losses, decoding, calibration, preparation and their health."""
