"""A composite, or the derivative of one op, as one generated kernel in eager mode."""
