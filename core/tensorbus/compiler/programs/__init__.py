"""From a trace to executables: one program per set of sizes, split by device, tuned where asked."""
