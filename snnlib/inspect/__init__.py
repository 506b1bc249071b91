"""What a net does: activity, memory, kernels, heat maps, and the environment that it runs in."""
