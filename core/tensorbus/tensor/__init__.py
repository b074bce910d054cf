"""The Tensor cell, its leaf, and grad mode.

A value comes in and is held; changes rebind the cell, and all that show elements of it. In order: ``tensor``,
``element_count``, ``leaf``, ``grad_mode``, ``flag``.
"""
