"""The Apple GPU of tensorbus."""
