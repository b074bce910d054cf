"""What operations mean: a file for each family."""
