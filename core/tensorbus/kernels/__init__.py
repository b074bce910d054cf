"""Ready kernels that make a device small."""
