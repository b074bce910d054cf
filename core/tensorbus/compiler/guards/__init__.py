"""The checks that say whether a captured program still stands for the function."""
