"""From an op and the types of its operands to the kernel that runs; once for a signature, then cached."""
