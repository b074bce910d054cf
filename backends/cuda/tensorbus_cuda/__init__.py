"""The NVIDIA GPUs of tensorbus."""
