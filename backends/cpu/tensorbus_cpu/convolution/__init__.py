"""Convolutions by implicit matrix products in tiles, and by Winograd's transforms."""
