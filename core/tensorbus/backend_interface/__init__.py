"""The protocols that a backend implements, and the value of devices that have no array library."""
