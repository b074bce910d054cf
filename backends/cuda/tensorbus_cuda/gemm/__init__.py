"""Matrix products by cuBLASLt, with epilogues, scales and operands of 8 bits."""
