"""The metal device of tensorbus: so far its probe."""
