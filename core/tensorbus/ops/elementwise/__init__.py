"""Ops on each element by itself: the family, and everything that belongs to it.

In order: ``family``, ``arithmetic``, ``integer_arithmetic``, ``comparison``, ``transcendental``, ``special``,
``complex``, ``activation``, ``isclose``, ``where_cast``.
"""
