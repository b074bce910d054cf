"""The cuda device of tensorbus: so far its probe."""
