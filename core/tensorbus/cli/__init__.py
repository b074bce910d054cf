"""The command line ``tensorbus``. Nothing else in core imports it."""
