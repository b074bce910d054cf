"""PyTorch's names that tensorbus lacks, each with what to write instead.

In order: ``torch_names``.
"""
