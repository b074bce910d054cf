"""The Python functions and methods of ops: the path of a call from its arguments to a kernel."""
