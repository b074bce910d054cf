"""Ops that put the same elements elsewhere.

In order: ``family``, ``movement``, ``windows``, ``tile_roll_split``, ``padding``, ``diagonal``, ``stacking``,
``torch_view``, ``pixel_shuffle_unfold``, ``view_scatter``, ``combining``.
"""
