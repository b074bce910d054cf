"""The loop IR: a kernel before and after scheduling, index expressions, layouts, its verifier."""
