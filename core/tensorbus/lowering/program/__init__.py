"""From scheduled kernels to a program: order, memory, reuse, launches."""
