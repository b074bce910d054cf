"""Native code: the compiler's kernels and pool, the driver that runs programs, programs on disk."""
