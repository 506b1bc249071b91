"""Superpixels, voxels, segment sums and resizing; nothing here spikes."""
