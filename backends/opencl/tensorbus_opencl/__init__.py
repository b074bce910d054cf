"""The OpenCL devices of tensorbus."""
