"""How long a step takes: work on the GPU, traffic that shows, what the host and the disk do, the update."""
