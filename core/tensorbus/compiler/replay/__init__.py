"""The Python that checks guards, runs the program and applies what the function changed."""
