"""Programs made ready to run: over the kernels of a device, or over what its compiler makes of their code."""
