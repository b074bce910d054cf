"""The layers, a file for each kind."""
