"""Layers that pool windows: of a given size, to a given size, at random places."""
