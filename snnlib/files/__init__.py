"""Files of any content: written whole or not at all, the folder of caches, HDF5 files that hold all their data."""
