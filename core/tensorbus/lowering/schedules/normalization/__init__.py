"""Schedules that pass over a row several times and keep it near: softmax, layer norm.

In order: ``row_normalization``, ``row_normalization_gpu``, ``column_normalization``.
"""
