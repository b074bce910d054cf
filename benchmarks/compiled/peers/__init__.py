"""A class for each peer, in a file of its own: a method for each row, which returns the call to be timed.

A peer runs in a process of its own, and its library is imported there. A row that a peer has no method for is
not measured; a call returns when its result is there.
"""
