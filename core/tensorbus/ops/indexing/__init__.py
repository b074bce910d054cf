"""Ops that read and write at places: keys, tensors of indices, masks."""
